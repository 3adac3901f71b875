"""What placement receives and what it proposes.

A `Snapshot` is the cluster as placement may see it: it reads the live columns, and whatever it tries in a
draft it undoes. A `Plan` is a proposal: each placement goes back to the cluster and is checked again.
"""

from __future__ import annotations

from msgspec import Struct

from phalanx.core.model.ids import JobId
from phalanx.core.model.resources import Grant
from phalanx.core.model.table import NodeTable
from phalanx.core.model.waiting import Waiting


class Snapshot:
    """Nodes and waiting jobs at one instant. `gain` grows whenever room may have appeared."""

    __slots__ = ("gain", "nodes", "waiting")

    def __init__(self, nodes: NodeTable, waiting: Waiting, gain: int) -> None:
        self.nodes = nodes
        self.waiting = waiting
        self.gain = gain


class Policy(Struct, frozen=True):
    """The choices an operator may make about placement."""

    placements_max: int = 2048  # per plan, so that a turn stays short
    prefetch_s: float = 0.1  # how much work may queue in a lane behind a running attempt
    prefetch_max: int = 32


class Placement(Struct, frozen=True):
    """One task onto one node. `lane` None opens a new lane with `grant`; otherwise the task queues in that lane."""

    job: JobId
    position: int
    node: str
    grant: Grant
    lane: int | None = None


class Plan(Struct, frozen=True):
    """The proposal. `more` says that the pass was cut short and should go on."""

    placements: list[Placement]
    more: bool = False
