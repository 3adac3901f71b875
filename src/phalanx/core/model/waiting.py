"""Who waits for a place: groups with ready tasks and gangs, by kind, in order of priority and arrival.

Units of one kind ask for the same, so when the first does not fit, none does: a pass over the queue costs
as many steps as there are kinds and placements, whatever the number of waiting tasks.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator, Sequence
from enum import IntEnum
from typing import Protocol

from msgspec import Struct

from phalanx.core.model.job import Job
from phalanx.core.model.resources import Request
from phalanx.core.model.tenants import Lane

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
    """The units of one kind, in order. What plans found out about them is not here, but in a `PlanMemory`."""

    __slots__ = ("kind", "last_entry", "number", "ranks", "units")

    def __init__(self, kind: Hashable, number: int) -> None:
        self.kind = kind
        self.number = number  # no other class of this queue ever has it
        self.last_entry = number  # the number of the unit that entered last
        self.ranks: list[Rank] = []
        self.units: dict[Rank, Unit] = {}

    def copied(self) -> WaitingClass:
        other = WaitingClass(self.kind, self.number)
        other.last_entry, other.ranks, other.units = self.last_entry, list(self.ranks), dict(self.units)
        return other


class Waiting:
    """Every waiting class, and which unit waits in it. Units are numbered as they enter; who comes back is new."""

    def __init__(self) -> None:
        self.classes: dict[Hashable, WaitingClass] = {}
        # By unit: the number with which it entered, and under which kind; that may have changed since.
        self._entries: dict[Rank, tuple[int, Hashable]] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, unit: Unit) -> bool:
        return unit.rank in self._entries

    def entry(self, rank: Rank) -> int:
        """The number with which the unit of this rank entered; 0 if none waits."""
        found = self._entries.get(rank)
        return 0 if found is None else found[0]

    def add(self, unit: Unit) -> None:
        """Put a unit in its place; one that already waits moves if its kind has changed."""
        kind = unit.kind
        if (former := self._entries.get(unit.rank)) is not None:
            if former[1] == kind:
                return
            self.discard(unit)
        self._count += 1
        found = self.classes.get(kind)
        if found is None:
            found = self.classes[kind] = WaitingClass(kind, self._count)
        self._entries[unit.rank] = self._count, kind
        insort(found.ranks, unit.rank)
        found.units[unit.rank] = unit
        found.last_entry = self._count

    def discard(self, unit: Unit) -> None:
        entry = self._entries.pop(unit.rank, None)
        if entry is None:
            return
        found = self.classes[entry[1]]
        del found.ranks[bisect_left(found.ranks, unit.rank)]
        del found.units[unit.rank]
        if not found.ranks:
            del self.classes[found.kind]

    def changed(self, *, without: Sequence[Unit] = (), added: Sequence[Unit] = ()) -> Waiting:
        """Another queue, in which other units wait. Only the classes that differ are its own."""
        other = Waiting()
        other.classes, other._entries, other._count = dict(self.classes), dict(self._entries), self._count
        kinds = {self._entries[unit.rank][1] for unit in (*without, *added) if unit in self}
        for kind in kinds | {unit.kind for unit in added}:
            if kind in self.classes:
                other.classes[kind] = self.classes[kind].copied()
        for unit in without:
            other.discard(unit)
        for unit in added:
            other.add(unit)
        return other
