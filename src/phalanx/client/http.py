"""The way calls travel: the seam that every transport fills, and HTTP with the standard library alone.

A transport carries one call and gives its answer. It raises Unavailable when nobody answers: with the reason
`Unreachable` if no connection came about, `Untrusted` if certificates rule it out, `Dropped` if one was cut,
`TimedOut` if nothing came in time, `NotHttp` if something else listens there.

`HttpTransport` carries a call to whichever of its addresses leads; how to look for that one is decided in `leader.py`.
It needs nothing but the standard library, because the command line must start fast. An `AddressPool` is one address:
its connections are kept alive between calls, as many as there are threads that call at once; a stream gets one of its
own.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import (
    BadStatusLine,
    HTTPConnection,
    HTTPException,
    HTTPResponse,
    HTTPSConnection,
    LineTooLong,
)
from typing import Any, Protocol
from urllib.parse import urlsplit
from weakref import WeakSet

from phalanx.api.schema.documents import read_problem
from phalanx.client.calls import Call
from phalanx.client.leader import PATIENCE_S, KnownLeader, LeaderSearch, safe_addresses
from phalanx.clock import SystemClock
from phalanx.errors import BadRequest, PhalanxError, Unavailable
from phalanx.tls import explain

PIECE_BYTES = 64 * 1024


class Answer(Protocol):
    """Header names are in lower case. A caller that has not read all `pieces` must `close`."""

    status: int
    headers: Mapping[str, str]

    def pieces(self) -> Iterator[bytes]: ...

    def close(self) -> None: ...


class Transport(Protocol):
    def send(self, call: Call[Any], token: str) -> Answer: ...

    def close(self) -> None: ...


class AsyncAnswer(Protocol):
    """The same, with `await`."""

    status: int
    headers: Mapping[str, str]

    def pieces(self) -> AsyncIterator[bytes]: ...

    async def aclose(self) -> None: ...


class AsyncTransport(Protocol):
    async def send(self, call: Call[Any], token: str) -> AsyncAnswer: ...

    async def close(self) -> None: ...


class WholeAnswer:
    """An answer that has been read to its end."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def pieces(self) -> Iterator[bytes]:
        yield self.body

    def close(self) -> None:
        pass


async def read_whole(answer: AsyncAnswer) -> bytes:
    return b"".join([piece async for piece in answer.pieces()])


def unreachable(address: str, why: BaseException) -> Unavailable:
    """No connection came about, because nobody is there or because TLS did not prove who is."""
    said = explain(why)
    if said is not None and said.is_lasting:
        return Unavailable(f"cannot trust {address}: {said.text}", reason="Untrusted", hint=said.hint)
    if said is not None:
        return Unavailable(f"cannot reach {address}: {said.text}", reason="Unreachable", hint=said.hint)
    hint = "is the coordinator running? start one with: phalanx up"
    if address.startswith("http://") and urlsplit(address).port is None:
        hint = f"the address has no port, so port 80 was tried; that of a coordinator is mostly 7433: {address}:7433"
    return Unavailable(f"cannot reach {address}: {why}", reason="Unreachable", hint=hint)


def dropped(address: str, why: object) -> Unavailable:
    said = explain(why) if isinstance(why, BaseException) else None
    if said is not None:
        return Unavailable(f"{address} cut the connection: {said.text}", reason="Dropped", hint=said.hint)
    return Unavailable(f"the connection to {address} was cut: {why}", reason="Dropped")


def not_http(address: str) -> Unavailable:
    """The answer is not that of a Phalanx coordinator."""
    return Unavailable(
        f"what listens at {address} does not speak HTTP",
        reason="NotHttp",
        hint="is this the port for runners (7434 by default)? clients have another (7433)",
    )


def timed_out(address: str, after_s: float | None) -> Unavailable:
    return Unavailable(f"{address} gave no answer within {after_s or 0:g} s", reason="TimedOut")


SEARCH_TOLD_S = 1.0


class HttpTransport:
    """Carries calls to the coordinator that leads, at one of `addresses`, such as http://127.0.0.1:7433."""

    def __init__(
        self,
        addresses: str | Sequence[str],
        tls: ssl.SSLContext | None = None,
        *,
        vouched: bool = False,
        patience_s: float = PATIENCE_S,
        on_stale: Callable[[str], None] | None = None,
        on_search: Callable[[PhalanxError], None] | None = None,
    ) -> None:
        """`tls` serves all https addresses; with `vouched` it believes none but our own authority.

        `on_stale` gets the age in seconds of an answer that a standby gave, because no coordinator is active.
        `on_search` gets what the last one said, once a call has been looking for a leader for a second.
        """
        self._known_leader = KnownLeader(safe_addresses(addresses), vouched=vouched)
        self._tls = tls
        self._on_stale, self._on_search = on_stale, on_search
        self._patience_s = patience_s
        self._clock = SystemClock()
        self._closed = threading.Event()
        self._pools = {each: self._opened(each) for each in self._known_leader.given}

    def send(self, call: Call[Any], token: str) -> Answer:
        """Carry a call; one whose repetition does no harm is carried again if its connection was cut."""
        search, since = LeaderSearch(self._known_leader, call, self._patience_s), None
        while True:
            try:
                return self._try(search, call, token)
            except PhalanxError as error:
                now = self._clock.monotonic()
                pause_s = search.failed(error, now)
                since = now if since is None else since
                if self._on_search is not None and now - since >= SEARCH_TOLD_S:
                    self._on_search(error)
                if self._closed.wait(pause_s):
                    raise

    def leads_at(self) -> tuple[str, ssl.SSLContext | None]:
        """Where the leader was last found, and how to speak TLS there."""
        return self._known_leader.leader, self._tls

    def close(self) -> None:
        """Close what is idle, and wake the threads that use the others: each closes its own."""
        self._closed.set()
        for pool in list(self._pools.values()):
            pool.close()

    def _try(self, search: LeaderSearch, call: Call[Any], token: str) -> Answer:
        pool = self._pools.get(search.address) or self._opened(search.address)
        self._pools[search.address] = pool
        answer = pool.send(call, call.headers_with(token, search.headers), search)
        if answer.status < 400:
            search.found()
            if self._on_stale is not None and (behind := answer.headers.get("phalanx-behind")):
                self._on_stale(behind)
            return answer
        with closing(answer):
            whole = WholeAnswer(answer.status, answer.headers, b"".join(answer.pieces()))
        problem = read_problem(whole.status, whole.body, whole.headers.get("retry-after"))
        if search.doubts(problem):
            raise problem
        search.found()
        return whole

    def _opened(self, address: str) -> AddressPool:
        return AddressPool(address, self._known_leader, self._tls)


class AddressPool:
    """One address, and the connections to it."""

    def __init__(self, address: str, known_leader: KnownLeader, tls: ssl.SSLContext | None) -> None:
        self._address = address
        self._known_leader = known_leader
        self._tls = tls
        self._parts = urlsplit(address)
        if not self._parts.hostname:
            raise BadRequest(f"address {address!r} is not one: write http://HOST:PORT")
        self._closed = False
        self._idle: list[HTTPConnection] = []
        self._all: WeakSet[HTTPConnection] = WeakSet()

    def send(self, call: Call[Any], headers: Mapping[str, str], search: LeaderSearch) -> Answer:
        connection = self._made(search) if call.streams else self._kept(search)
        with self._closed_if_it_fails(connection, search.answer_s):
            sock, response = self._sent(connection, call, headers, search)
            if call.streams:
                sock.settimeout(search.silence_s)
                return StreamAnswer(response, connection, self, search.silence_s)
            with response:  # closed now: Python loses an interrupt that comes in a finalizer
                answer = WholeAnswer(response.status, _headers(response), response.read())
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)
        return answer

    def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().close()
        for connection in list(self._all):
            with suppress(OSError, AttributeError):  # it may lose its socket at this moment
                connection.sock.shutdown(socket.SHUT_RDWR)

    def lost(self, error: Unavailable) -> Unavailable:
        """A stream from here has failed: if it was cut, resuming it tries another address first."""
        if error.reason == "Dropped":
            self._known_leader.lost(self._address)
        return error

    @contextmanager
    def told(self, within_s: float | None) -> Iterator[None]:
        """Errors of sockets, in our words."""
        try:
            yield
        except TimeoutError:
            raise timed_out(self._address, within_s) from None
        except (OSError, HTTPException) as error:
            if type(error) in (BadStatusLine, LineTooLong):
                raise not_http(self._address) from None
            raise dropped(self._address, error) from None

    @contextmanager
    def _closed_if_it_fails(self, connection: HTTPConnection, within_s: float | None) -> Iterator[None]:
        """After an error or an interrupt, what is still to come must not answer the next call."""
        with ExitStack() as undo:
            undo.callback(connection.close)
            with self.told(within_s):
                yield
            undo.pop_all()

    def _kept(self, search: LeaderSearch) -> HTTPConnection:
        """A connection for one call. One that the server closed while it was idle is not used again."""
        try:
            connection = self._idle.pop()
        except IndexError:
            return self._made(search)
        if connection.sock is not None and _is_closed(connection.sock):
            connection.close()  # it opens again by itself
        return connection

    def _made(self, search: LeaderSearch) -> HTTPConnection:
        host, port, timeout_s = self._parts.hostname or "", self._parts.port, search.connect_s
        if self._parts.scheme == "https":
            connection: HTTPConnection = HTTPSConnection(host, port, timeout=timeout_s, context=self._tls)
        else:
            connection = HTTPConnection(host, port, timeout=timeout_s)
        self._all.add(connection)
        return connection

    def _sent(
        self, connection: HTTPConnection, call: Call[Any], headers: Mapping[str, str], search: LeaderSearch
    ) -> tuple[socket.socket, HTTPResponse]:
        if connection.sock is None:
            self._connect(connection)
        sock = connection.sock
        sock.settimeout(search.answer_s)
        connection.request(call.method, call.target, call.body, dict(headers))
        return sock, connection.getresponse()

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
        self, response: HTTPResponse, connection: HTTPConnection, pool: AddressPool, silence_s: float | None
    ) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = _headers(response)
        self._response = response
        self._connection = connection
        self._pool = pool
        self._silence_s = silence_s

    def pieces(self) -> Iterator[bytes]:
        try:
            with self._pool.told(self._silence_s):
                while piece := self._response.read1(PIECE_BYTES):
                    yield piece
        except Unavailable as error:
            raise self._pool.lost(error) from None
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
