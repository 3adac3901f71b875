"""Who waits for a place: groups and gangs, by priority and arrival.

Units of one kind ask for the same, so when the first does not fit, none does: a pass over the queue costs
as many steps as there are kinds and placements, whatever the number of waiting tasks. In a queue that limits its users
or has a fair order each of them has classes of his own: one who is at his limit says nothing about the others.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from enum import IntEnum
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct, structs

from phalanx.core.model.job import Gather, Job
from phalanx.core.model.resources import Request

if TYPE_CHECKING:  # clients know quotas, and need no numpy for that
    from phalanx.core.model.lanes import Lane, LanePool

Gathers = tuple[Gather, ...]
Member = tuple[int, int]  # (index in the network, position)
Rank = tuple[float, int, int]  # (minus the priority, arrival, number of the group): the smaller goes first


class Part(Struct, frozen=True):
    """Members with one request, who can change places: `need` of them now and together, `most` if there is room.

    `groups` has (group, need, most) of every group that they come from.
    """

    request: Request
    need: int
    most: int
    groups: tuple[tuple[int, int, int], ...] = ()


class _Waits(Protocol):
    """What all that waits has."""

    job: Job
    rank: Rank

    @property
    def kind(self) -> Hashable:
        """Units of one kind ask for the same."""
        ...

    @property
    def comes_back(self) -> bool:
        """Whether the rest of its gang holds places until it is there: the head would wait for those for ever."""
        ...


class WaitingGroup(_Waits, Protocol):
    """A group whose tasks are placed one by one."""

    number: int  # of the group in its job
    lanes: dict[tuple[str, int], Lane]
    pool: LanePool | None  # of jobs that share lanes with it

    @property
    def is_gang(self) -> Literal[False]: ...

    @property
    def request(self) -> Request: ...

    def ready(self, most: int) -> Iterator[int]:
        """Positions of up to `most` tasks that may be placed now, in order."""
        ...

    @property
    def typical_run_s(self) -> float | None:
        """How long its tasks have been running of late, or None before enough have ended."""
        ...


class WaitingGang(_Waits, Protocol):
    """A job whose tasks are placed together, or what is left to place of it."""

    @property
    def is_gang(self) -> Literal[True]: ...

    @property
    def is_surplus(self) -> bool:
        """Whether it has a place for all that it needs, so that whoever is still to be placed is one more."""
        ...

    @property
    def may_hold_part(self) -> bool:
        """Whether members may keep their places while the others look for theirs."""
        ...

    def wanted(self) -> tuple[Part, ...]:
        """What is to be placed now, one entry for each group of the job."""
        ...

    def members(self, group: int) -> list[Member]:
        """The tasks of a group that may be placed now, in the order of their index."""
        ...

    def bound(self) -> list[tuple[int, int]]:
        """(node row, count) where members of this job already hold places."""
        ...


Unit = WaitingGroup | WaitingGang  # one thing that waits


class Ask:
    """What a unit wants placed now, the same for a gang and for the first tasks of a group."""

    def __init__(self, unit: Unit, tasks: int = 1) -> None:
        self.job, self.rank, self.is_gang = unit.job, unit.rank, unit.is_gang
        self._unit = unit
        self._positions: list[int] = []
        self.bound: list[int] = []  # the node row of every member that holds a place already
        if unit.is_gang:
            self.parts = by_request(unit.wanted())
            self.bound = [row for row, count in unit.bound() for _ in range(count)]
        else:
            self._positions = list(unit.ready(tasks))
            count = len(self._positions)
            self.parts = [Part(unit.request, count, count, ((unit.number, count, count),))]

    @property
    def affinity(self) -> str:
        """Its members stand near running tasks of the same key."""
        return "" if self.job.gang is None else self.job.gang.affinity

    @property
    def is_surplus(self) -> bool:
        """Whether it has every member that it needs, and asks for more."""
        return self._unit.is_gang and self._unit.is_surplus

    @property
    def rules_to_try(self) -> tuple[Gathers, ...]:
        """Its gather rules, the strictest first; only if the last of them give no place there is none.

        A multiple is how a gang starts. Once it runs, members end one by one, and what is left is seldom a multiple:
        one that has to come back keeps it where it can and else stands where the must rules let it, or it would wait
        for ever.
        """
        gather = () if self.job.gang is None else self.job.gang.gather
        if all(rule.multiple == 1 for rule in gather) or not self._unit.comes_back:
            return (gather,)
        return gather, tuple(structs.replace(rule, multiple=1) for rule in gather)

    @property
    def gather(self) -> Gathers:
        """The gather rules that no place of it may break."""
        return self.rules_to_try[-1]

    def members(self, part: Part, count: int) -> list[Member]:
        """The members to place if there is room for `count`, in the order of their index; the needed ones first."""
        unit = self._unit
        if not unit.is_gang:
            return list(enumerate(self._positions[:count]))
        chosen: list[Member] = []
        others: list[Member] = []
        for group, need, most in part.groups:
            listed = unit.members(group)[:most]
            chosen += listed[:need]
            others += listed[need:]
        if len(chosen) < count:
            others.sort()
            chosen += others[: count - len(chosen)]
        chosen.sort()
        return chosen[:count]


def by_request(wanted: Sequence[Part]) -> list[Part]:
    """The groups that still want something, those that ask for the same as one part."""
    groups: dict[Request, list[tuple[int, int, int]]] = {}
    for number, each in enumerate(wanted):
        if each.most > 0:
            groups.setdefault(each.request, []).append((number, each.need, each.most))
    return [
        Part(request, sum(need for _, need, _ in each), sum(most for _, _, most in each), tuple(each))
        for request, each in groups.items()
    ]


class Block(IntEnum):
    """Why a class was passed over."""

    ROOM = 0  # no node has room for the first of it
    QUOTA = 1  # its queue may hold no more
    HELD = 2  # there is room, but it would delay the first that found none
    NODE = 3  # it waits for one node, which has no room
    USER = 4  # its user may hold no more in its queue
    TURN = 5  # others of its fair queue have their turn; the same plan goes on with it


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

    def __init__(self, by_user: AbstractSet[str] = frozenset()) -> None:
        self.classes: dict[Hashable, WaitingClass] = {}
        self.by_user = by_user  # the queues in which each user has classes of his own
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

    def unit(self, rank: Rank) -> Unit | None:
        """The unit of this rank that waits here."""
        found = self._entries.get(rank)
        return None if found is None else self.classes[found[1]].units[rank]

    def kind_of(self, unit: Unit) -> Hashable:
        """Under which kind a unit waits here."""
        return (unit.kind, unit.job.user) if unit.job.queue in self.by_user else unit.kind

    def class_of(self, unit: Unit) -> WaitingClass | None:
        return self.classes.get(self.kind_of(unit))

    def divided(self, by_user: AbstractSet[str]) -> Waiting:
        """The same units, with classes for each user in these queues."""
        other = Waiting(by_user)
        other._count = self._count  # numbers are never given again
        for waiting_class in self.classes.values():
            for unit in waiting_class.units.values():
                other.add(unit)
        return other

    def add(self, unit: Unit) -> None:
        """Put a unit in its place; one that already waits moves if its kind has changed."""
        kind = self.kind_of(unit)
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
        other = Waiting(self.by_user)
        other.classes, other._entries, other._count = dict(self.classes), dict(self._entries), self._count
        kinds = {self._entries[unit.rank][1] for unit in (*without, *added) if unit in self}
        for kind in kinds | {self.kind_of(unit) for unit in added}:
            if kind in self.classes:
                other.classes[kind] = self.classes[kind].copied()
        for unit in without:
            other.discard(unit)
        for unit in added:
            other.add(unit)
        return other
