"""The keeper with real processes: what ends, what is killed, what survives whom.

Tests wait for conditions, with a deadline; tasks that must be alive at a certain moment wait on a FIFO.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from phalanx.runner import logs
from phalanx.runner.cgroups import Cgroup, Cgroups
from phalanx.runner.processes import (
    Ended,
    Event,
    Exit,
    KeeperFailed,
    KeeperLost,
    Launch,
    Misunderstood,
    Processes,
    Refused,
    Row,
    Started,
)

WITHIN_S = 20.0
LOOK_S = 0.01
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
MIB = 1 << 20


class Node:
    """A keeper in a folder of its own, and all that it said."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[Event] = []
        self._news = asyncio.Event()
        self.processes: Processes

    async def connect(self) -> None:
        self.processes = await Processes.open(self.folder, self._on_event)

    def _on_event(self, event: Event) -> None:
        self.events.append(event)
        self._news.set()

    async def until[T](self, condition: Callable[[], T | None | bool]) -> T | bool:
        """Wait until something is true, looking again at each event and every few milliseconds."""
        async with asyncio.timeout(WITHIN_S):
            while not (result := condition()):
                self._news.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), LOOK_S)
        return result

