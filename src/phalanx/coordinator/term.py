"""How long a coordinator may believe that it leads, by its own clock."""

from __future__ import annotations

from phalanx.core.cluster.state import Timers

UNUSED = 1 / 20  # of a lease
RENEW_AFTER = 1 / 3
RETRY_AFTER = 1 / 12  # after a renewal that failed


def confirm_every_s(rules: Timers) -> float:
    """How often a coordinator that writes nothing has to ask the store whether it has been replaced.

    A successor gives every node a whole lease (T_lost) from its own beginning. What we let runners keep after
    that must be over by then, so an epoch may be believed only for a part of T_lost − T_self.
    """
    return (rules.lost_after_s - rules.self_fence_s) / 5


class Term:
    """One term by its own clock: until when it surely leads. Instants are monotonic and count suspension.

    A lease counts from when its renewal was sent. The store counts from when the renewal arrived, which is later, so a
    term ends here before another one may begin. The last twentieth is not used at all, because no two clocks run at the
    same speed. The epoch, not this, keeps a late writer from doing harm; this keeps a paused coordinator from
    answering.
    """

    def __init__(self, epoch: int, lease_s: float, sent_at: float) -> None:
        self.epoch = epoch
        self.lease_s = lease_s
        self.sent_at = sent_at  # of the newest election or renewal that was answered
        self.tried_at = sent_at  # of the newest one that was sent

    @property
    def until(self) -> float:
        return self.sent_at + self.lease_s * (1 - UNUSED)

    def holds(self, now: float) -> bool:
        """Whether no other coordinator can have been elected yet."""
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
