"""The HTTP protocol of the server with limits that uvicorn does not set: for connections, heads, patience and readers.

A stranger who shows no token must not be able to fill the memory, to hold connections open by saying nothing, or to
keep others out: when there are too many such connections, the oldest goes. What is refused is answered, and the rest
of what is being sent is read and thrown away for a moment, for closing at once would take the answer back. How long a
body may be is in `api/server/messages.py`.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from phalanx.api.schema.documents import PROBLEM_TYPE, retry_after_s, spell_problem
from phalanx.api.server.limits import Place, StreamLimit, Unauthenticated
from phalanx.api.server.messages import CONNECTION, HttpRequest
from phalanx.duplex import Duplex
from phalanx.errors import BadRequest, PhalanxError, TooLarge, TooMany

PHRASES = {400: b"Bad Request", 413: b"Content Too Large", 429: b"Too Many Requests"}
PIECE_BYTES = 16 * 1024  # of pipelined requests that are looked at before those in it are answered
LINGER_S, LINGER_QUIET_S = 5.0, 0.25
LINGERING_MAX = 64


class Connections:
    """All connections of one server: unauthenticated ones, those whose user is known, those that are being closed."""

    def __init__(self, known: int, unauthenticated: int) -> None:
        self.known = StreamLimit(known, "connections")
        self.unauthenticated: Unauthenticated[BoundedProtocol] = Unauthenticated(unauthenticated)
        self.lingering: dict[BoundedProtocol, None] = {}


class BoundedProtocol(HttpToolsProtocol):
    """One connection. Errors before there is a request are problem+json as well."""

    known_max: ClassVar[int] = 4096
    unauthenticated_max: ClassVar[int] = 1024
    head_bytes_max: ClassVar[int] = 64 * 1024
    request_s_max: ClassVar[float] = (
        30.0  # for a request to come whole, the first counted from the connection
    )
    stall_s_max: ClassVar[float] = 60.0  # for a reader to take something of what it asked for

    _head_bytes = 0
    _in_head = False
    _in_request = False
    _has_ended = False  # a request ended within the bytes that were read last
    _timer: asyncio.TimerHandle | None = None
    _stall: asyncio.TimerHandle | None = None
    _linger: asyncio.TimerHandle | None = None
    _linger_bytes = 0
    _waits_for_reader = False  # however long it takes nothing: the kernel says when it is gone
    _place: Place | None = None
    _held = b""  # pipelined requests that nobody has looked at yet
    _switched: Duplex | None = None  # another protocol has the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast(asyncio.Transport, Lingering(transport, self)))
        self.table = connections_of(self.server_state, self)
        oldest = self.table.unauthenticated.add(self.client[0] if self.client else "", self)
        if oldest is not None:
            oldest.make_room()
        if not self.transport.is_closing():
            self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        for timer in (self._stall, self._linger):
            if timer is not None:
                timer.cancel()
        self.table.unauthenticated.remove(self)
        self.table.lingering.pop(self, None)
        if self._place is not None:
            self.table.known.give(self._place)
        self._held = b""
        if self._switched is not None:
            self._switched.connection_lost(exc)
        super().connection_lost(exc)

    def identify(self, http_request: HttpRequest) -> None:
        """The request on this connection carried a valid token; TooMany if its user has too many connections."""
        if self._place is None:
            self._place = self.table.known.take(http_request)
            self.table.unauthenticated.remove(self)

    def wait_for_reader(self) -> None:
        self._waits_for_reader = True

    def switch(self, protocol: str, *headers: tuple[bytes, bytes]) -> Duplex | None:
        """Change to another protocol. From now on everything is passed on to what is returned; None if it is gone.

        A client sends nothing of the new protocol before it has the answer.
        """
        if self.transport.is_closing() or self._switched is not None:
            return None
        self._stop_timer()
        self.cycle.disconnected = True  # uvicorn has nothing more to say here
        told = b"".join(b"%b: %b\r\n" % header for header in headers)
        self._raw.write(
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: %b\r\n%b\r\n"
            % (protocol.encode(), told)
        )
        self._switched = Duplex()
        self._switched.connection_made(self._raw)
        self.flow.resume_reading()
        return self._switched

    def shutdown(self) -> None:
        if self._switched is not None:
            self._switched.stopping.set()
        else:
            super().shutdown()

    def eof_received(self) -> None:
        if self._switched is not None:
            self._switched.eof_received()

    def make_room(self) -> None:
        """Another connection needs this place."""
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if (
            is_answering or self.scheme == "https"
        ):  # which would wait for the other side to agree that it is over
            self._raw.abort()
            return
        self._say(TooMany("too many unauthenticated connections", retry_after_s=1))
        self._raw.close()

    def data_received(self, data: bytes) -> None:
        if self._switched is not None:
            self._switched.data_received(data)
        elif self._linger is not None:
            self._linger_bytes += len(data)
        elif self._held or (self.pipeline and len(data) > PIECE_BYTES) or len(data) > PIECE_BYTES * 4:
            self._held += data
            self._look_further()
        else:
            self._take(data)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._held and not self.transport.is_closing():
            self._look_further()

    def pause_writing(self) -> None:
        if self._switched is not None:
            self._switched.pause_writing()
            return
        super().pause_writing()
        if self._stall is None and not self._waits_for_reader:
            self._stall = self.loop.call_later(self.stall_s_max, self._raw.abort)

    def resume_writing(self) -> None:
        if self._switched is not None:
            self._switched.resume_writing()
            return
        super().resume_writing()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def on_message_begin(self) -> None:
        self._in_request = self._in_head = True
        self._head_bytes = 0
        super().on_message_begin()
        cast(dict[str, Any], self.scope)[CONNECTION] = self

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_request, self._has_ended = False, True
        self._stop_timer()
        super().on_message_complete()
        if self.cycle is not None and self.cycle.response_complete and not self.transport.is_closing():
            self._unset_keepalive_if_required()  # it was answered before it was whole, so it idles from now on
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def send_400_response(self, msg: str) -> None:
        self._refuse(BadRequest(msg, reason="InvalidHttp"))

    def linger(self) -> None:
        """Say no more, and read what still comes until it is quiet, so that what was said arrives."""
        if self._linger is not None:
            return
        self._held = b""
        if self._raw.can_write_eof():
            self._raw.write_eof()
        self.flow.resume_reading()
        self.table.lingering[self] = None
        if len(self.table.lingering) > LINGERING_MAX:
            next(iter(self.table.lingering)).end()
        until = self.loop.time() + LINGER_S
        self._linger = self.loop.call_later(LINGER_QUIET_S, self._linger_on, until)

    def end(self) -> None:
        """Close it now, whatever is still on its way."""
        self._raw.close()

    def _linger_on(self, until: float) -> None:
        if not self._linger_bytes or self.loop.time() >= until:
            self._raw.close()
            return
        self._linger_bytes = 0
        self._linger = self.loop.call_later(LINGER_QUIET_S, self._linger_on, until)

    @property
    def is_lingering(self) -> bool:
        return self._linger is not None

    @property
    def is_receiving(self) -> bool:
        return self._in_request or bool(self._held)

    @property
    def _raw(self) -> asyncio.Transport:
        return cast(Lingering, self.transport).raw

    def _look_further(self) -> None:
        """Look at some of the bytes that are held; those behind wait until the requests before them were answered."""
        while self._held and not self.pipeline and not self.transport.is_closing():
            piece, self._held = self._held[:PIECE_BYTES], self._held[PIECE_BYTES:]
            self._take(piece)
        if self._held:
            self.flow.pause_reading()

    def _take(self, data: bytes) -> None:
        self._has_ended = False
        super().data_received(data)
        # Most requests come in one piece, and then there is nothing to count and nothing to wait for.
        if self._in_request and not self.transport.is_closing():
            if self._in_head and not self._has_ended:  # else nobody knows where in them it began
                self._count_head(len(data))
            self._start_timer()

    def _count_head(self, received: int) -> None:
        self._head_bytes += received
        if self._head_bytes > self.head_bytes_max:
            self._refuse(TooLarge(f"the headers are over the limit of {self.head_bytes_max} bytes"))

    def _refuse(self, error: PhalanxError) -> None:
        self._say(error)
        self.linger()

    def _say(self, error: PhalanxError) -> None:
        body = spell_problem(error)
        after_s = retry_after_s(error)
        head = [
            b"HTTP/1.1 %d %b" % (error.status, PHRASES[error.status]),
            b"content-type: " + PROBLEM_TYPE.encode(),
            b"content-length: %d" % len(body),
            *([] if after_s is None else [b"retry-after: %d" % after_s]),
            b"connection: close",
        ]
        cast(Lingering, self.transport).flush()  # of the answer before it
        self._raw.write(b"\r\n".join(head) + b"\r\n\r\n" + body)

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.request_s_max, self._raw.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Lingering:
    """A transport whose `close` in the middle of a request first reads the rest of it. All else is the transport's.

    The head of an answer waits for its body, which usually comes at once: written as one they cost half as much.
    """

    def __init__(self, raw: asyncio.Transport, protocol: BoundedProtocol) -> None:
        self.raw = raw
        self._protocol = protocol
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)

    def write(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/"):
            self._head = data
            self._protocol.loop.call_soon(self.flush)
            return
        if not self.is_closing():  # a pipelined request may be answered after the connection is gone
            self.raw.write(data)

    def flush(self) -> None:
        """Write a head whose body has not come yet."""
        if self._head:
            self.write(b"")

    def is_closing(self) -> bool:
        return self.raw.is_closing() or self._protocol.is_lingering

    def close(self) -> None:
        self.flush()
        if self._protocol.is_receiving and not self.raw.is_closing():
            self._protocol.linger()
        elif not self._protocol.is_lingering:
            self.raw.close()


def connections_of(server_state: ServerState, limits: BoundedProtocol) -> Connections:
    """The table of a server's connections. uvicorn gives its state to each of them, so it is kept there."""
    table = getattr(server_state, "phalanx_connections", None)
    if not isinstance(table, Connections):
        table = Connections(limits.known_max, limits.unauthenticated_max)
        set_connections(server_state, table)
    return table


def set_connections(server_state: ServerState, table: Connections) -> None:
    setattr(server_state, "phalanx_connections", table)  # noqa: B010 - uvicorn does not declare it
