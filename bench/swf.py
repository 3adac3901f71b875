"""The Standard Workload Format: one job a line, eighteen fields, a header of comments that begin with ';'."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

_HEADER = re.compile(r";\s*(MaxProcs|MaxNodes)\s*:\s*(\d+)")
_SUBMITTED, _RUN, _ALLOCATED, _ASKED, _ESTIMATE = 1, 3, 4, 7, 8


class Logged(Struct, frozen=True):
    """One job of a log. Its user's estimate is never below what it really ran."""

    number: int
    submitted_at: float
    run_s: float
    estimate_s: float
    procs: int


class Log(Struct, frozen=True):
    """The jobs of a log that ran, in order of arrival, and how many processors its header says there were."""

    jobs: list[Logged]
    procs: int


def read(lines: Iterable[str]) -> Log:
    """Read a log; jobs without a run time never ran and are left out."""
    jobs: list[Logged] = []
    sizes: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if line.startswith(";"):
            if (found := _HEADER.match(line)) is not None:
                sizes[found[1]] = int(found[2])
        elif line.strip() and (job := _job(line, number)).run_s >= 0:
            jobs.append(job)
    jobs.sort(key=lambda job: job.submitted_at)
    return Log(jobs, sizes.get("MaxProcs", sizes.get("MaxNodes", 0)))


def _job(line: str, number: int) -> Logged:
    fields = line.split()
    if len(fields) <= _ESTIMATE:
        raise ValueError(f"line {number} has {len(fields)} fields, a job has 18")
    try:
        values = [float(field) for field in fields[: _ESTIMATE + 1]]
    except ValueError as error:
        raise ValueError(f"line {number}: {error}") from None
    asked, allocated = int(values[_ASKED]), int(values[_ALLOCATED])
    procs = asked if asked > 0 else allocated
    estimate_s = max(values[_ESTIMATE], values[_RUN])
    return Logged(int(values[0]), values[_SUBMITTED], values[_RUN], estimate_s, procs)
