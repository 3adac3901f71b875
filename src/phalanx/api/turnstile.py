"""The turnstile before what is costly: so many at once, the next ones wait a moment, and are then told to come again.

A request that waits here costs nothing: its body has not been read. So however many submit at once, cancels, questions
and what runners say find a coordinator that has time for them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from phalanx.errors import TooMany

GOLDEN = 0.6180339887  # its multiples are spread evenly, however many there are


class Turnstile:
    """Places inside, and a line in front, first come first served."""

    def __init__(self, inside: int, line: int, patience_s: float) -> None:
        self._free = inside
        self._line_max = line
        self._patience_s = patience_s
        self._line: deque[asyncio.Future[None]] = deque()
        self._came = 0

    @asynccontextmanager
    async def passed(self) -> AsyncIterator[None]:
        """Within this block a place is ours; TooMany if there was none in time."""
        if self._free:
            self._free -= 1
        else:
            await self._stand_in_line()
        try:
            yield
        finally:
            self._leave()

    async def _stand_in_line(self) -> None:
        if len(self._line) >= self._line_max:
            raise _full()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            async with asyncio.timeout(self._patience()):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():  # the place came at the same moment: it is another's now
                self._leave()
            elif turn in self._line:
                self._line.remove(turn)
            if isinstance(error, TimeoutError):
                raise _full() from None
            raise

    def _patience(self) -> float:
        """From half to one and a half: a thousand who came at once must not all be sent away, and be back, at once."""
        self._came += 1
        return self._patience_s * (0.5 + self._came * GOLDEN % 1)

    def _leave(self) -> None:
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


def _full() -> TooMany:
    return TooMany(
        "more is submitted than can be taken in just now", reason="TooManySubmits", retry_after_s=1.0
    )
