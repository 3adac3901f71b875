"""The roster: the processes of this node's attempts, and how to reach the whole tree of one.

It knows who leads and who is dying, by pid. Which attempts there are and what becomes of them is in `table.py`.
"""

from __future__ import annotations

from . import tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .attempt import KeptAttempt
    from .slots import AttemptSlots
    from .watchdog import Watchdog


class ProcessTable:
    """The attempts by the pid of their leader while that is alive, and those whose tree is dying."""

    def __init__(self, watchdog: Watchdog, slots: AttemptSlots) -> None:
        self.watchdog = watchdog
        self.slots = slots
        self.leaders: dict[int, KeptAttempt] = {}  # until the leader is reaped
        self.ending: list[KeptAttempt] = []  # the leader is gone, some of its tree may not be
        self.orphans = tree.Orphans(watchdog, slots)

    def signal(self, attempt: KeptAttempt, *signums: int) -> None:
        """Send signals, in this order, to everything that belongs to a running attempt."""
        orphans = self.orphans.find(self.leaders)
        tree.send(attempt, [pid for pid, key in orphans.items() if key == attempt.key], *signums)
