"""Reads what attempts wrote: by offset, or the last lines, without ever holding more than a piece.

Attempts write their files themselves, and the keeper may have emptied the middle of a large one (`keeper/logs.py`):
reading continues behind such a gap, and the chunk has the number of bytes missing before it. A path is built from a
job id and numbers only, and opened folder by folder without following links.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import Literal

from msgspec import Struct

Stream = Literal["stdout", "stderr"]
STREAMS = ("stdout", "stderr")
READ_BYTES_MAX = 4 << 20
TAIL_BYTES_MAX = 4 << 20
TAIL_LINES_MAX = 1_000_000
NUMBER_MAX = 1 << 53
_BLOCK = 64 << 10
_JOB = re.compile(r"[0-9A-Za-z](?:[0-9A-Za-z_-]{0,62})")
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class LogPath(Struct, frozen=True):
    """Where one stream of one attempt is written: `root/job/position.attempt.stream`."""

    root: Path
    job: str
    name: str

    def __fspath__(self) -> str:
        return f"{self.root}/{self.job}/{self.name}"

    def __str__(self) -> str:
        return self.__fspath__()


class Chunk(Struct, frozen=True):
    """Bytes of a log. The next ones are at `offset + len(data)`; the log is `size` bytes long so far."""

    offset: int
    data: bytes
    size: int
    gap: int = 0  # bytes right before `offset` that were dropped to keep the log within its limit
    missing: bool = False  # there is no such file


def log_path(root: Path, job: str, position: int, attempt: int, stream: str) -> LogPath:
    """The path for these, or ValueError: no text from outside may name another file."""
    if _JOB.fullmatch(job) is None:
        raise ValueError(f"{job[:80]!r} is not a job id")
    if not (0 <= position <= NUMBER_MAX and 0 <= attempt <= NUMBER_MAX):
        raise ValueError(f"task {position} or attempt {attempt} is out of range")
    if stream not in STREAMS:
        raise ValueError(f"{stream[:80]!r} is not a stream: expected {' or '.join(STREAMS)}")
    return LogPath(root, job, f"{int(position)}.{int(attempt)}.{stream}")


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
    """Open the log, if it exists and is valid: a regular file, in our folder, with one name."""
    try:
        root = os.open(path.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        job = os.open(path.job, _FLAGS | os.O_DIRECTORY, dir_fd=root)
    except OSError:
        return None
    finally:
        os.close(root)
    try:
        fd = os.open(
            path.name, _FLAGS | os.O_NONBLOCK, dir_fd=job
        )  # O_NONBLOCK: a planted FIFO must not block us
    except OSError:
        return None
    finally:
        os.close(job)
    found = os.fstat(fd)
    if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
        return fd
    os.close(fd)
    return None
