"""What the image of the whole state keeps of a node."""

from __future__ import annotations

from msgspec import Struct, field

from phalanx.core.model.health import WELL, NodeHealth
from phalanx.core.model.job import JobId
from phalanx.core.model.orders import AttemptKey
from phalanx.core.model.resources import Capacity, Grant


class NodeImage(Struct, array_like=True):
    name: str
    incarnation: str
    origin: str
    capacity: Capacity
    lost: bool
    drain_reason: str | None
    next_lane: int
    leftovers: list[AttemptKey]
    lanes: list[tuple[int, Grant, list[AttemptKey]]]
    address: str
    number: int | None = None  # None: its place among the nodes
    generation: int = 0
    lost_at: float | None = None
    failures: int = 0
    excluded_until: float | None = field(default=None, name="rests_until")
    trouble: str = ""
    leaving: bool = False
    kept_s: float = 0.0
    failed_users: tuple[str, ...] = ()
    failed_jobs: tuple[JobId, ...] = ()  # of older versions; not used any more
    exclusion_text: str = field(default="", name="rest_text")
    disabled_reason: str | None = None
    disabled_automatically: bool = False
    toggled_at: float | None = None
    idle_since: float | None = None
    health: NodeHealth = WELL
