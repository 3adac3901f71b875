"""What a stranger learns about readiness: yes or no, and at most one question a second reaches the store for it.

Probes and load balancers show no token, so anybody may ask. However many do, the same answer serves them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from phalanx.errors import PhalanxError, Unavailable

FRESH_S = 1.0


class Readiness:
    """Whether the whole way to the store and back works."""

    def __init__(
        self, ready: Callable[[], Awaitable[None]], within_s: float, fresh_s: float = FRESH_S
    ) -> None:
        """`ready` raises unless it does, or takes longer than `within_s`."""
        self._ready = ready
        self._within_s = within_s
        self._fresh_s = fresh_s
        self._question: asyncio.Task[bool] | None = None
        self._answered_at = 0.0

    async def require(self) -> None:
        """Ask now, and raise whatever is wrong, in full."""
        try:
            async with asyncio.timeout(self._within_s):
                await self._ready()
        except TimeoutError:
            raise Unavailable(f"no answer from the coordinator within {self._within_s:g} s") from None

    async def is_given(self) -> bool:
        """The answer of the moment. Whoever asks while the question is on its way waits for the same answer."""
        now = asyncio.get_running_loop().time()
        if self._question is None or (self._question.done() and now - self._answered_at >= self._fresh_s):
            self._question = asyncio.ensure_future(self._ask())
        return await asyncio.shield(self._question)

    async def _ask(self) -> bool:
        try:
            await self.require()
        except PhalanxError:
            return False
        else:
            return True
        finally:
            self._answered_at = asyncio.get_running_loop().time()
