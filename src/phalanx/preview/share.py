"""What one job gets out of a pass, and what keeps it from getting more."""

from __future__ import annotations

from msgspec import Struct

from phalanx.api.schema.apply import MUST_WAIT, NEVER, NOW
from phalanx.api.schema.jobs import DomainSlots, NodeReasons
from phalanx.core.cluster.jobs import JobState
from phalanx.core.explain.nodes import Change
from phalanx.core.model.plan import GangPlacement, Placement
from phalanx.core.model.reason import Reason, Tier


class Doubt(Struct):
    """One reason, for how many tasks it speaks, and the evidence. `waits` is false for what is only worth telling."""

    reason: Reason
    tasks: int = 0
    waits: bool = True
    domains: list[DomainSlots] = []
    nodes: list[NodeReasons] = []
    fix: Change | None = None
    expected_at: float | None = None


class Share:
    """A job that was asked about, or one that goes before it. The first doubt is the dominant one."""

    __slots__ = ("alone", "doubts", "gang_placement", "job", "never")

    def __init__(self, job: JobState, never: Reason | None = None) -> None:
        self.job = job
        self.never = never  # why it would be refused at once
        self.alone: list[Placement] = []  # tasks placed one by one
        self.gang_placement: GangPlacement | None = None  # members placed together
        self.doubts: list[Doubt] = []

    @property
    def placements(self) -> list[Placement]:
        return [*(self.gang_placement.members if self.gang_placement else ()), *self.alone]

    @property
    def victims(self) -> tuple[tuple[str, int], ...]:
        return self.gang_placement.victims if self.gang_placement else ()

    @property
    def waits(self) -> bool:
        """Whether its members start only when others have left."""
        return self.gang_placement is not None and self.gang_placement.is_promise

    @property
    def exit(self) -> int:
        """0 now, 3 must wait, 4 never.

        With evictions it is still now: the scheduler acts at once, and nobody else has to do anything.
        """
        waiting = [doubt.reason.tier for doubt in self.doubts if doubt.waits]
        if not waiting:
            return NOW
        return NEVER if waiting[0] is Tier.NEVER else MUST_WAIT
