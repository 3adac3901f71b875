"""A container runtime that comes up after the runner is found, and one that goes away is said, without a restart.

The files of the sockets are looked at every second, which takes a system call each. The runtime is asked when one of
them is another file than before, and every minute. The coordinator hears of a change with the next hello.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from phalanx.logger import logger
from phalanx.runner.containers.found import RuntimeFound, find_runtime, sockets
from phalanx.runner.containers.launching import ContainerLaunches
from phalanx.runner.turn import RunnerEngine

log = logger("runner")
LOOK_S = 1.0
ASK_AFTER = 60  # looks that showed nothing new


class RuntimeLook:
    """The runtime of one node, looked for again and again."""

    def __init__(
        self,
        setting: str,
        containers: ContainerLaunches,
        engine: RunnerEngine,
        hello_again: Callable[[], None],
    ) -> None:
        self._setting = setting
        self._containers = containers
        self._engine = engine
        self._hello_again = hello_again
        self._files = _files(setting)

    async def keep(self) -> None:
        """As long as the runner lives; at once over where containers are switched off."""
        while sockets(self._setting):
            await self._until_due()
            found = await self._ask()
            if found != self._containers.found:
                await self._changed(found)

    async def _until_due(self) -> None:
        for _ in range(ASK_AFTER):
            await asyncio.sleep(LOOK_S)
            files = _files(self._setting)
            if files != self._files:
                self._files = files
                return

    async def _ask(self) -> RuntimeFound:
        """A runtime that does not answer is asked a second time: it may restart, or be busy."""
        found = await asyncio.to_thread(find_runtime, self._setting)
        if self._containers.found.socket and not found.socket:
            await asyncio.sleep(LOOK_S)
            found = await asyncio.to_thread(find_runtime, self._setting)
        return found

    async def _changed(self, found: RuntimeFound) -> None:
        say = log.info if found.socket else log.warning
        say("containers: the runtime has changed", runtime=found.text, before=self._containers.found.text)
        self._containers.adopt(found)
        self._engine.capacity = self._containers.described(self._engine.capacity)
        self._hello_again()
        await self._containers.sweep(self._engine.live_keys)


def _files(setting: str) -> list[tuple[int, int] | None]:
    """Which files the sockets are; None for one that is not there."""
    return [_file(path) for path in sockets(setting)]


def _file(path: str) -> tuple[int, int] | None:
    try:
        about = os.stat(path)  # noqa: PTH116 (one call every second)
    except OSError:
        return None
    return about.st_ino, about.st_ctime_ns
