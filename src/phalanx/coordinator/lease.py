"""A term by its holder's own clock: until when the office is surely ours. Arithmetic, no clock and no store.

A lease counts from when its renewal was sent: the store counts from when it arrived, which is later, so we stop
before anybody else may begin. The last twentieth is not used at all, because no two clocks run at the same speed.
The epoch, not this, keeps a late writer from doing harm; this keeps one who was paused from speaking.
"""

from __future__ import annotations

UNUSED = 1 / 20
RENEW_AFTER = 1 / 3
RETRY_AFTER = 1 / 12  # after a renewal that failed


class Term:
    """One term of one coordinator. Instants are readings of a monotonic clock that counts suspension."""

    def __init__(self, epoch: int, lease_s: float, sent_at: float) -> None:
        self.epoch = epoch
        self.lease_s = lease_s
        self.sent_at = sent_at  # of the newest election or renewal that was answered
        self.tried_at = sent_at  # of the newest one that was sent

    @property
    def until(self) -> float:
        return self.sent_at + self.lease_s * (1 - UNUSED)

    def holds(self, now: float) -> bool:
        """Whether nobody else can have taken the office yet."""
        return now < self.until

    def tries(self, now: float) -> None:
        """A renewal is sent."""
        self.tried_at = now

    def renewed(self, sent_at: float) -> None:
        """The renewal sent at `sent_at` was answered. Answers may come in any order."""
        self.sent_at = max(self.sent_at, sent_at)

    def renew_at(self) -> float:
        """When the next renewal is due: after a third of the lease, sooner if the last try failed."""
        if self.tried_at > self.sent_at:
            return self.tried_at + self.lease_s * RETRY_AFTER
        return self.sent_at + self.lease_s * RENEW_AFTER
