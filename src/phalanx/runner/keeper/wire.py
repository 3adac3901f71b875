"""The keeper's end of the socket: length-prefixed JSON frames, never blocking.

What is said during one turn of the loop leaves as one frame. A peer that sends what is not a frame, or
does not read its answers, is dropped: it can connect again and ask for a listing.
"""

from __future__ import annotations

import json
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FRAME_BYTES_MAX = 16 << 20
UNSENT_BYTES_MAX = 64 << 20
_READ_BYTES = 64 << 10


class Lost(Exception):
    """The peer went away, or cannot be understood any more."""


class Link:
    """One connection to the runner."""

    def __init__(self, peer: socket.socket) -> None:
        peer.setblocking(False)
        self.peer = peer
        self._received = bytearray()
        self._unsent = b""
        self.blocked = False  # whether there was no room for all that was sent

    def fileno(self) -> int:
        return self.peer.fileno()

    def receive(self) -> list[Any]:
        """The requests of all frames that have fully arrived; raises Lost at the end of the stream."""
        try:
            received = self.peer.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError as error:
            raise Lost(str(error)) from None
        if not received:
            raise Lost("the runner closed the connection")
        self._received += received
        requests: list[Any] = []
        while (frame := self._next_frame()) is not None:
            requests += frame
        return requests

    def _next_frame(self) -> list[Any] | None:
        buffer = self._received
        if len(buffer) < 4:
            return None
        end = 4 + int.from_bytes(buffer[:4], "big")
        if end > FRAME_BYTES_MAX:
            raise Lost(f"a frame of {end} bytes is longer than {FRAME_BYTES_MAX}")
        if len(buffer) < end:
            return None
        try:
            frame = json.loads(buffer[4:end])
        except (ValueError, RecursionError) as error:
            raise Lost(f"a frame is not JSON: {error}") from None
        del buffer[:end]
        if not isinstance(frame, list):
            raise Lost("a frame is not an array of requests")
        return frame

    def send(self, answers: list[str]) -> None:
        """Send these answers as one frame, after what is left of earlier ones."""
        if answers:
            body = f"[{','.join(answers)}]".encode()
            self._unsent += len(body).to_bytes(4, "big") + body
        if self._unsent:
            self._send_some()
        self.blocked = bool(self._unsent)

    def _send_some(self) -> None:
        try:
            sent = self.peer.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            raise Lost(str(error)) from None
        self._unsent = self._unsent[sent:]
        if len(self._unsent) > UNSENT_BYTES_MAX:
            raise Lost("the runner does not read its answers")

    def close(self) -> None:
        self.peer.close()
