"""The pace of long reads: pieces of a few milliseconds, one in each round of the event loop.

Between two pieces everything else that is ready has its turn: what runners say, cancels and submits. However many
lists are asked for at once, the others wait for one piece and not for one list.
"""

from __future__ import annotations

import asyncio
from collections import deque

from phalanx.clock import Clock

PIECE_S = 0.002


class TimeSlices:
    """Hands out pieces of the loop, first come first served."""

    def __init__(self, clock: Clock, piece_s: float = PIECE_S) -> None:
        self._clock = clock
        self._piece_s = piece_s
        self._line: deque[asyncio.Future[None]] = deque()
        self._is_taken = False  # somebody has this round's piece

    async def turn(self) -> TimeSlice:
        """Wait for a piece; whoever has one works until it says that it `is_over`, and then asks for the next."""
        loop = asyncio.get_running_loop()
        if self._is_taken:
            mine: asyncio.Future[None] = loop.create_future()
            self._line.append(mine)
            await mine
        else:
            self._is_taken = True
            loop.call_soon(self._next)
        return TimeSlice(self._clock, self._clock.monotonic() + self._piece_s)

    def _next(self) -> None:
        """One round later: the next in line, who is woken by the loop in the round after this one."""
        while self._line:
            first = self._line.popleft()
            if not first.done():
                first.set_result(None)
                asyncio.get_running_loop().call_soon(self._next)
                return
        self._is_taken = False


class TimeSlice:
    """A moment of the loop."""

    __slots__ = ("_clock", "_ends_at")

    def __init__(self, clock: Clock, ends_at: float) -> None:
        self._clock = clock
        self._ends_at = ends_at

    @property
    def is_over(self) -> bool:
        return self._clock.monotonic() >= self._ends_at
