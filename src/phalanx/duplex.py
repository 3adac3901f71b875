"""A connection as a pair of byte streams with back-pressure, for asyncio: read what came, write what is taken.

No more than `BUFFER_BYTES` are held for a reader that is slow: then the connection is no longer read, and its other
side has to wait. A write returns when the connection takes more. However small the pieces are that a full buffer is
read in, others get their turn in between. What the bytes mean is decided elsewhere.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import cast

BUFFER_BYTES = 128 * 1024
READS_PER_TURN = 64  # of those that need not wait; a buffer of frames with one byte each has 50,000 of them


class Duplex(asyncio.Protocol):
    """One connection. Another protocol may pass its own on to it in the middle, by calling these methods."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._reads = 0  # since others had their turn
        self._is_paused = False  # the transport is not read for now
        self._is_full = False  # the transport takes no more for now
        self._has_ended = False  # nothing more will come
        self._arrival: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.stopping = asyncio.Event()  # whoever serves this connection wants to stop
        self._heard_at = self._loop.time()

    async def read_exactly(self, count: int) -> bytes:
        """So many bytes, at most BUFFER_BYTES; EOFError if the connection ends before."""
        while len(self._buffer) < count:
            if self._has_ended:
                raise EOFError
            await self._arrived()
        self._reads += 1
        if self._reads >= READS_PER_TURN:
            self._reads = 0
            await asyncio.sleep(0)
        return self._taken(count)

    async def read(self, most: int) -> bytes:
        """What has come, and at least one byte; none at the end."""
        while not self._buffer and not self._has_ended:
            await self._arrived()
        return self._taken(min(most, len(self._buffer)))

    async def write(self, data: bytes) -> None:
        """Write, and return when the connection takes more; ConnectionError if it is lost."""
        self.put(data)
        while self._is_full and not self.lost.done():
            self._room = self._room or self._loop.create_future()
            await asyncio.shield(self._room)

    def put(self, data: bytes) -> None:
        """Write without waiting: for a few last words."""
        if self.lost.done() or self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the connection is lost")
        self._transport.write(data)

    async def beat(self, sign: bytes, every_s: float) -> None:
        """Show a sign of life at intervals, whether or not anything is read, until the connection is lost."""
        while not self.lost.done():
            await asyncio.sleep(every_s)
            with suppress(ConnectionError):
                self.put(sign)

    def end_writing(self) -> None:
        """Say that nothing more is written; what comes can still be read."""
        if (
            self._transport is not None
            and not self._transport.is_closing()
            and self._transport.can_write_eof()
        ):
            self._transport.write_eof()

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def is_silent(self, now: float, silent_s: float) -> bool:
        """Whether nothing has come for so long, though it was read, and what was sent was taken."""
        return not self._is_paused and not self._is_full and now - self._heard_at > silent_s

    def close(self) -> None:
        """Close when what was written has been sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    # As a protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without inheriting from it

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._heard_at = self._loop.time()
        if len(self._buffer) > BUFFER_BYTES and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        _wake(self._arrival)

    def eof_received(self) -> bool:
        self._has_ended = True
        _wake(self._arrival)
        # What is still to be written may be written; TLS knows no half of a connection.
        return self._transport is not None and self._transport.can_write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_ended = True
        if not self.lost.done():
            self.lost.set_result(None)
        _wake(self._arrival)
        _wake(self._room)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        _wake(self._room)
        self._room = None

    async def _arrived(self) -> None:
        self._arrival = self._loop.create_future()
        self._reads = 0
        try:
            await self._arrival
        finally:
            self._arrival = None

    def _taken(self, count: int) -> bytes:
        data = bytes(memoryview(self._buffer)[:count])
        del self._buffer[:count]
        if self._is_paused and len(self._buffer) <= BUFFER_BYTES // 2 and self._transport is not None:
            self._is_paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()
        return data


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
