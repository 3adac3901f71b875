"""The keeper's voice: what it has to say to the runner, and what it writes down on the way.

A word is an answer as JSON text. A fact is told: it goes into the journal and to the runner. Other answers
are only said. The news that an attempt started keeps until the next turn, at most 2 ms: with a short task its
end is then in the same frame, which saves both sides a third of their messages.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .journal import Journal
    from .wire import Link

PATIENCE_S = 0.002


class Voice:
    """Speaks over whichever connection there is. Without one, words are dropped: a listing tells it all."""

    def __init__(self, journal: Journal) -> None:
        self.link: Link | None = None
        self.kept = False  # whether words wait for the next turn
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

    def speak(self) -> None:
        """Send what was said in this turn, unless it can wait for the next; raises Lost."""
        if self._words and not self._urgent and not self.kept:
            self.kept = True
            return
        words, self._words = self._words, []
        self._urgent = self.kept = False
        if self.link is not None and (words or self.link.blocked):
            self.link.send(words)
