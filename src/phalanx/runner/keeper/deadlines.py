"""Deadlines: the end of a stop's grace, the end of the runner's lease, and the regular look at the logs.

They are kept here, not in the runner, so that they hold when the runner is dead or hangs.
"""

from __future__ import annotations

import signal

from .clock import since_boot as now

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .attempt import Attempt
    from .roster import Roster
    from .trim import Trimmer

TICK_S = 1.0
FENCE_GRACE_S = 2.0


class Deadlines:
    """What has to be done at which instant, in seconds since boot."""

    def __init__(self, roster: Roster, trimmer: Trimmer) -> None:
        self._roster = roster
        self._trimmer = trimmer
        self._kill_at: dict[str, float] = {}
        self._lease_until: float | None = None
        self._tick_at = 0.0
        self._next_at = 0.0  # the earliest of them all

    def stop(self, attempt: Attempt, grace_s: float) -> None:
        """SIGTERM now, SIGKILL after the grace. A second stop can only shorten the first one's grace."""
        kill_at = now() + max(0.0, grace_s)
        if attempt.kill_at is None:
            attempt.kill_at = kill_at
            # A paused process takes SIGTERM only once it is continued.
            self._roster.signal(attempt, signal.SIGTERM, signal.SIGCONT)
        attempt.kill_at = self._kill_at[attempt.key] = min(attempt.kill_at, kill_at)
        self._next_at = 0.0

    def renew_lease(self, seconds_left: float, until: float | None) -> None:
        """Both are told, because the telling may be late: a runner may hang, and must not lengthen it by that."""
        end = now() + seconds_left
        self._lease_until = end if until is None else min(end, until)
        self._next_at = 0.0

    def lease_is_over(self) -> bool:
        """Without any lease there is no fence: the runner has not been promised anything yet."""
        return self._lease_until is not None and now() >= self._lease_until

    def wait_s(self) -> float:
        return max(0.0, self._next_at - now())

    def keep(self) -> None:
        """Do what is due, and find out what is due next."""
        at = now()
        if at < self._next_at:
            return
        if self.lease_is_over():
            self._fence()
        for key in [key for key, kill_at in self._kill_at.items() if at >= kill_at]:
            self._kill(key, at)
        if at >= self._tick_at:
            self._tick_at = at + TICK_S
            for attempt in self._roster.leaders.values():
                self._trimmer.trim(attempt)
        upcoming = [self._tick_at, *self._kill_at.values()]
        if self._lease_until is not None and not self.lease_is_over():
            upcoming.append(self._lease_until)
        self._next_at = min(upcoming)

    def _fence(self) -> None:
        for attempt in [*self._roster.leaders.values()]:
            if attempt.reason is None:
                attempt.reason = "fenced"
                self.stop(attempt, FENCE_GRACE_S)

    def _kill(self, key: str, at: float) -> None:
        attempt = self._roster.running(key)
        if attempt is None:
            del self._kill_at[key]
        else:
            self._roster.signal(attempt, signal.SIGKILL)
            self._kill_at[key] = at + TICK_S  # once more, should it have forked past the signal
