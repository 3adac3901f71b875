"""Announces to the coordinator that the runner stops, and waits for its answers, but not for long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from phalanx.clock import Clock
from phalanx.runner.link import Wire
from phalanx.runner.turn import RunnerEngine

GOODBYE_WITHIN_S = 3.0
REPORT_WITHIN_S = 5.0  # how long a coordinator may take to acknowledge the last ends
LOOK_S = 0.02


class Leaving:
    """The last messages on the current connection."""

    def __init__(
        self,
        engine: RunnerEngine,
        clock: Clock,
        connection: Callable[[], Wire | None],
        flush: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._connection = connection
        self._flush = flush

    async def announce_stop(self, keep_s: float) -> bool:
        """Whether the coordinator knows that we stop, and has granted what was asked for."""
        connection = self._connection()
        if connection is None or not self._engine.welcomed:
            return False
        connection.send(self._engine.leave(self._clock.now(), keep_s))
        await self._until(lambda: self._engine.left is not None, GOODBYE_WITHIN_S)
        return self._engine.left is not None and self._engine.left.keep_s >= keep_s

    async def reported(self) -> None:
        """Wait until every end is acknowledged."""
        await self._until(lambda: not self._engine.state.outbox, REPORT_WITHIN_S)

    async def _until(self, condition: Callable[[], bool], within_s: float) -> None:
        """Poll until the condition holds; the connection and the keeper are served meanwhile."""
        until = self._clock.monotonic() + within_s
        while not condition() and self._connection() is not None and self._clock.monotonic() < until:
            self._flush()
            await asyncio.sleep(LOOK_S)
