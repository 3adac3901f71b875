"""The reports of a runner on their way to the coordinator: they gather for a moment and travel together.

One is urgent only when a lane would otherwise be idle. What is reported is decided by the state machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from phalanx.runner.link import Wire
from phalanx.runner.turn import RunnerEngine

GATHER_S, START_GATHER_S = 0.02, 0.005


class ReportSender:
    """Those of one runner."""

    def __init__(self, engine: RunnerEngine, wire: Callable[[], Wire | None]) -> None:
        """`wire` is the current connection, if there is one."""
        self._engine = engine
        self._wire = wire
        self._flush_at: asyncio.TimerHandle | None = None

    def flush_soon(self) -> None:
        """An end is sent at once if a lane is idle; a start may wait a little, its end may come with it."""
        if not (state := self._engine.state).fresh:
            return
        if state.is_urgent:
            self.flush(False)
        elif self._flush_at is None:
            loop, wait_s = asyncio.get_running_loop(), GATHER_S if state.is_busy else START_GATHER_S
            self._flush_at = loop.call_later(wait_s, self.flush, False)

    def flush(self, everything: bool = True) -> None:
        if self._flush_at is not None:
            self._flush_at.cancel()
            self._flush_at = None
        wire = self._wire()
        if wire is not None and wire.is_behind:
            return  # the next look sends them, and what comes until then
        if wire is not None and (reports := self._engine.reports(everything)) and reports.reports:
            wire.send(reports)
