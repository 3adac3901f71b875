"""The keeper's voice: what it has to say to the runner, and what it writes down on the way.

A fact is told: encoded once, it goes into the journal and to the runner, if one is connected. Other answers
are only said. The news that an attempt started keeps until the next turn, at most 2 ms: with a short task
its end is then in the same frame, which saves both sides a third of their messages.
"""

from __future__ import annotations

from .journal import encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .journal import Journal
    from .wire import Link

PATIENCE_S = 0.002


class Voice:
    """Speaks over whichever connection there is. Without one, words are dropped: a listing tells it all."""

    def __init__(self, journal: Journal) -> None:
        self.link: Link | None = None
        self._journal = journal
        self._words: list[str] = []
        self._urgent = False
        self._kept = False

    def tell(self, fact: tuple[Any, ...], urgent: bool = True) -> None:
        """Write it down, and say it."""
        text = encode(fact)
        self._journal.note(text)
        self._add(text, urgent)

    def say(self, answer: tuple[Any, ...]) -> None:
        if self.link is not None:
            self._add(encode(answer), True)

    def _add(self, text: str, urgent: bool) -> None:
        if self.link is not None:
            self._words.append(text)
            self._urgent |= urgent

    def wait_s(self) -> float | None:
        return PATIENCE_S if self._kept else None

    def speak(self) -> None:
        """Send what was said in this turn, unless it can wait for the next; raises Lost."""
        if self.link is None:
            self._words = []
        elif self._words and not self._urgent and not self._kept:
            self._kept = True
            return
        else:
            words, self._words = self._words, []
            self.link.send(words)
        self._urgent = self._kept = False
