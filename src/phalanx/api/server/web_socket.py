"""One end of a session that is a browser's: messages of a WebSocket on one side, frames of a session on the other.

A message holds one frame without its length: a byte for its kind, and the content. The protocol itself is that of
`websockets`, which does no I/O; bytes go through the connection that the HTTP request came on. Signs of life are those
of WebSockets, which a browser answers by itself.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections import deque
from collections.abc import Mapping
from contextlib import suppress

from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side, State
from websockets.utils import accept_key

from phalanx.api.schema.session_frames import CONTENT_BYTES_MAX, HEAD_BYTES, FrameError, FrameKind, pack_frame
from phalanx.duplex import Duplex
from phalanx.errors import BadRequest

VERSION = b"13"
# Looking at a frame takes ten microseconds, and a frame may have six bytes: only so much is looked at before others
# have their turn, more of it the longer nothing ended, which is one long frame.
READ_BYTES_MIN, READ_BYTES_MAX = 1024, 8 * 1024
PARTS_MAX = 64  # of one message; browsers do not cut what is as short as ours are
CONTROLS_MAX, CONTROLS_S = 100, 10.0  # signs of life and the like, in so many seconds
NORMAL, POLICY = 1000, 1008


def accept_header(headers: Mapping[bytes, bytes]) -> tuple[bytes, bytes]:
    """The header of the answer that changes the protocol; BadRequest for a handshake that is none."""
    key = headers.get(b"sec-websocket-key", b"").decode("latin-1")
    try:
        is_key = len(base64.b64decode(key, validate=True)) == 16
    except (binascii.Error, ValueError):
        is_key = False
    if not is_key or headers.get(b"sec-websocket-version") != VERSION:
        raise BadRequest(
            "this is not a WebSocket handshake: expected Sec-WebSocket-Key and Sec-WebSocket-Version: 13",
            reason="UpgradeRequired",
        )
    return b"sec-websocket-accept", accept_key(key).encode()


class WebSocketEnd:
    """The browser's connection, used like the connection of any other client of a session."""

    def __init__(self, connection: Duplex) -> None:
        self._connection = connection
        self._protocol = Protocol(Side.SERVER, state=State.OPEN, max_size=CONTENT_BYTES_MAX + 1)
        self._frames = bytearray()  # of the session, that came and were not taken yet
        self._parts: list[bytes] = []  # of a message that comes in pieces
        self._opcode = Opcode.BINARY
        self._waiting: deque[tuple[Opcode, bytes]] = deque()  # whole messages
        self._unfinished = 0  # bytes that were read since a frame ended
        self._controls, self._controls_since = 0, 0.0
        self.stopping = connection.stopping

    async def first_message(self, within_s: float) -> str:
        """The first message, which is text and none of a session; FrameError for anything else."""
        try:
            async with asyncio.timeout(within_s):
                opcode, message = await self._message()
        except (TimeoutError, EOFError):
            raise FrameError("no ticket came") from None
        if opcode is not Opcode.TEXT:
            raise FrameError("the first message is the ticket, as text")
        return message.decode("utf-8", "replace")

    async def read_exactly(self, count: int) -> bytes:
        while len(self._frames) < count:
            opcode, message = await self._message()
            if opcode is not Opcode.BINARY or not message:
                raise FrameError("a message of a session is binary: a byte for its kind, and the content")
            if message[0] not in FrameKind.__members__.values():
                raise FrameError(f"a frame of kind {message[0]} is not expected here")
            self._frames += pack_frame(FrameKind(message[0]), message[1:])
        taken = bytes(self._frames[:count])
        del self._frames[:count]
        return taken

    async def write(self, data: bytes) -> None:
        """Send one frame of a session."""
        self._protocol.send_binary(data[:1] + data[HEAD_BYTES:])
        await self._connection.write(b"".join(self._protocol.data_to_send()))

    def put(self, data: bytes) -> None:
        """Send one frame without waiting; a sign of life is the WebSocket's own."""
        if self._protocol.state is not State.OPEN:
            raise ConnectionResetError("the connection is closing")
        if data[0] == FrameKind.PING:
            self._protocol.send_ping(b"")
        else:
            self._protocol.send_binary(data[:1] + data[HEAD_BYTES:])
        self._send()

    def is_silent(self, now: float, silent_s: float) -> bool:
        return self._connection.is_silent(now, silent_s)

    def close(self) -> None:
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(NORMAL)
            with suppress(ConnectionError):
                self._send()
        self._connection.close()

    def abort(self) -> None:
        self._connection.abort()

    async def _message(self) -> tuple[Opcode, bytes]:
        """The next message; EOFError at the end, FrameError for what only a flood has."""
        while True:
            for event in self._protocol.events_received():
                assert isinstance(event, Frame)
                self._unfinished = 0
                self._take(event)
            if self._waiting:
                return self._waiting.popleft()
            await asyncio.sleep(0)
            most = min(max(self._unfinished, READ_BYTES_MIN), READ_BYTES_MAX)
            data = await self._connection.read(most)
            if not data:
                raise EOFError
            self._unfinished += len(data)
            self._protocol.receive_data(data)
            with suppress(ConnectionError):
                self._send()  # answers to pings, and to a close
            if self._protocol.state is not State.OPEN:
                raise EOFError

    def _take(self, frame: Frame) -> None:
        if frame.opcode in (Opcode.TEXT, Opcode.BINARY):
            self._opcode, self._parts = frame.opcode, [bytes(frame.data)]
        elif frame.opcode is Opcode.CONT:
            self._parts.append(bytes(frame.data))
            if len(self._parts) > PARTS_MAX:
                raise FrameError(f"a message comes in more than {PARTS_MAX} pieces")
        else:
            self._count_control()
            return
        if frame.fin:
            self._waiting.append((self._opcode, b"".join(self._parts)))

    def _count_control(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._controls_since > CONTROLS_S:
            self._controls, self._controls_since = 0, now
        self._controls += 1
        if self._controls > CONTROLS_MAX:
            raise FrameError(f"more than {CONTROLS_MAX} pings and pongs came within {CONTROLS_S:g} s")

    def _send(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._connection.put(data)
