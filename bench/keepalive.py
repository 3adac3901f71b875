"""One kept-alive HTTP connection on a bare socket: what is measured is the server, not a client library."""

from __future__ import annotations

import select
import socket
from types import TracebackType
from typing import Self

WAIT_S = 60.0
_READ_BYTES = 256 * 1024


class Refused(RuntimeError):
    """The server answered, and the answer was no."""


class Connection:
    """Sends one request at a time and reads its answer whole."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self.sock = _dialled(port)
        self._head = f"HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.sock.close()

    def ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        """The answer's body; anything but 2xx raises Refused."""
        if select.select([self.sock], [], [], 0)[0]:  # the server closes what was idle for some seconds
            self.sock.close()
            self.sock = _dialled(self._port)
        self.sock.sendall(self.request(method, path, body))
        received = b""
        while (answer := split_answer(received)) is None:
            piece = self.sock.recv(_READ_BYTES)
            if not piece:
                raise ConnectionResetError("the server closed the connection")
            received += piece
        status, found = answer
        if not 200 <= status < 300:
            raise Refused(f"{method} {path}: {status} {found[:500].decode(errors='replace')}")
        return found

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        """A whole request as it goes over the wire."""
        kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
        return f"{method} {path} {self._head}{kind}\r\n".encode() + body


def _dialled(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def split_answer(received: bytes) -> tuple[int, bytes] | None:
    """Status and body, once both are there: of the stated length, or in chunks."""
    head, found, body = received.partition(b"\r\n\r\n")
    if not found:
        return None
    stated = head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0]
    if stated:
        return (int(head[9:12]), body) if len(body) >= int(stated) else None
    whole = _joined(body) if body.endswith(b"0\r\n\r\n") else None
    return None if whole is None else (int(head[9:12]), whole)


def _joined(body: bytes) -> bytes:
    """The body of an answer that came in chunks."""
    pieces, at = [], 0
    while size := int(body[at : (end := body.index(b"\r\n", at))], 16):
        pieces.append(body[end + 2 : end + 2 + size])
        at = end + 2 + size + 2
    return b"".join(pieces)
