"""Messages between a worker and the process that runs the calls: MessagePack, each after its length, through a pipe.

To the process go batches of calls, and the request to return those that it has not begun. From it come results, in the
order of the calls.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Union

import msgspec
from msgspec import Struct

LENGTH_BYTES = 4
READ_BYTES = 1 << 20


class RunCalls(Struct, array_like=True, tag=1):
    """Calls of one function; its bytes are empty if the process has it."""

    digest: str
    function: bytes
    calls: list[tuple[int, bytes]]


class ReturnCalls(Struct, array_like=True, tag=2):
    """Return the calls that are not begun."""


class CallsReady(Struct, array_like=True, tag=3):
    """The process has started."""


class CallEnded(Struct, array_like=True, tag=4):
    """How a call ended, as `CallResult` has it."""

    id: int
    outcome: str
    value: bytes = b""
    text: str = ""
    code: str = ""


class CallsReturned(Struct, array_like=True, tag=5):
    """Calls that were not begun, and will not be."""

    ids: list[int]


ToProcess = Union[RunCalls, ReturnCalls]  # noqa: UP007 - msgspec reads it
FromProcess = Union[CallsReady, CallEnded, CallsReturned]  # noqa: UP007
_encode = msgspec.msgpack.Encoder().encode


def write_frame(fd: int, message: ToProcess | FromProcess) -> None:
    """Write a message whole. Raises OSError if nobody reads any more."""
    body = _encode(message)
    rest = memoryview(len(body).to_bytes(LENGTH_BYTES, "big") + body)
    while rest:
        rest = rest[os.write(fd, rest) :]


class FrameReader:
    """Reads messages of one kind from a pipe."""

    def __init__(self, fd: int, kind: object) -> None:
        self._fd = fd
        self._decode = msgspec.msgpack.Decoder(kind).decode
        self._buffer = bytearray()

    def read(self) -> list[ToProcess | FromProcess] | None:
        """The messages that have arrived, at least one; None at the end."""
        while True:
            found = list(self._whole())
            if found:
                return found
            data = os.read(self._fd, READ_BYTES)
            if not data:
                return None
            self._buffer += data

    def _whole(self) -> Iterator[ToProcess | FromProcess]:
        at = 0
        while len(self._buffer) - at >= LENGTH_BYTES:
            size = int.from_bytes(self._buffer[at : at + LENGTH_BYTES], "big")
            if len(self._buffer) - at - LENGTH_BYTES < size:
                break
            at += LENGTH_BYTES
            yield self._decode(self._buffer[at : at + size])
            at += size
        del self._buffer[:at]
