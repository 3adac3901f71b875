"""What placement receives and what it proposes.

A `Snapshot` is the cluster as placement may see it: it reads the live columns, and whatever it tries in a
draft it undoes. A `Plan` is a proposal: each placement goes back to the cluster and is checked again.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from phalanx.core.model.ids import JobId
from phalanx.core.model.queue import Queues
from phalanx.core.model.resources import Grant
from phalanx.core.model.score import Score
from phalanx.core.model.table import NodeTable
from phalanx.core.model.tenants import TenantKey, Tenants
from phalanx.core.model.waiting import Waiting

Backfill = Literal["easy", "none"]


class Snapshot:
    """Nodes, who holds places on them, and who waits, at one instant. `gain` grows whenever room may have appeared."""

    __slots__ = ("gain", "nodes", "now", "queues", "tenants", "waiting")

    def __init__(
        self, nodes: NodeTable, waiting: Waiting, gain: int, tenants: Tenants, queues: Queues, now: float
    ) -> None:
        self.nodes = nodes
        self.waiting = waiting
        self.gain = gain
        self.tenants = tenants
        self.queues = queues
        self.now = now


class Policy(Struct, frozen=True):
    """The choices an operator may make about placement."""

    score: Score = "pack"  # which node is offered a task first
    placements_max: int = 2048  # per plan, so that a turn stays short
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
    """The proposal. `more` says that the pass was cut short and should go on."""

    placements: list[Placement]
    more: bool = False
    gang_placements: list[GangPlacement] = []
