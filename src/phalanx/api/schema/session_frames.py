"""The frames of a session: a byte for what it is, four for its length, and the content. No I/O.

Client, coordinator and runner use the same, so that the coordinator passes them on as they are. A session of `exec`
has the three streams of a command; one of `port-forward` uses STDIN towards the task and STDOUT from it.

Output is held up by the connection itself: what the client does not read stops the command. Input has a window
instead, as channels of SSH have: a command that reads nothing must not hold up a signal, or the end of the session.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Protocol

import msgspec
from msgspec import Struct

from phalanx.api.schema.documents import read_problem, spell_problem
from phalanx.errors import PhalanxError, Unavailable

_HEAD = struct.Struct(">BI")
_SIZE = struct.Struct(">HH")
_COUNT = struct.Struct(">I")
HEAD_BYTES = _HEAD.size
CONTENT_BYTES_MAX = 64 * 1024
PIECE_BYTES = 32 * 1024  # of data in one frame
WINDOW_BYTES = 256 * 1024  # of input that may be on its way, or wait for the command to read it
BEAT_S = 15.0  # between two PINGs of each side
SIGNALS = (1, 2, 3, 10, 12, 15)  # which a client may send: HUP, INT, QUIT, USR1, USR2, TERM


class FrameKind(IntEnum):
    STDIN = 0  # data for the command, or for the port
    STDOUT = 1  # data from the command, or from the port
    STDERR = 2
    STDIN_END = 3  # there is no more input
    STDOUT_END = 4  # a port sends no more
    RESIZE = 5  # rows and columns of the terminal
    SIGNAL = 6  # for the command's process group
    STARTED = 7  # the command runs, the port has accepted, or the task is to be given input from this byte on
    EXIT = 8  # how the command ended
    ERROR = 9  # why there is no such end
    PING = 10  # nothing, at intervals, so that silence shows
    WINDOW = 11  # so many more bytes of STDIN are taken
    HANG_UP = 12  # the client leaves, or is gone


FROM_CLIENT = frozenset({
    FrameKind.STDIN, FrameKind.STDIN_END, FrameKind.RESIZE, FrameKind.SIGNAL, FrameKind.PING, FrameKind.HANG_UP,
})  # fmt: skip
FROM_TASK = frozenset(set(FrameKind) - FROM_CLIENT) | {FrameKind.PING}
DATA = frozenset({FrameKind.STDIN, FrameKind.STDOUT, FrameKind.STDERR})
LAST = frozenset({FrameKind.EXIT, FrameKind.ERROR})


class FrameError(ConnectionError):
    """Bytes that are no frame of a session."""


class ExitFrame(Struct, frozen=True):
    """How a command ended: with a code, or by a signal; `code` is what a shell makes of it."""

    code: int
    signal: int = 0
    task_ended: bool = False  # it was ended because its task has


class Readable(Protocol):
    async def read_exactly(self, count: int) -> bytes: ...


def pack_frame(kind: FrameKind, content: bytes = b"") -> bytes:
    return _HEAD.pack(kind, len(content)) + content


def pack_size(rows: int, columns: int) -> bytes:
    return pack_frame(FrameKind.RESIZE, _SIZE.pack(min(max(rows, 0), 65_535), min(max(columns, 0), 65_535)))


def read_size(content: bytes) -> tuple[int, int]:
    """Rows and columns."""
    if len(content) != _SIZE.size:
        raise FrameError(f"a size of {len(content)} bytes, expected {_SIZE.size}")
    rows, columns = _SIZE.unpack(content)
    return rows, columns


def pack_exit(end: ExitFrame) -> bytes:
    return pack_frame(FrameKind.EXIT, msgspec.json.encode(end))


def pack_error(error: PhalanxError) -> bytes:
    """The error as problem+json, as over HTTP."""
    return pack_frame(FrameKind.ERROR, spell_problem(error)[:CONTENT_BYTES_MAX])


def read_end(kind: FrameKind, content: bytes) -> ExitFrame:
    """What the last frame of a session says: how the command ended; or raise the error that it tells of."""
    if kind is FrameKind.ERROR:
        raise read_problem(Unavailable.status, content)
    try:
        return msgspec.json.decode(content, type=ExitFrame)
    except msgspec.MsgspecError:
        raise FrameError("the last frame cannot be read") from None


def pack_window(count: int) -> bytes:
    """So many more bytes of input are taken."""
    return pack_frame(FrameKind.WINDOW, _COUNT.pack(count))


def read_window(content: bytes) -> int:
    if len(content) != _COUNT.size:
        raise FrameError(f"a window of {len(content)} bytes, expected {_COUNT.size}")
    (count,) = _COUNT.unpack(content)
    return int(count)


async def read_frame(source: Readable, allowed: frozenset[FrameKind]) -> tuple[FrameKind, bytes]:
    """The next frame; EOFError where the connection ends, FrameError for what is none."""
    number, length = _HEAD.unpack(await source.read_exactly(HEAD_BYTES))
    if number not in allowed:
        raise FrameError(f"a frame of kind {number} is not expected here")
    if length > CONTENT_BYTES_MAX:
        raise FrameError(f"a frame of {length} bytes, at most {CONTENT_BYTES_MAX} are allowed")
    return FrameKind(number), await source.read_exactly(length) if length else b""
