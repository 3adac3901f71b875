"""Units that wait to be placed, with nothing behind them: a gang, and a group whose tasks are placed one by one."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Literal

from phalanx.core.model.job import Job
from phalanx.core.model.lanes import Lane, LanePool
from phalanx.core.model.waiting import Part, Rank


class FakeGang:
    """A gang of which nothing is placed but what `bound` says: node row → members there."""

    is_gang: Literal[True] = True
    is_surplus = False
    may_hold_part = False
    comes_back = False
    rank: Rank = (0.0, 0, 0)
    kind: Hashable = "gang"

    def __init__(self, job: Job, bound: dict[int, int] | None = None) -> None:
        self.job = job
        self._bound = bound or {}

    def wanted(self) -> tuple[Part, ...]:
        return tuple(Part(group.request, group.needed, group.tasks) for group in self.job.groups)

    def members(self, group: int) -> list[tuple[int, int]]:
        first = sum(each.tasks for each in self.job.groups[:group])
        of = self.job.groups[group]
        return sorted((of.indexes[at] if of.indexes else at, first + at) for at in range(of.tasks))

    def bound(self) -> list[tuple[int, int]]:
        return sorted(self._bound.items())


class FakeTasks:
    """A group of which the first `done` tasks have been placed."""

    is_gang: Literal[False] = False
    comes_back = False
    rank: Rank = (0.0, 0, 0)
    kind: Hashable = "tasks"
    pool: LanePool | None = None
    number = 0
    typical_run_s: float | None = None

    def __init__(self, job: Job, done: int = 0) -> None:
        self.job = job
        self.request = job.groups[0].request
        self.lanes: dict[tuple[str, int], Lane] = {}
        self._done = done

    def ready(self, most: int) -> Iterator[int]:
        return iter(range(self._done, min(self.job.tasks, self._done + most)))
