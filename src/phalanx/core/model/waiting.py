"""Who waits for a place: jobs with ready tasks, by class of request, in order of priority and arrival.

Jobs of one class ask for the same, so when the first does not fit, none does: a pass over the queue costs
as many steps as there are classes and placements, whatever the number of waiting tasks.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Protocol

from phalanx.core.model.ids import JobId
from phalanx.core.model.job import Job
from phalanx.core.model.lane import Lane
from phalanx.core.model.resources import Request

Rank = tuple[int, int]  # (minus the priority, arrival): the smaller goes first


class WaitingJob(Protocol):
    """What placement may know of a job that waits."""

    job: Job
    rank: Rank
    lanes: dict[tuple[str, int], Lane]

    def ready(self, most: int) -> Iterator[int]:
        """Positions of up to `most` tasks that may be placed now, in order."""
        ...

    @property
    def typical_run_s(self) -> float | None:
        """How long its tasks have been running of late, or None before enough have ended."""
        ...


class WaitingClass:
    """The jobs that wait with one same request, in order."""

    __slots__ = ("blocked_at", "jobs", "ranks", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.ranks: list[Rank] = []
        self.jobs: dict[Rank, WaitingJob] = {}
        self.blocked_at = -1  # the table's gain when the class last found no room


class Waiting:
    """Every waiting class, and which job waits in it."""

    def __init__(self) -> None:
        self.classes: dict[Request, WaitingClass] = {}
        self._members: set[JobId] = set()

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, job: JobId) -> bool:
        return job in self._members

    def add(self, waiting: WaitingJob) -> None:
        if waiting.job.id in self._members:
            return
        self._members.add(waiting.job.id)
        kind = self.classes.setdefault(waiting.job.request, WaitingClass(waiting.job.request))
        insort(kind.ranks, waiting.rank)
        kind.jobs[waiting.rank] = waiting
        kind.blocked_at = -1

    def discard(self, waiting: WaitingJob) -> None:
        if waiting.job.id not in self._members:
            return
        self._members.remove(waiting.job.id)
        kind = self.classes[waiting.job.request]
        del kind.ranks[bisect_left(kind.ranks, waiting.rank)]
        del kind.jobs[waiting.rank]
        if not kind.ranks:
            del self.classes[waiting.job.request]
