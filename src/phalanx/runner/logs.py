"""The logs of attempts: read by offset, or the last lines, and sent over a connection of their own.

The keeper writes their files (`keeper/output.py`; `log_files.py` names and opens them), and may have emptied the middle
of a large one (`keeper/logs.py`): reading continues behind such a gap, and the chunk has the number of bytes missing
before it. No more than a piece of one is ever held.

A request that may wait is answered when the file has grown or the attempt has ended. Files are looked at several times
a second, and only while a request follows them. `retention.py` removes old logs.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from msgspec import Struct, structs

from phalanx.clock import SystemClock
from phalanx.core.model.log_times import TIMES, pack_rows
from phalanx.core.model.orders import AttemptKey
from phalanx.link import wire
from phalanx.link.session_messages import OpenSession
from phalanx.link.usage import ReadUsage, UsageData
from phalanx.link.vps import AskSnapshots, SnapshotsTold
from phalanx.runner.link import Wire
from phalanx.runner.log_files import LogPath, log_path, open_file
from phalanx.runner.log_times import read_times

READ_BYTES_MAX = 4 << 20
TAIL_BYTES_MAX = 4 << 20
TAIL_LINES_MAX = 1_000_000
_BLOCK = 64 << 10
LOOK_EVERY_S = 0.05


class Chunk(Struct, frozen=True):
    """Bytes of a log. The next ones are at `offset + len(data)`; the log is `size` bytes long so far."""

    offset: int
    data: bytes
    size: int
    gap: int = 0  # bytes right before `offset` that were dropped to keep the log within its limit
    missing: bool = False  # there is no such file


def read(path: LogPath, offset: int, limit: int = READ_BYTES_MAX) -> Chunk:
    """Up to `limit` bytes from `offset` on; empty when there is nothing yet, or no file."""
    fd = _open(path)
    if fd is None:
        return Chunk(max(0, offset), b"", 0, missing=True)
    try:
        size = os.fstat(fd).st_size
        begin = min(max(0, offset), size)
        at = _data_from(fd, begin, size)
        end = min(_hole_from(fd, at, size), at + min(max(0, limit), READ_BYTES_MAX))
        return Chunk(at, _read_range(fd, at, end), size, at - begin)
    finally:
        os.close(fd)


def tail(path: LogPath, lines: int, limit: int = TAIL_BYTES_MAX) -> Chunk:
    """The last lines, read backward; at most `limit` bytes of them, and none from before a gap."""
    fd = _open(path)
    if fd is None:
        return Chunk(0, b"", 0, missing=True)
    try:
        size = os.fstat(fd).st_size
        run, gap = _last_run(fd, max(0, size - min(max(0, limit), TAIL_BYTES_MAX)), size)
        at = _line_start(fd, run, size, min(lines, TAIL_LINES_MAX)) if lines > 0 else size
        return Chunk(at, _read_range(fd, at, size), size, gap if at == run else 0)
    finally:
        os.close(fd)


def data_runs(fd: int, most: int) -> list[tuple[int, int]]:
    """The last parts of a file that have data, as offsets and sizes: between them are gaps."""
    size, runs, at = os.fstat(fd).st_size, deque[tuple[int, int]](maxlen=most), 0
    while (begin := _data_from(fd, at, size)) < size:
        at = _hole_from(fd, begin, size)
        runs.append((begin, at - begin))
    return list(runs)


def _line_start(fd: int, floor: int, size: int, lines: int) -> int:
    """Where the last `lines` lines start, looking back to `floor` at the most."""
    ends_whole = size > floor and os.pread(fd, 1, size - 1) == b"\n"
    wanted = lines + ends_whole  # newlines to find: the line starts behind the first of them
    at = size
    while at > floor:
        begin = max(floor, at - _BLOCK)
        block = _read_range(fd, begin, at)
        found = block.count(b"\n")
        if found >= wanted:
            position = len(block)
            for _ in range(wanted):
                position = block.rindex(b"\n", 0, position)
            return begin + position + 1
        wanted -= found
        at = begin
    return floor


def _last_run(fd: int, floor: int, size: int) -> tuple[int, int]:
    """Where the data that reaches the end starts, not before `floor`, and how much is missing before it."""
    begin = at = floor
    while True:
        at = _data_from(fd, begin, size)
        hole = _hole_from(fd, at, size)
        if hole >= size:
            return at, at - begin
        begin = hole


def _data_from(fd: int, offset: int, size: int) -> int:
    return _seek(fd, offset, os.SEEK_DATA, size, otherwise=offset)


def _hole_from(fd: int, offset: int, size: int) -> int:
    return _seek(fd, offset, os.SEEK_HOLE, size, otherwise=size)


def _seek(fd: int, offset: int, whence: int, size: int, otherwise: int) -> int:
    """The next data or hole; `size` when there is none, `otherwise` where the filesystem does not support it."""
    try:
        return min(os.lseek(fd, offset, whence), size)
    except OSError as error:
        return size if error.errno == errno.ENXIO else otherwise


def _read_range(fd: int, begin: int, end: int) -> bytes:
    parts = []
    while begin < end and (part := os.pread(fd, end - begin, begin)):
        parts.append(part)
        begin += len(part)
    return b"".join(parts)


def _open(path: LogPath) -> int | None:
    """Open the log, if it exists and is valid."""
    try:
        return open_file(path)
    except OSError:
        return None


class ReaderTable(Protocol):
    """Who has to know how far the readers of attached attempts are."""

    def asked(self, key: AttemptKey, stream: str, at: int) -> None: ...

    def held(self, key: AttemptKey, stream: str, for_s: float) -> None: ...


class FileSender(Protocol):
    """Who sends files over this connection."""

    def opened(self, send: Callable[[wire.Message], None], max_bytes: int) -> None: ...

    def taken(self, answer: wire.FileTaken) -> None: ...

    def lost(self) -> None: ...


class RunnerLogLink:
    """The runner's end of the log connection."""

    def __init__(
        self,
        hello: Callable[[], wire.LogHello],
        root: Path,
        is_live: Callable[[AttemptKey], bool],
        files: FileSender,
        usage: Callable[[ReadUsage], UsageData] | None = None,
        open_session: Callable[[OpenSession], None] | None = None,
        snapshots: Callable[[AskSnapshots], Awaitable[SnapshotsTold]] | None = None,
        readers: ReaderTable | None = None,
    ) -> None:
        self._readers = readers
        self._clock = SystemClock()
        self._files = files
        self._usage = usage
        self._open_session = open_session
        self._snapshots = snapshots
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
            case wire.HoldLog() if self._readers is not None:
                self._readers.held(message.key, message.stream, message.for_s)
            case wire.CancelRead():
                if (waiting := self._waiting.get(message.id)) is not None:
                    waiting.cancel()
            case wire.FilesReady() if self._wire is not None:
                self._files.opened(self._wire.send, message.max_bytes)
            case wire.FileTaken():
                self._files.taken(message)
            case ReadUsage() if self._wire is not None and self._usage is not None:
                self._wire.send(self._usage(message))
            case OpenSession() if self._open_session is not None:
                self._open_session(message)
            case AskSnapshots():
                task = asyncio.get_running_loop().create_task(self._tell_snapshots(message))
                self._waiting[message.id] = task
                task.add_done_callback(lambda _: self._waiting.pop(message.id, None))

    def settled(self) -> None:
        """Nothing is batched here."""

    def disconnected(self) -> None:
        self._wire = None
        self._files.lost()
        for task in list(self._waiting.values()):
            task.cancel()

    async def _tell_snapshots(self, asked: AskSnapshots) -> None:
        if self._snapshots is not None:
            told = await self._snapshots(asked)
            if self._wire is not None:
                self._wire.send(told)

    def _tell_times(self, asked: wire.ReadLog) -> None:
        """All rows; the last one is of now."""
        rows, live = read_times(self._root, asked.key), self._is_live(asked.key)
        if self._wire is None:
            return
        if rows is None:
            self._wire.send(wire.LogData(asked.id, 0, b"", 0, not live, missing=True))
            return
        data = pack_rows([*rows, structs.replace(rows[-1], at=max(rows[-1].at, self._clock.now()))])
        self._wire.send(wire.LogData(asked.id, 0, data, len(data), not live))

    async def _answer(self, asked: wire.ReadLog) -> None:
        if asked.stream == TIMES:
            self._tell_times(asked)
            return
        job, position, number = asked.key
        path = log_path(self._root, job, position, number, asked.stream)
        if asked.hold and asked.offset is not None and self._readers is not None:
            self._readers.asked(asked.key, asked.stream, asked.offset)
        while True:
            live = self._is_live(asked.key)
            at = asked.offset
            chunk = tail(path, asked.lines or 0) if at is None else read(path, at, asked.limit)
            if chunk.data or not live or not asked.wait:
                break
            await asyncio.sleep(LOOK_EVERY_S)
        if self._wire is not None:
            self._wire.send(
                wire.LogData(
                    asked.id, chunk.offset, chunk.data, chunk.size, not live, chunk.gap, chunk.missing
                )
            )
