"""One attempt as its runner knows it, from the order to start it until its end is acknowledged."""

from __future__ import annotations

from phalanx.core.model.orders import Phase, Roll, Start
from phalanx.core.model.status import Why

LATE_S = 1.0  # how long after its instant an attempt surely does not start any more


class Held:
    """An attempt on this node. Instants are the runner's own, of a clock that does not step, unless it says so."""

    __slots__ = (
        "deadline", "go_by", "grace_s", "lane", "may_go", "phase", "roll", "since", "start", "start_by", "started_at",
        "stopping",
    )  # fmt: skip

    def __init__(self, start: Start | None, lane: int, phase: Phase, roll: Roll | None = None) -> None:
        self.start = start  # None if an earlier life of this runner was told
        self.roll = roll
        self.lane = lane
        self.phase = phase
        self.start_by: float | None = None  # the keeper does not start it, nor get it ready, after this
        self.go_by: float | None = None  # of a member: nor does it go after this
        self.started_at: float | None = None  # by the wall clock, to be shown
        self.since: float | None = None  # the same instant, to measure with
        self.deadline: float | None = None
        self.grace_s = 0.0
        self.may_go = False  # the word to go has come
        self.stopping: Why | None = None

    @property
    def is_member(self) -> bool:
        """True if it is known to be a member of a gang."""
        return self.phase == Phase.READY or (self.start is not None and self.start.formation > 0)

    def can_start(self, now: float) -> bool:
        """False once it has not started by its instant: then it never will."""
        by = self.go_by if self.phase == Phase.READY or self.may_go else self.start_by
        return by is None or now <= by + LATE_S
