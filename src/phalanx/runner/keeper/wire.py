"""The keeper's end of the socket: length-prefixed JSON frames, never blocking.

A peer that sends what is not a frame, or does not read its answers, is dropped: it can connect again and ask for a
listing.
"""

from __future__ import annotations

import json
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FRAME_BYTES_MAX = 16 << 20
UNSENT_BYTES_MAX = 64 << 20
_READ_BYTES = 16 << 10
_decode = json.JSONDecoder().decode


class Lost(Exception):
    """The peer closed, or cannot be understood any more."""


class SocketLink:
    """One connection to the runner."""

    def __init__(self, peer: socket.socket) -> None:
        peer.setblocking(False)
        self.peer = peer
        self.blocked = False  # whether not everything could be sent
        self._received = b""
        self._unsent = b""

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
        buffer = self._received + received if self._received else received
        requests: list[Any] = []
        at = 0
        while (end := _frame_end(buffer, at)) <= len(buffer):
            requests += _read_frame(buffer[at + 4 : end])
            at = end
        self._received = buffer[at:]
        return requests

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


def _frame_end(buffer: bytes, at: int) -> int:
    """Where the frame that starts here ends; past the buffer's end while its length is not known."""
    if len(buffer) < at + 4:
        return len(buffer) + 1
    length = int.from_bytes(buffer[at : at + 4], "big")
    if length > FRAME_BYTES_MAX:
        raise Lost(f"a frame of {length} bytes is longer than {FRAME_BYTES_MAX}")
    return at + 4 + length


def _read_frame(body: bytes) -> list[Any]:
    try:
        frame = _decode(body.decode())
    except (ValueError, RecursionError) as error:
        raise Lost(f"a frame is not JSON: {error}") from None
    if not isinstance(frame, list):
        raise Lost("a frame is not an array of requests")
    return frame
