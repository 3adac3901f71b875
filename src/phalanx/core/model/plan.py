"""What placement receives and what it proposes.

A `Snapshot` is the cluster as placement may see it: it reads the live columns, and whatever it tries in a
draft it undoes. A `Plan` is a proposal: each placement goes back to the cluster and is checked again. A `PlanMemory`
is what one plan leaves for the next, so that a pass over the queue costs what has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Literal

from msgspec import Struct, field, structs

from phalanx.core.model.bindings import NO_DISPATCH, DispatchView
from phalanx.core.model.dispatch import DispatchNote
from phalanx.core.model.job import JobId, QueueUser
from phalanx.core.model.queues import Queues
from phalanx.core.model.resources import Grant
from phalanx.core.model.score import Score
from phalanx.core.model.table import NodeTable
from phalanx.core.model.tenants import TenantKey, Tenants
from phalanx.core.model.waiting import Block, Rank, Waiting, WaitingClass

Backfill = Literal["easy", "none"]
_NOTES_MIN = 64

FailedOn = Callable[[JobId, int], str | None]


class ClassNote(Struct, frozen=True, gc=False):
    """What plans found out about one waiting class, up to the unit with the number `last_entry`."""

    last_entry: int
    blocked_at: int = -1  # the snapshot's gain when the class was last passed over
    blocked_by: Block = Block.ROOM
    held_behind: Rank | None = None  # if it is held back: whom it would have delayed
    hopeless_at: int = -1  # the snapshot's gain when it would not have fitted with every tenant gone
    evict_at: float = 0.0  # before this it need not look again whom to evict

    def waits_for_room(self, gain: int) -> bool:
        """Whether it found no room, and would find some if others left."""
        return self.blocked_at == gain and self.blocked_by is Block.ROOM and self.hopeless_at != gain


class KeptNodes(Struct, frozen=True):
    """The nodes that are kept for a unit until it starts; of a group, until the task at `position` does."""

    nodes: tuple[str, ...]
    entry: int  # of the unit in the queue: one that comes back is another
    position: int = -1


class PlanMemory:
    """What plans remember from one to the next. A plan reads the one it is given and returns another."""

    __slots__ = ("discounted", "failed", "held", "kept", "notes", "refusals", "waits")

    def __init__(self) -> None:
        self.notes: dict[int, ClassNote] = {}  # by the number of the class
        self.kept: dict[Rank, KeptNodes] = {}
        self.failed: dict[
            int, tuple[float, str]
        ] = {}  # classes that no plan looks at: until when, and the error
        # Of fair queues: what users held when the last plan was made; by class, the first unit of it with its entry
        # and since when it waits; and when something was given to a user last because it had waited for long.
        self.held: dict[QueueUser, tuple[int, ...]] = {}
        self.waits: dict[int, tuple[Rank, int, float]] = {}
        self.discounted: dict[QueueUser, float] = {}
        self.refusals = 0  # of proposals: what they would have taken may be free, so full classes look again

    def of(self, kind: WaitingClass) -> ClassNote:
        """What is known of a class; that it found no room counts for those who waited then alone."""
        note = self.notes.get(kind.number)
        if note is None:
            return ClassNote(kind.last_entry)
        if note.last_entry != kind.last_entry:
            return structs.replace(note, last_entry=kind.last_entry, blocked_at=-1, evict_at=0.0)
        return note

    def look_later(self, kind: WaitingClass, at: float) -> None:
        """Before this it need not look again whom to evict for it."""
        self.notes[kind.number] = structs.replace(self.of(kind), evict_at=at)

    def copied(self, waiting: Waiting) -> PlanMemory:
        """The same for another plan; what is about nobody who waits now is forgotten."""
        other = PlanMemory()
        other.refusals, other.notes, other.failed = self.refusals, self.notes.copy(), self.failed.copy()
        if self.kept:
            other.kept = {rank: kept for rank, kept in self.kept.items() if waiting.entry(rank) == kept.entry}
        other.held, other.waits, other.discounted = self.held, self.waits, self.discounted
        if len(other.notes) > 2 * len(waiting.classes) + _NOTES_MIN:
            numbers = {kind.number for kind in waiting.classes.values()}
            other.notes = {number: note for number, note in self.notes.items() if number in numbers}
            other.failed = {number: why for number, why in self.failed.items() if number in numbers}
        return other

    def next_look(self, waiting: Waiting, now: float) -> float:
        """When somebody who was passed over may look for victims again, or is planned for again; infinite: never."""
        due = [until for until, _ in self.failed.values() if until > now]
        for kind in waiting.classes.values():
            note = self.notes.get(kind.number)
            if note is not None and note.evict_at > now and note.last_entry == kind.last_entry:
                due.append(note.evict_at)
        return min(due, default=inf)


class Snapshot:
    """Nodes, who holds places on them, and who waits, at one instant; and what the last plan remembered.

    `gain` grows whenever room may have appeared.
    """

    __slots__ = (
        "dispatch",
        "failed_on",
        "gain",
        "gone",
        "memory",
        "nodes",
        "now",
        "queues",
        "tenants",
        "waiting",
    )

    def __init__(
        self, nodes: NodeTable, waiting: Waiting, gain: int, tenants: Tenants, queues: Queues, now: float,
        memory: PlanMemory | None = None, dispatch: DispatchView = NO_DISPATCH,
    ) -> None:  # fmt: skip
        self.nodes = nodes
        self.waiting = waiting
        self.gain = gain
        self.tenants = tenants
        self.queues = queues
        self.now = now
        self.memory = PlanMemory() if memory is None else memory
        self.dispatch = dispatch
        self.failed_on: FailedOn = lambda _job, _position: None  # the node where the task failed just now
        self.gone: frozenset[TenantKey] = frozenset()  # tenants that have left in the draft around this plan

    def with_queue(self, waiting: Waiting) -> Snapshot:
        """A snapshot of one's own, with another queue, for a plan that is only looked at."""
        other = Snapshot(
            self.nodes, waiting, self.gain, self.tenants, self.queues, self.now, self.memory, self.dispatch
        )
        other.failed_on = self.failed_on
        return other


class Policy(Struct, frozen=True):
    """The choices an operator may make about placement."""

    score: Score = "pack"  # which node is offered a task first
    placements_max: int = 2048  # per plan, so that a turn stays short,
    openings_max: int = 1024  # and lanes that are opened: those cost more than tasks that queue in one
    prefetch_s: float = 0.1  # how much work may queue in a lane behind a running attempt
    prefetch_max: int = 32
    backfill: Backfill = "easy"  # none: nobody passes the first in the queue that finds no room
    assumed_run_s: float = 600.0  # how much longer, at the least, one without a time limit is taken to stay
    evicts: bool = True  # whether urgent jobs may take places from less urgent ones
    evictions_max: int = 4  # how often one plan works out whom to evict, so that a turn stays short
    evict_every_s: float = 1.0  # how soon a class that found nobody to evict looks again


class Placement(Struct, frozen=True, gc=False):
    """One task onto one node. `lane` None opens a new lane with `grant`; otherwise the task queues in that lane."""

    job: JobId
    position: int
    node: str
    grant: Grant
    lane: int | None = None
    note: DispatchNote | None = None  # what the choice of the node rested on, if a mode made it
    merged: tuple[JobId, ...] = ()  # jobs that run as a part of it


class GangPlacement(Struct, frozen=True):
    """Members of one job placed together: all of this happens, or none of it.

    With victims it is a promise: they are asked to leave, and the members start when the last of them has gone.
    `displaced` names jobs whose own promises give way; who was leaving for them is `awaited` for this one now.
    """

    job: JobId
    members: tuple[Placement, ...]
    victims: tuple[TenantKey, ...] = ()  # the lanes that have to be left
    displaced: tuple[JobId, ...] = ()
    trigger: int = 0  # the position of the first member that found no room
    awaited: tuple[TenantKey, ...] = ()  # lanes that are being left already, which the members need as well

    @property
    def is_promise(self) -> bool:
        """Whether the members have to wait until others have left."""
        return bool(self.victims or self.displaced or self.awaited)


class Plan(Struct, frozen=True):
    """The proposal, and what the next plan has to know. `more` says that the pass was cut short and should go on."""

    placements: list[Placement]
    more: bool = False
    gang_placements: list[GangPlacement] = []
    deferred: list[JobId] = []  # jobs that begin to wait for their sticky node
    memory: PlanMemory = field(default_factory=PlanMemory)

    @property
    def opened(self) -> int:
        """How many lanes it opens."""
        alone = sum(each.lane is None for each in self.placements)
        return alone + sum(len(each.members) for each in self.gang_placements)
