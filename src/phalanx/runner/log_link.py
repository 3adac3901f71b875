"""Answers requests for logs, on a separate connection.

A request that may wait is answered when the file has grown or the attempt has ended. Files are looked at several times
a second, and only while a request follows them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from phalanx.core.model.orders import AttemptKey
from phalanx.link import wire
from phalanx.runner import logs
from phalanx.runner.link import Wire

LOOK_EVERY_S = 0.05


class RunnerLogLink:
    """The runner's end of the log connection."""

    def __init__(
        self, hello: Callable[[], wire.LogHello], root: Path, is_live: Callable[[AttemptKey], bool]
    ) -> None:
        self._hello = hello
        self._root = root
        self._is_live = is_live
        self._wire: Wire | None = None
        self._waiting: dict[int, asyncio.Task[None]] = {}

    def connected(self, wire_out: Wire) -> None:
        self._wire = wire_out
        wire_out.send(self._hello())

    def received(self, message: wire.Message) -> None:
        match message:
            case wire.ReadLog():
                task = asyncio.get_running_loop().create_task(self._answer(message))
                self._waiting[message.id] = task
                task.add_done_callback(lambda _: self._waiting.pop(message.id, None))
            case wire.CancelRead():
                if (waiting := self._waiting.get(message.id)) is not None:
                    waiting.cancel()

    def settled(self) -> None:
        """Nothing is batched here."""

    def disconnected(self) -> None:
        self._wire = None
        for task in list(self._waiting.values()):
            task.cancel()

    async def _answer(self, asked: wire.ReadLog) -> None:
        job, position, number = asked.key
        path = logs.log_path(self._root, job, position, number, asked.stream)
        while True:
            live = self._is_live(asked.key)
            if asked.offset is None:
                chunk = logs.tail(path, asked.lines or 0)
            else:
                chunk = logs.read(path, asked.offset, asked.limit)
            if chunk.data or not live or not asked.wait:
                break
            await asyncio.sleep(LOOK_EVERY_S)
        if self._wire is not None:
            self._wire.send(
                wire.LogData(
                    asked.id, chunk.offset, chunk.data, chunk.size, not live, chunk.gap, chunk.missing
                )
            )
