"""Servers for the tests of the clients: a real one, and one that follows a script, hanging up when told to."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from phalanx.api.server.messages import App
from phalanx.api.server.protocol import BoundedProtocol

CUT = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Phalanx-Attempt: 1\r\n"


@contextmanager
def serving(app: App, protocol: type[BoundedProtocol] = BoundedProtocol) -> Iterator[str]:
    """The app behind uvicorn, as in production. Yields its address."""
    config = uvicorn.Config(
        app, http=protocol, loop="uvloop", lifespan="off", log_config=None, ws="none", proxy_headers=False
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = server.force_exit = True
            thread.join()


class Script:
    """Answers each request with the next of `answers`, and hangs up after one that asks for it or is None."""

    def __init__(self, answers: list[bytes | None]) -> None:
        self.answers = list(answers)
        self.requests: list[bytes] = []
        self.connections = 0
        self.hung_up = threading.Event()

    def serve(self, listening: socket.socket) -> None:
        while self.answers:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            self.connections += 1
            with connection:
                self._talk(connection)
            self.hung_up.set()

    def _talk(self, connection: socket.socket) -> None:
        while self.answers:
            request = _read_request(connection)
            if not request:
                return
            self.requests.append(request)
            answer = self.answers.pop(0)
            if answer is None:
                return
            connection.sendall(answer)
            if not answer.startswith(b"HTTP/1.1 200 OK\r\nContent-Length") or b"connection: close" in answer:
                return


@contextmanager
def scripted(answers: list[bytes | None]) -> Iterator[tuple[str, Script]]:
    script = Script(answers)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=script.serve, args=(listening,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}", script
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def an_answer(body: bytes, *, last: bool = False) -> bytes:
    """A whole answer; after the `last` the server says nothing, and hangs up."""
    close = b"connection: close\r\n" if last else b""
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%b\r\n%b" % (len(body), close, body)


def a_cut_stream(*pieces: bytes, offset: int = 0, size: int = 0, gap: int = 0) -> bytes:
    """The beginning of a stream whose end never comes."""
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    place = b"X-Phalanx-Offset: %d\r\nX-Phalanx-Size: %d\r\nX-Phalanx-Gap: %d\r\n\r\n" % (offset, size, gap)
    return CUT + place + chunks


def a_stream(*pieces: bytes, offset: int = 0, size: int = 0, gap: int = 0) -> bytes:
    return a_cut_stream(*pieces, offset=offset, size=size, gap=gap) + b"0\r\n\r\n"


def a_free_address() -> str:
    """An address at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"http://127.0.0.1:{listening.getsockname()[1]}"


def _read_request(connection: socket.socket) -> bytes:
    request = b""
    while b"\r\n\r\n" not in request:
        piece = connection.recv(65_536)
        if not piece:
            return b""
        request += piece
    head, _, body = request.partition(b"\r\n\r\n")
    length = next(
        (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
    )
    while len(body) < length:
        body += connection.recv(65_536)
    return head + b"\r\n\r\n" + body
