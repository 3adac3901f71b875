"""The keeper's voice: what it has to say to the runner, and what it writes down on the way.

A word is an answer as JSON text. A fact is told: it goes into the journal and to the runner. Other answers
are only said. News that nobody waits for (a start, an end whose lane goes on) keep for a few milliseconds, so
that those of short tasks travel in one frame; waking the runner costs more than anything said to it.
"""

from __future__ import annotations

from .clock import since_boot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .journal import Journal
    from .wire import SocketLink

PATIENCE_S = 0.005


class Outbox:
    """Speaks over whichever connection there is. Without one, words are dropped: a listing tells it all."""

    def __init__(self, journal: Journal) -> None:
        self.link: SocketLink | None = None
        self.kept_since: float | None = None  # since when words wait for company
        self._journal = journal
        self._words: list[str] = []
        self._urgent = False

    def tell(self, word: str, urgent: bool = True) -> None:
        """Write it down, and say it."""
        self._journal.note(word)
        if self.link is not None:
            self._words.append(word)
            self._urgent |= urgent

    def say(self, word: str) -> None:
        if self.link is not None:
            self._words.append(word)
            self._urgent = True

    def hurry(self) -> None:
        """Whatever waits must wait no longer."""
        self._urgent = True

    def wait_s(self) -> float:
        """How long the words that wait may go on doing so."""
        return max(0.0, (self.kept_since or 0.0) + PATIENCE_S - since_boot())

    def speak(self) -> None:
        """Send what there is to say, unless it can wait a little; raises Lost."""
        if self._words and not self._urgent:
            if self.kept_since is None:
                self.kept_since = since_boot()
            if self.wait_s() > 0.0:
                return
        words, self._words = self._words, []
        self._urgent, self.kept_since = False, None
        if self.link is not None and (words or self.link.blocked):
            self.link.send(words)
