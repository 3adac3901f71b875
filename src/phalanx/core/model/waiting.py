"""Who waits for a place: groups with ready tasks and gangs, by kind, in order of priority and arrival.

Units of one kind ask for the same, so when the first does not fit, none does: a pass over the queue costs
as many steps as there are kinds and placements, whatever the number of waiting tasks.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator
from enum import IntEnum
from typing import Protocol

from msgspec import Struct

from phalanx.core.model.job import Job
from phalanx.core.model.lane import Lane
from phalanx.core.model.resources import Request

Rank = tuple[float, int, int]  # (minus the priority, arrival, number of the group): the smaller goes first


class Wanted(Struct, frozen=True):
    """What a gang still wants of one of its groups: `need` tasks now and together, `most` if there is room."""

    request: Request
    need: int
    most: int


class Unit(Protocol):
    """One thing that waits: a group whose tasks are placed one by one, or a gang."""

    job: Job
    rank: Rank

    @property
    def kind(self) -> Hashable:
        """Units of one kind ask for the same."""
        ...

    @property
    def is_gang(self) -> bool: ...

    @property
    def comes_back(self) -> bool:
        """Whether the rest of its gang holds places until it is there: the head would wait for those for ever."""
        ...


class WaitingGroup(Unit, Protocol):
    """A group whose tasks are placed one by one."""

    number: int  # of the group in its job
    request: Request
    lanes: dict[tuple[str, int], Lane]

    def ready(self, most: int) -> Iterator[int]:
        """Positions of up to `most` tasks that may be placed now, in order."""
        ...

    @property
    def typical_run_s(self) -> float | None:
        """How long its tasks have been running of late, or None before enough have ended."""
        ...


class WaitingGang(Unit, Protocol):
    """A job whose tasks are placed together, or what is left to place of it."""

    def wanted(self) -> tuple[Wanted, ...]:
        """What is to be placed now, one entry for each group of the job."""
        ...

    def members(self, group: int) -> list[tuple[int, int]]:
        """(index in the network, position) of the tasks of a group that may be placed now, in that order."""
        ...

    def bound(self) -> list[tuple[int, int]]:
        """(node row, count) where members of this job already hold places."""
        ...


class Block(IntEnum):
    """Why a class was passed over."""

    ROOM = 0  # no node has room for the first of it
    QUOTA = 1  # its queue may hold no more
    HELD = 2  # there is room, but it would delay the first that found none


class WaitingClass:
    """The units of one kind, in order."""

    __slots__ = (
        "blocked_at", "blocked_by", "evict_at", "failed_until", "failure", "held_behind", "hopeless_at",
        "kind", "ranks", "units",
    )  # fmt: skip

    def __init__(self, kind: Hashable) -> None:
        self.kind = kind
        self.ranks: list[Rank] = []
        self.units: dict[Rank, Unit] = {}
        self.blocked_at = -1  # the table's gain when the class was last passed over
        self.blocked_by = Block.ROOM
        self.held_behind: Rank | None = None  # if it is held back: whom it would have delayed
        self.hopeless_at = -1  # the table's gain when it would not have fitted with every tenant gone
        self.evict_at = 0.0  # before this it need not look again whom to evict
        self.failed_until = 0.0  # before this no plan looks at it: it made one fail
        self.failure = ""  # with this error


class KeptNodes(Struct, frozen=True):
    """The nodes that are kept for a unit until it starts; of a group, until the task at `position` does."""

    nodes: tuple[str, ...]
    position: int = -1


class Waiting:
    """Every waiting class, and which unit waits in it. `kept` is what plans remember from one to the next."""

    def __init__(self) -> None:
        self.classes: dict[Hashable, WaitingClass] = {}
        self.kept: dict[Rank, KeptNodes] = {}  # by unit; who does not wait any more is forgotten
        self._kinds: dict[Rank, Hashable] = {}  # under which kind a unit stands; it may have changed since

    def __len__(self) -> int:
        return len(self._kinds)

    def __contains__(self, unit: Unit) -> bool:
        return unit.rank in self._kinds

    def add(self, unit: Unit) -> None:
        """Put a unit in its place; one that already waits moves if its kind has changed."""
        kind = unit.kind
        if (former := self._kinds.get(unit.rank)) is not None:
            if former == kind:
                return
            self.discard(unit)
        self._kinds[unit.rank] = kind
        found = self.classes.setdefault(kind, WaitingClass(kind))
        insort(found.ranks, unit.rank)
        found.units[unit.rank] = unit
        found.blocked_at, found.evict_at = -1, 0.0

    def copied(self) -> Waiting:
        """The same queue for somebody who only tries something: what is noted or added there stays there."""
        other = Waiting()
        other._kinds, other.kept = dict(self._kinds), dict(self.kept)
        for kind, found in self.classes.items():
            own = other.classes[kind] = WaitingClass(kind)
            for name in WaitingClass.__slots__:
                setattr(own, name, getattr(found, name))
            own.ranks, own.units = list(found.ranks), dict(found.units)
        return other

    def discard(self, unit: Unit) -> None:
        kind = self._kinds.pop(unit.rank, None)
        if kind is None:
            return
        self.kept.pop(unit.rank, None)
        found = self.classes[kind]
        del found.ranks[bisect_left(found.ranks, unit.rank)]
        del found.units[unit.rank]
        if not found.ranks:
            del self.classes[kind]
