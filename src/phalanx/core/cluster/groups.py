"""The tasks of one group that wait, and how its attempts fare: what placement sees of a job without a gang.

A position that was never placed lies at or beyond `fresh`; one that is to be placed again stands in `again`.
Positions in backoff are remembered by the job.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator
from typing import Protocol

from phalanx.core.cluster import gates
from phalanx.core.model.job import Group
from phalanx.core.model.lane import Lane
from phalanx.core.model.resources import Request
from phalanx.core.model.status import Status
from phalanx.core.model.waiting import Rank

_SAMPLES_MIN = 4


class GroupOwner(gates.GatedJob, Protocol):
    """What a group needs to know of its job."""

    status: bytearray
    delayed: dict[int, float]

    def has_come(self, group: str, when: str) -> bool: ...

    def is_ready(self, position: int) -> bool: ...


class GroupState:
    """One group of a job; a unit that waits, unless the job is a gang."""

    __slots__ = (
        "again", "first", "fresh", "group", "job", "kind", "lanes", "last", "live", "number", "owner", "rank",
        "request", "run_s", "samples", "staying",
    )  # fmt: skip
    is_gang = False
    comes_back = False

    def __init__(self, owner: GroupOwner, number: int, first: int, rank: Rank) -> None:
        self.owner = owner
        self.job = owner.job
        self.number = number
        self.group: Group = owner.job.groups[number]
        self.request: Request = self.group.request
        self.rank = rank
        self.kind: Hashable = (owner.job.queue, self.request)
        self.first = first
        self.last = first + self.group.tasks
        self.fresh = first  # the first position that was never placed
        self.again: list[int] = []  # positions to be placed again, sorted
        self.live: dict[int, int] = {}  # places held, by replica
        self.staying = 0  # of these, how many were not told to leave
        self.lanes: dict[tuple[str, int], Lane] = {}
        self.run_s = 0.0
        self.samples = 0

    @property
    def typical_run_s(self) -> float | None:
        return self.run_s if self.samples >= _SAMPLES_MIN else None

    @property
    def has_ready(self) -> bool:
        """True if a task could be placed now, as far as the job itself is concerned."""
        return next(self.ready(1), None) is not None

    @property
    def may_begin(self) -> bool:
        """True if every group that has to come first has."""
        after = self.group.after
        return not after or all(self.owner.has_come(name, when) for name, when in after)

    def ready(self, most: int) -> Iterator[int]:
        """Up to `most` positions that may be placed now: those to be placed again first, then fresh ones."""
        if not gates.is_open(gates.of_group(self)):
            return iter(())
        if not self.group.at_once:
            return self._in_order(most)
        if self.group.replicas == 1:
            return self._in_order(min(most, self.group.at_once - self.live.get(0, 0)))
        return self._within_limits(most)

    @property
    def pending_count(self) -> int:
        """How many positions may be placed now, without listing them."""
        fresh = self.owner.status.count(Status.PENDING, self.fresh, self.last)
        late = sum(self.fresh <= position < self.last for position in self.owner.delayed)
        return len(self.again) + fresh - late

    def pending(self) -> list[int]:
        """Every position that may be placed now, in order."""
        return sorted(self._in_order(self.last - self.first))

    def is_full(self, position: int) -> bool:
        """Whether as many tasks of the array that a position belongs to hold places as may."""
        limit = self.group.at_once
        return limit > 0 and self.live.get(self.replica(position), 0) >= limit

    def ahead_of(self, position: int) -> int:
        """How many tasks of this group are placed before the one at a position."""
        if position < self.fresh:
            return bisect_left(self.again, position)
        late = sum(self.fresh <= each < position for each in self.owner.delayed)
        return len(self.again) + self.owner.status.count(Status.PENDING, self.fresh, position) - late

    def replica(self, position: int) -> int:
        return (position - self.first) // self.group.completions

    def begin(self, position: int) -> None:
        """It was placed: it no longer waits and counts against its replica's limit."""
        replica = self.replica(position)
        self.live[replica] = self.live.get(replica, 0) + 1
        self.staying += 1
        self.take_ready(position)

    def leave(self, position: int) -> None:
        """It no longer holds a place."""
        replica = self.replica(position)
        self.live[replica] -= 1
        if not self.live[replica]:
            del self.live[replica]

    def wait_again(self, position: int) -> None:
        if position < self.fresh:
            insort(self.again, position)

    def take_ready(self, position: int) -> None:
        """Forget that a position waits. One beyond `fresh` needs no forgetting: its status is passed over."""
        if position < self.fresh:
            at = bisect_left(self.again, position)
            if at < len(self.again) and self.again[at] == position:
                del self.again[at]
        status = self.owner.status
        while self.fresh < self.last and status[self.fresh] != Status.PENDING:
            self.fresh += 1

    def drop_all(self) -> None:
        """Nothing of it will be placed any more."""
        self.again.clear()
        self.fresh = self.last

    def learn(self, run_s: float) -> None:
        weight = 0.25 if self.samples >= _SAMPLES_MIN else 1.0 / (self.samples + 1)
        self.run_s += weight * (max(run_s, 0.0) - self.run_s)
        self.samples += 1

    def _in_order(self, most: int) -> Iterator[int]:
        if self.again and most > 0:
            for position in self.again[:most]:
                yield position
                most -= 1
        position = self.fresh
        while position < self.last and most > 0:
            if self.owner.is_ready(position):
                yield position
                most -= 1
            position += 1

    def _within_limits(self, most: int) -> Iterator[int]:
        """In order, but no more of a replica than may hold a place at one time."""
        held = dict(self.live)
        for position in self._in_order(self.last - self.first):
            if most <= 0:
                return
            replica = self.replica(position)
            if held.get(replica, 0) < self.group.at_once:
                held[replica] = held.get(replica, 0) + 1
                most -= 1
                yield position
