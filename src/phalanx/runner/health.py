"""Whether the keeper works: it is pinged every second, and a missing answer is counted in looks, not in time.

So a runner that was frozen itself blames nothing when it resumes. The heartbeats report what is found to the
coordinator (`turn.py`); the loop replaces a keeper that is gone, or has been silent for longer than a lease.
"""

from __future__ import annotations

import asyncio
from typing import Any

from phalanx.runner.processes import Processes

LOOK_S = 0.2  # between two looks
ASK_AFTER = 5  # looks after an answer until the next ping
SILENT_AFTER = 15  # looks without an answer
ENDS_S = 3.0  # beyond the lease: by then the watchdog has ended what the keeper ran
GONE_AFTER = 10  # looks without a keeper: another one is usually there sooner
SILENT = "its keeper does not answer; is that process stopped?"
GONE = "its keeper is gone, and another one is not there yet"


class KeeperHealth:
    """What keeps us from starting tasks; empty while the keeper answers."""

    def __init__(self) -> None:
        self.trouble = ""
        self._keeper: Processes | None = None
        self._answer: asyncio.Future[Any] | None = None
        self._looks = 0  # since the last ping, answer or loss
        self._unreached_s = 0.0  # how long we have tried in vain to connect to one that does not answer

    def look(self, keeper: Processes | None) -> str:
        """Ping, or check whether it has answered; to be called every LOOK_S."""
        if keeper is not self._keeper:
            self._keeper, self._answer, self._looks = keeper, None, 0
        self._looks += 1
        if keeper is None:
            if self._looks > GONE_AFTER and not self.trouble:
                self.trouble = GONE
        elif self._answer is not None and self._answer.done():
            self._note(self._answer)
            self._answer, self._looks = None, 0
        elif self._answer is not None and self._looks > SILENT_AFTER:
            self.trouble = SILENT
        elif self._answer is None and self._looks >= ASK_AFTER:
            self._answer, self._looks = keeper.ping(), 0
        return self.trouble

    def is_past(self, lease_s: float) -> bool:
        """Whether the keeper has just been silent for so long, once more, that what it ran is over.

        Then another one may take its place.
        """
        return self._answer is not None and self._looks % round((lease_s + ENDS_S) / LOOK_S) == 0

    def is_unreached(self, tried_s: float, lease_s: float) -> bool:
        """A keeper did not answer a new connection for so long; returns whether it is past, as above."""
        self._unreached_s += tried_s
        if self._unreached_s < lease_s + ENDS_S:
            return False
        self._unreached_s = 0.0
        return True

    def failed(self, error: Exception) -> None:
        """There is no keeper, and none can be started."""
        self.trouble = f"its keeper is gone, and another one cannot be started: {error}"

    def works(self) -> None:
        """There is a keeper, and it has answered."""
        self.trouble, self._unreached_s = "", 0.0

    def _note(self, answer: asyncio.Future[Any]) -> None:
        if not answer.cancelled() and answer.exception() is None:
            self.trouble = ""
