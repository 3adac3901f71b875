"""Clocks for tests: one that only the test moves, and the machine's clock set forward by the test."""

from __future__ import annotations

from phalanx.clock import SteadyClock


class ManualClock:
    """Stands still until the test sets `at`."""

    def __init__(self, at: float = 1000.0) -> None:
        self.at = at

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


class ForwardClock(SteadyClock):
    """The machine's clock, of which the test sets the wall time forward by `ahead_s`; what measures leases goes on."""

    ahead_s = 0.0

    def now(self) -> float:
        return super().now() + self.ahead_s


class JumpingClock(ForwardClock):
    """Both times are set forward, as they look to a process that was paused."""

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s
