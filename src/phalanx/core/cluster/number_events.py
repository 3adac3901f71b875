"""The event of the numbers that jobs and workflows are given."""

from __future__ import annotations

from phalanx.core.cluster.event_kinds import ClusterEvent

STEP = 100_000


class NumbersSkipped(ClusterEvent, frozen=True):
    """A backup was restored: numbers up to this one may have been given since it was made, and are not given again."""

    upto: int


def skipped_to(given: int) -> int:
    """Up to where numbers are skipped if so many were given when the backup was made.

    How many came after it nobody knows. As many as before it, rounded up to a round number, are enough unless the
    backup was of a cluster that had hardly begun and then got more than 100,000.
    """
    return (2 * given // STEP + 1) * STEP
