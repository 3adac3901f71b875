"""Sweeps and retries, as the log has them: each task is given its own values, and only failed tasks run again, once.

It shares no code with `Params`: a grid is counted out here. A task of a job is repeated by a later job only if it had
failed, and not by two of them at the same time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product

from phalanx.core.cluster import events as e
from phalanx.core.model.job import Job, JobId
from phalanx.core.model.orders import Start, Status
from phalanx.sim.chronicle import Chronicle
from phalanx.sim.violation import Violation


class SweepChecker:
    """What each task of a sweep is to be given, and which job has each task of a repeated job now."""

    def __init__(self, chronicle: Chronicle, count: Callable[[str], None]) -> None:
        self._chronicle = chronicle
        self._count = count
        self._given: dict[JobId, list[dict[str, str]]] = {}  # by the index, from 1
        self._newest: dict[JobId, dict[int, tuple[JobId, int]]] = {}

    def note(self, event: e.Event) -> None:
        """An event became durable."""
        if isinstance(event, e.JobSubmitted) and event.job.params is not None:
            self._submitted(event.job)

    def started(self, start: Start) -> None:
        """A process of a task began."""
        rows = self._given.get(start.key[0])
        if rows is None:
            return
        if start.index is None or json.loads(start.params or "{}") != rows[start.index - 1]:
            raise Violation("sweeps", f"{start.key} with index {start.index} was given {start.params}")
        self._count("task of a sweep started")

    def _submitted(self, job: Job) -> None:
        assert job.params is not None
        assert job.array is not None
        values = [
            [text for part in axis.parts for text in ([part] if isinstance(part, str) else _counted(*part))]
            for axis in job.params.axes
        ]
        names = [axis.name for axis in job.params.axes]
        self._given[job.id] = [dict(zip(names, cell, strict=True)) for cell in product(*values)]
        own = {index: (job.id, position) for position, index in enumerate(job.array.indexes())}
        if not job.repeats:
            self._newest[job.id] = own
            return
        newest = self._newest[job.repeats]
        for index in own:
            before, position = newest[index]
            if self._chronicle.jobs[before][position].final != Status.FAILED:
                raise Violation("retries", f"{job.id} repeats {before}.{index}, which has not failed")
        newest.update(own)
        self._count("retry of failed tasks")


def _counted(first: int, count: int, step: int) -> list[str]:
    return [str(first + at * step) for at in range(count)]
