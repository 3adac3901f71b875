"""The roster: every attempt of this node, from its start until the runner has its exit and forgets it.

It knows who runs, who is dying and who is over, and can reach an attempt's whole tree. Who changes it:
`requests.py` for the runner, `endings.py` for children that ended, `deadlines.py` for time that passed.
"""

from __future__ import annotations

from . import tree
from .journal import remember

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .attempt import Attempt


class Roster:
    """The attempts by key, and by the pid of their leader while that is alive."""

    def __init__(self) -> None:
        self.attempts: dict[str, Attempt] = {}
        self.leaders: dict[int, Attempt] = {}  # until the leader is reaped
        self.ending: list[Attempt] = []  # the leader is gone, some of its tree may not be
        self.stopped: dict[str, None] = {}  # keys that must not start any more
        self.orphans = tree.Orphans()

    def add(self, attempt: Attempt) -> None:
        self.attempts[attempt.key] = self.leaders[attempt.pid] = attempt

    def running(self, key: str) -> Attempt | None:
        attempt = self.attempts.get(key)
        return attempt if attempt is not None and self.leaders.get(attempt.pid) is attempt else None

    def signal(self, attempt: Attempt, *signums: int) -> None:
        """Send signals, in this order, to everything that belongs to a running attempt."""
        orphans = self.orphans.find(self.leaders)
        tree.send(attempt, [pid for pid, key in orphans.items() if key == attempt.key], *signums)

    def never_start(self, key: str) -> None:
        remember(self.stopped, key)

    def forget(self, keys: list[str]) -> list[str]:
        """Drop those of the attempts that are over; which ones they were."""
        ended = [key for key in keys if key in self.attempts and self.attempts[key].exit is not None]
        for key in ended:
            del self.attempts[key]
        return ended
