"""How often others had their turn in a loop while something long was done in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """Of the event loop."""

    def __init__(self) -> None:
        self.count = 0
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_soon(self._came)

    def stop(self) -> None:
        self._next.cancel()

    def _came(self) -> None:
        self.count += 1
        self._next = self._loop.call_soon(self._came)


@asynccontextmanager
async def counted_turns() -> AsyncIterator[Turns]:
    """Count them within this block."""
    turns = Turns()
    try:
        yield turns
    finally:
        turns.stop()
