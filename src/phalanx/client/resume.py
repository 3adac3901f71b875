"""Going on after a cut: how often to try again, and where a log reader stood. No I/O; both clients use it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from phalanx.api.schema.documents import Stream
from phalanx.api.schema.jobs import gap_mark
from phalanx.client import calls
from phalanx.client.calls import Call
from phalanx.errors import PhalanxError, Unavailable

PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 5.0, 5.0, 10.0, 10.0, 10.0, 10.0)

SEARCH_WORTH = 4  # pauses that a search for a leader in vain has taken already
CUT = frozenset({"Dropped", "Stopping", "TimedOut"})


class RetryDelays:
    """How long to wait before each next try. What arrives makes it fresh; when it is used up, we give up."""

    def __init__(self) -> None:
        self._left: Iterator[float] = iter(())
        self._met = False

    def renew(self) -> None:
        self._left = iter(PAUSES_S)

    def meet(self, error: Unavailable) -> None:
        """An answer that was cut proves that somebody was there, and that is worth waiting for."""
        if error.reason in CUT and not self._met:
            self._met = True
            self.renew()

    def next(self, error: PhalanxError) -> float | None:
        """Seconds to wait, or None to give up. Before the first success there is nothing to go on with."""
        for _ in range(SEARCH_WORTH if error.reason == "NoLeader" else 0):
            next(self._left, None)
        return next(self._left, None)


class LogPosition:
    """Where a reader of a log stands, so that it can ask for exactly what is missing."""

    def __init__(
        self,
        id: str,
        stream: Stream,
        attempt: int | None,
        offset: int | None,
        lines: int | None,
        *,
        follow: bool,
    ) -> None:
        self._id = id
        self._stream = stream
        self._attempt = attempt
        self._offset = offset
        self._lines = lines
        self._follow = follow
        self._size = 0
        self._moved = False  # since the last question

    def call(self) -> Call[None]:
        return calls.logs(
            self._id, self._stream, self._attempt, self._offset, self._lines, follow=self._follow
        )

    def begin(self, headers: Mapping[str, str]) -> bytes:
        """Note what the answer says of itself: from now on the place is exact. The mark of a gap before it."""
        self._offset, self._lines = int(headers.get("x-phalanx-offset", 0)), None
        self._size = int(headers.get("x-phalanx-size", 0))
        attempt = int(headers.get("x-phalanx-attempt", 0))
        self._attempt = attempt or self._attempt
        gap = int(headers.get("x-phalanx-gap", 0))
        self._moved = gap > 0
        return gap_mark(gap) if gap else b""

    def advance(self, piece: bytes) -> None:
        self._offset = (self._offset or 0) + len(piece)
        self._moved = self._moved or bool(piece)

    def is_at_end(self) -> bool:
        """An answer has ended: whether that was all. It also ends before what was not kept, so we ask again.

        Whoever follows is at the end when it asked again and nothing came.
        """
        return not self._moved or (not self._follow and (self._offset or 0) >= self._size)
