"""Calls over HTTP with the standard library alone, because the command line must start fast.

Connections are kept alive between calls, as many as there are threads that call at once; a stream gets one of
its own.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakSet

from phalanx.api.calls import Call
from phalanx.api.exchange import Answer, WholeAnswer, dropped, timed_out, unreachable
from phalanx.errors import BadRequest, Unavailable

CONNECT_S = 5.0
PIECE_BYTES = 64 * 1024


class HttpExchange:
    """Carries calls to the coordinator at `address`, such as http://127.0.0.1:7433."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._site = urlsplit(address)
        if self._site.scheme not in ("http", "https") or not self._site.hostname:
            raise BadRequest(f"address {address!r} is not one: write http://HOST:PORT")
        self._closed = False
        self._idle: list[HTTPConnection] = []
        self._all: WeakSet[HTTPConnection] = WeakSet()

    def send(self, call: Call[Any], token: str) -> Answer:
        """Carry a call; one whose repetition does no harm is carried again if its connection was cut."""
        if call.streams:
            return self._stream(call, token)
        try:
            return self._ask(call, token)
        except Unavailable as error:
            if error.reason != "Dropped" or not call.repeatable:
                raise
        return self._ask(call, token)

    def close(self) -> None:
        """Close what is idle, and wake the threads that use the others: each closes its own."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()
        for connection in list(self._all):
            with suppress(OSError, AttributeError):  # it may lose its socket at this moment
                connection.sock.shutdown(socket.SHUT_RDWR)

    def _ask(self, call: Call[Any], token: str) -> WholeAnswer:
        connection = self._kept()
        with self._closed_if_it_fails(connection, call):
            response = self._sent(connection, call, token)
            answer = WholeAnswer(response.status, _headers(response), response.read())
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)
        return answer

    def _stream(self, call: Call[Any], token: str) -> StreamAnswer:
        connection = self._opened()
        with self._closed_if_it_fails(connection, call):
            return StreamAnswer(self._sent(connection, call, token), connection, self._address, call)

    @contextmanager
    def _closed_if_it_fails(self, connection: HTTPConnection, call: Call[Any]) -> Iterator[None]:
        """After an error or an interrupt, what is still to come must not answer the next call."""
        with ExitStack() as undo:
            undo.callback(connection.close)
            try:
                yield
            except TimeoutError:
                raise timed_out(self._address, call) from None
            except (OSError, HTTPException) as error:
                raise dropped(self._address, error) from None
            undo.pop_all()

    def _kept(self) -> HTTPConnection:
        """A connection for one call. One that the server closed while it was idle is not used again."""
        try:
            connection = self._idle.pop()
        except IndexError:
            return self._opened()
        if connection.sock is not None and _is_closed(connection.sock):
            connection.close()  # it opens again by itself
        return connection

    def _opened(self) -> HTTPConnection:
        kind = HTTPSConnection if self._site.scheme == "https" else HTTPConnection
        connection = kind(self._site.hostname or "", self._site.port, timeout=CONNECT_S)
        self._all.add(connection)
        return connection

    def _sent(self, connection: HTTPConnection, call: Call[Any], token: str) -> HTTPResponse:
        if connection.sock is None:
            self._connect(connection)
        connection.sock.settimeout(call.timeout_s)
        connection.request(call.method, call.target, call.body, call.headers_with(token))
        return connection.getresponse()

    def _connect(self, connection: HTTPConnection) -> None:
        try:
            connection.connect()
        except OSError as error:
            raise unreachable(self._address, error) from None
        # A stream may be silent for hours; the kernel notices if the other machine is gone.
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


class StreamAnswer:
    """An answer that still flows, on a connection of its own."""

    def __init__(
        self, response: HTTPResponse, connection: HTTPConnection, address: str, call: Call[Any]
    ) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = _headers(response)
        self._response = response
        self._connection = connection
        self._address = address
        self._call = call

    def pieces(self) -> Iterator[bytes]:
        try:
            while piece := self._response.read1(PIECE_BYTES):
                yield piece
        except TimeoutError:
            raise timed_out(self._address, self._call) from None
        except (OSError, HTTPException) as error:
            raise dropped(self._address, error) from None
        finally:
            self.close()

    def close(self) -> None:
        self._response.close()
        self._connection.close()


def _headers(response: HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


def _is_closed(sock: socket.socket) -> bool:
    """Nothing should come between two calls; if something can be read, it is the end of the connection."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))
