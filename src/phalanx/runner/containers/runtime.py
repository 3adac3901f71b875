"""The API of a container runtime over its unix socket: podman's and Docker's speak the same, podman's a bit more.

Requests are HTTP/1.0, so an answer ends with its connection and no piece of it has a length of its own. Whoever waits
for an answer can be made to stop by `abort`, from another thread.
"""

from __future__ import annotations

import json
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

TIMEOUT_S = 30.0
ANSWER_BYTES_MAX = 16 << 20
HEAD_BYTES_MAX = 64 << 10
LINE_BYTES_MAX = 1 << 20
PIECE_BYTES = 1 << 16
DOCKER, PODMAN = "/v1.40", "/v4.0.0/libpod"  # versions of both APIs that have all we need
_NOT_FOUND = 404


class RuntimeFailed(Exception):
    """The runtime refused a request, or did not answer it; `status` is 0 without an answer."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status

    @property
    def is_missing(self) -> bool:
        """Whether there is no such container or image."""
        return self.status == _NOT_FOUND


class RuntimeConnection:
    """One request and its answer."""

    def __init__(self, path: str, timeout_s: float | None) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_s)
        self._rest = b""
        self._is_chunked = False
        try:
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise RuntimeFailed(
                f"no container runtime answers at {path}: {error.strerror or error}"
            ) from None

    def ask(self, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> int:
        """Send a request with a short body, or the head of one; returns the status of the answer."""
        self.send_head(method, path, headers)
        if body:  # a runtime may have answered a request without one, and hung up
            self.send(body)
        return self.status()

    def send_head(self, method: str, path: str, headers: dict[str, str], version: str = "1.0") -> None:
        lines = [f"{method} {path} HTTP/{version}", "Host: runtime"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.send("\r\n".join([*lines, "", ""]).encode())

    def send(self, piece: bytes) -> None:
        try:
            self._socket.sendall(piece)
        except OSError as error:
            raise RuntimeFailed(f"the container runtime hung up: {error.strerror or error}") from None

    def status(self) -> int:
        """The status of the answer; what follows its head is read by `pieces`."""
        head = b""
        while b"\r\n\r\n" not in head:
            piece = self._receive()
            head += piece
            if not piece or len(head) > HEAD_BYTES_MAX:
                raise RuntimeFailed("the container runtime gave no answer that is HTTP")
        first, _, self._rest = head.partition(b"\r\n\r\n")
        self._is_chunked = b"\r\ntransfer-encoding: chunked" in first.lower()
        words = first.split(None, 2)
        if len(words) < 2 or not words[1].isdigit():
            raise RuntimeFailed("the container runtime gave no answer that is HTTP")
        return int(words[1])

    def pieces(self) -> Iterator[bytes]:
        """The rest of the answer, as it comes."""
        yield from _unchunked(self._raw_pieces()) if self._is_chunked else self._raw_pieces()

    def _raw_pieces(self) -> Iterator[bytes]:
        if self._rest:
            yield self._rest
            self._rest = b""
        while piece := self._receive():
            yield piece

    def abort(self) -> None:
        """Whoever waits for an answer here gets no more of it."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def end_sending(self) -> None:
        """Nothing more is sent; what comes is still read."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def close(self) -> None:
        self._socket.close()

    def wait_without_limit(self) -> None:
        self._socket.settimeout(None)

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(PIECE_BYTES)
        except TimeoutError:
            raise RuntimeFailed("the container runtime does not answer") from None
        except OSError as error:
            raise RuntimeFailed(f"the container runtime hung up: {error.strerror or error}") from None


class Runtime:
    """A runtime at a socket."""

    def __init__(self, path: str) -> None:
        self.path = path

    def call(
        self, method: str, path: str, body: Any = None, timeout_s: float | None = TIMEOUT_S
    ) -> dict[str, Any]:
        """One request; its answer if that is an object, `{"list": …}` if it is a list. Raises RuntimeFailed."""
        connection = RuntimeConnection(self.path, timeout_s)
        try:
            content = b"" if body is None else json.dumps(body).encode()
            headers = {"Content-Type": "application/json", "Content-Length": str(len(content))}
            status = connection.ask(method, path, headers, content)
            answer = _all(connection)
        finally:
            connection.close()
        if status >= 400:
            raise RuntimeFailed(message_of(answer) or f"the container runtime answered {status}", status)
        return _object(answer)

    def lines(
        self, path: str, begun: Callable[[RuntimeConnection], None], source: Iterator[bytes] | None = None
    ) -> Iterator[dict[str, Any]]:
        """A long request, whose answer is one object after another; `source` is its body. Raises RuntimeFailed."""
        connection = RuntimeConnection(self.path, None)
        begun(connection)
        try:
            if source is None:
                connection.send_head("POST", path, {"Content-Length": "0"})
            else:
                headers = {"Content-Type": "application/x-tar", "Transfer-Encoding": "chunked"}
                connection.send_head("POST", path, {**headers, "Connection": "close"}, "1.1")
                _send_chunks(connection, source)
            status = connection.status()
            if status >= 400:
                raise RuntimeFailed(message_of(_all(connection)) or f"the runtime answered {status}", status)
            yield from _objects(connection.pieces())
        finally:
            connection.close()

    def attach(self, id: str, stdin: bool = False) -> RuntimeConnection:
        """The output of a container: frames of 8 bytes (the stream, three zeros, the length) and their content.

        With `stdin` what is sent over the connection is the container's standard input.
        """
        connection = RuntimeConnection(self.path, TIMEOUT_S)
        path = f"{DOCKER}/containers/{id}/attach?stream=1&stdout=1&stderr=1{'&stdin=1' if stdin else ''}"
        connection.send_head("POST", path, {"Connection": "Upgrade", "Upgrade": "tcp"}, "1.1")
        if (status := connection.status()) not in (101, 200):
            text = message_of(_all(connection))
            connection.close()
            raise RuntimeFailed(text or f"the container runtime answered {status}", status)
        connection.wait_without_limit()
        return connection


def message_of(answer: bytes) -> str:
    """The sentence in an answer that is an error."""
    found = _object(answer)
    text = found.get("message") or found.get("cause") or found.get("error") or ""
    return str(text).strip()


def _all(connection: RuntimeConnection) -> bytes:
    found = bytearray()
    for piece in connection.pieces():
        found += piece
        if len(found) > ANSWER_BYTES_MAX:
            raise RuntimeFailed(f"an answer of the container runtime has more than {ANSWER_BYTES_MAX} bytes")
    return bytes(found)


def _unchunked(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The content of pieces that each have a length before them, until one has none."""
    rest = b""
    for piece in pieces:
        rest += piece
        while b"\r\n" in rest:
            size, _, after = rest.partition(b"\r\n")
            length = _length(size)
            if not length:
                return
            if len(after) < length + 2:
                break
            yield after[:length]
            rest = after[length + 2 :]


def _length(text: bytes) -> int:
    try:
        return int(text.split(b";")[0], 16)
    except ValueError:
        raise RuntimeFailed("the container runtime gave no answer that is HTTP") from None


def _send_chunks(connection: RuntimeConnection, source: Iterator[bytes]) -> None:
    """A runtime that hangs up has answered: what it says of the body is read then."""
    try:
        for piece in source:
            if piece:
                connection.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        connection.send(b"0\r\n\r\n")
    except RuntimeFailed:
        return


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text) if text.strip() else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {"list": found if isinstance(found, list) else []}


def _objects(pieces: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            raise RuntimeFailed("the container runtime gave no answer that can be read")
        yield from (_object(line) for line in whole if line.strip())
    if rest.strip():
        yield _object(rest)
