"""Standard input of attempts: what a client sends goes into the pipe that the task reads, and is counted.

The keeper made the pipe and holds its write end (`keeper/inputs.py`); the runner opens it by way of the keeper's
descriptor. So neither a lost connection nor a restart of this runner looks to the task like the end of its input. How
much was written is kept in a small file, so that a client that comes back goes on at the right byte; where the runner
was killed between a write and its count, that cannot be known, and the client is told so instead.

A client that says goodbye, or is not heard of for a while, ends the input. An attempt to which no client ever came is
stopped (`no_input`): it must not take an empty input for the whole.
"""

from __future__ import annotations

import asyncio
import os
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from phalanx.api.schema.session_frames import (
    FROM_CLIENT,
    ExitFrame,
    FrameKind,
    pack_exit,
    pack_frame,
    read_frame,
)
from phalanx.core.model.orders import AttemptKey, key_text
from phalanx.duplex import Duplex
from phalanx.errors import Conflict
from phalanx.logger import logger
from phalanx.runner.keeper_messages import ProcessInput
from phalanx.runner.session_environment import task_ended
from phalanx.runner.session_input import WaitingInput

log = logger("runner")
FIRST_S = 60.0  # for the first client to come after the start
LEFT_S = 5.0  # for a client that left to come back: its connection may have been cut
LOST_S = 90.0  # for one that lost its coordinator: longer than a client tries to reach its cluster
_COUNT = struct.Struct(">QQ?")  # bytes that were written; that may have been; whether the input has ended


class InputCount:
    """How many bytes of input an attempt has been given, in a file that outlives this runner."""

    def __init__(self, path: Path) -> None:
        self.written = self.begun = 0
        self.has_ended = False
        path.parent.mkdir(exist_ok=True, mode=0o700)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        if len(kept := os.pread(self._fd, _COUNT.size, 0)) == _COUNT.size:
            self.written, self.begun, self.has_ended = _COUNT.unpack(kept)

    @property
    def is_known(self) -> bool:
        """False if an earlier runner was killed while it wrote."""
        return self.written == self.begun

    def begin(self, count: int) -> None:
        """So many bytes may be written next."""
        self.begun = self.written + count
        self._keep()

    def wrote(self, count: int) -> None:
        self.written += count
        self.begun = self.written
        self._keep()

    def end(self) -> None:
        self.has_ended = True
        self._keep()

    def close(self) -> None:
        os.close(self._fd)

    def _keep(self) -> None:
        os.pwrite(self._fd, _COUNT.pack(self.written, self.begun, self.has_ended), 0)


class AttemptInput:
    """The standard input of one attempt."""

    def __init__(self, where: ProcessInput, path: Path) -> None:
        self.where = where
        self.path = path  # of its count
        self.over: asyncio.Future[None] = (
            asyncio.get_running_loop().create_future()
        )  # nobody is served any more
        self.timer: asyncio.TimerHandle | None = None
        self.serving = asyncio.Lock()  # one client at a time writes and counts

    def open(self) -> int:
        """Its pipe, for writing without waiting. Raises Unavailable, or TaskEnded if it is another's by now."""
        try:
            fd = os.open(
                f"/proc/{self.where.keeper}/fd/{self.where.descriptor}",
                os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC,
            )
        except FileNotFoundError:
            raise task_ended() from None
        except OSError as error:
            raise Conflict(
                f"its node cannot open its standard input: {error.strerror}",
                reason="InputNotServed",
                hint="a runner with accounts needs CAP_SYS_PTRACE for it",
            ) from None
        found = os.fstat(fd)
        if not stat.S_ISFIFO(found.st_mode) or found.st_ino != self.where.inode:
            os.close(fd)
            raise task_ended()
        return fd

    def replace_client(self) -> asyncio.Future[None]:
        """A client has come: one before it is served no longer. Done when this one is not, either."""
        self.wait_for_client(None, lambda: None)
        self.stop_serving()
        self.over = asyncio.get_running_loop().create_future()
        return self.over

    def stop_serving(self) -> None:
        if not self.over.done():
            self.over.set_result(None)

    def wait_for_client(self, within_s: float | None, give_up: Callable[[], None]) -> None:
        """Call this if no client has come in that time; None: one is there."""
        if self.timer is not None:
            self.timer.cancel()
        loop = asyncio.get_running_loop()
        self.timer = None if within_s is None else loop.call_later(within_s, give_up)


class AttemptInputs:
    """The attempts of a runner that have standard input."""

    def __init__(
        self, folder: Path, close: Callable[[AttemptKey], None], stop: Callable[[AttemptKey], None]
    ) -> None:
        """`close` has the keeper close the input of an attempt, `stop` has it stopped because it has none."""
        self._folder = folder
        self._close = close
        self._stop = stop
        self._inputs: dict[AttemptKey, AttemptInput] = {}

    def opened(self, key: AttemptKey, where: ProcessInput) -> None:
        """An attempt has started with standard input; or ran when we did, or our connection to its keeper."""
        if (known := self._inputs.get(key)) is not None:
            known.where = where
            return
        path = self._folder / key_text(key).replace("/", ".")
        self._inputs[key] = AttemptInput(where, path)
        self._expect(key, LOST_S if path.exists() else FIRST_S)

    def ended(self, key: AttemptKey) -> None:
        if (found := self._inputs.pop(key, None)) is not None:
            found.wait_for_client(None, lambda: None)
            found.stop_serving()
            found.path.unlink(missing_ok=True)

    def sweep(self) -> None:
        """All attempts of an earlier runner are known: remove the counts of others."""
        kept = {each.path for each in self._inputs.values()}
        if self._folder.is_dir():
            for path in set(self._folder.iterdir()) - kept:
                path.unlink(missing_ok=True)

    async def serve(self, key: AttemptKey, connection: Duplex) -> None:
        """Give an attempt what its client sends, until it has all, reads no more, has ended, or the client is gone."""
        found = self._inputs.get(key)
        if found is None:
            raise Conflict("the task has no standard input", reason="NoInput")
        over = found.replace_client()
        async with found.serving:
            await self._serve(key, found, connection, over)

    async def _serve(
        self, key: AttemptKey, found: AttemptInput, connection: Duplex, over: asyncio.Future[None]
    ) -> None:
        if over.done():
            raise task_ended()
        count = InputCount(found.path)
        left_s = LOST_S
        try:
            if not count.is_known:
                raise Conflict(
                    "its runner was killed while it passed the input on, and how much the task has had is not known",
                    reason="InputUncertain",
                )
            await connection.write(pack_frame(FrameKind.STARTED, count.written.to_bytes(8, "big")))
            if count.has_ended or await _given(found, count, connection, over):
                count.end()
                self._close(key)  # once more, if an earlier runner was killed before its keeper heard of it
            if over.done():
                raise task_ended()
            await connection.write(pack_exit(ExitFrame(0)))
        except _ClientLeft:
            left_s = LEFT_S
        finally:
            count.close()
            if self._inputs.get(key) is found and found.over is over and not count.has_ended:
                self._expect(key, left_s)

    def _expect(self, key: AttemptKey, within_s: float) -> None:
        self._inputs[key].wait_for_client(within_s, lambda: self._nobody_comes(key))

    def _nobody_comes(self, key: AttemptKey) -> None:
        found = self._inputs[key]
        if not found.path.exists():
            log.warning("no client came with standard input", attempt=key_text(key))
            self._stop(key)
            return
        log.info("the client of an attempt is gone, so its standard input ends", attempt=key_text(key))
        count = InputCount(found.path)
        count.end()
        count.close()
        self._close(key)


class _ClientLeft(ConnectionError):
    """The client said goodbye, or its coordinator did for it."""


async def _given(
    found: AttemptInput, count: InputCount, connection: Duplex, over: asyncio.Future[None]
) -> bool:
    """Write what comes; True at the end of the input, False if nothing reads it any more, or the attempt is over."""
    fd = found.open()
    waiting = WaitingInput(connection)
    feeding = asyncio.ensure_future(_fed(fd, waiting, count))
    receiving = asyncio.ensure_future(_received(connection, waiting))
    try:
        waited: set[asyncio.Future[Any]] = {feeding, receiving, over}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if feeding.done():
            return feeding.result()
        if receiving.done():
            receiving.result()  # raises why no more comes
        return False
    finally:
        for task in (feeding, receiving):
            task.cancel()
        await asyncio.gather(feeding, receiving, return_exceptions=True)
        os.close(fd)


async def _fed(fd: int, waiting: WaitingInput, count: InputCount) -> bool:
    while (piece := await waiting.next()) is not None:
        if not await _written(fd, piece, count):
            return False
    return True


async def _written(fd: int, piece: bytes, count: InputCount) -> bool:
    """Write all of a piece, as the task reads; False if nothing reads it any more."""
    rest = memoryview(piece)
    while rest:
        count.begin(len(rest))
        try:
            wrote = os.write(fd, rest)
        except BlockingIOError:
            wrote = 0
        except BrokenPipeError:
            count.wrote(0)
            return False
        count.wrote(wrote)
        rest = rest[wrote:]
        if not wrote:
            await _writable(fd)
    return True


async def _writable(fd: int) -> None:
    """Wait until a pipe takes more, or has no reader any more."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_writer(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(fd)


async def _received(connection: Duplex, waiting: WaitingInput) -> None:
    while True:
        kind, content = await read_frame(connection, FROM_CLIENT)
        if kind is FrameKind.HANG_UP:
            raise _ClientLeft("the client is gone")
        waiting.take(kind, content)
