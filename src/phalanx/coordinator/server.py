"""The two servers of a coordinator process: TCP connections of runners, which carry frames, and HTTP by uvicorn.

Both have limits. What runners send is judged in `link.py` and `logs.py`; HTTP runs under our own signals.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import cast

import uvicorn

from phalanx.api.schema.documents import spell_problem
from phalanx.api.server.limits import Unauthenticated
from phalanx.api.server.protocol import BoundedProtocol, Connections, set_connections
from phalanx.coordinator.acceptor import HANDSHAKES_MAX, Acceptor
from phalanx.coordinator.descriptors import Shares
from phalanx.coordinator.link import Envelope, Links, RunnerSession
from phalanx.coordinator.logs import LogLinks
from phalanx.duplex import Duplex
from phalanx.errors import BadRequest
from phalanx.link import wire
from phalanx.link.session_messages import SessionHello, SessionTaken
from phalanx.link.usage import UsageData
from phalanx.link.vps import SnapshotsTold
from phalanx.logger import logger
from phalanx.tls import peer_node

log = logger("coordinator")
HELLO_WITHIN_S = 10.0
LINGER_S = 1.0
TELL_EVERY_S = 1.0
CONNECTIONS_MAX = 20_000
STRANGERS_MAX = 512  # connections that were not let in yet
STRANGERS_FRAME_MAX = 512 * 1024  # a hello that lists ten thousand attempts fits
STRANGERS_BYTES_MAX = 16 * 1024 * 1024  # of all that they have begun to say
BUFFER_MAX = 64 * 1024 * 1024
LINK_NEEDS_TLS = wire.pack(
    wire.Rejected(
        "TlsRequired", "this port speaks TLS: give runner.tls_ca_file (`phalanx ca` makes it)", False
    )
)


class RunnerConnections(set["RunnerConnection"]):
    """All connections. Strangers among them may neither say much nor be many: they could fill the memory.

    When there are too many, the one who has stood there longest goes: a runner says hello at once. When they have said
    too much together, the one goes who has said most.
    """

    def __init__(self, known: int = CONNECTIONS_MAX, strangers: int = STRANGERS_MAX) -> None:
        super().__init__()
        self.known_max = known
        self.strangers: Unauthenticated[RunnerConnection] = Unauthenticated(strangers)
        self.said: dict[RunnerConnection, int] = {}  # by strangers, in bytes that are not a whole frame yet
        self._bytes = 0
        self._told_at = -TELL_EVERY_S
        self._untold = 0

    def hear(self, connection: RunnerConnection, pending: int) -> None:
        """A stranger has said so much of a frame."""
        self._bytes += pending - self.said.get(connection, 0)
        self.said[connection] = pending
        if self._bytes > STRANGERS_BYTES_MAX:
            max(self.said, key=self.said.__getitem__).abort()

    def tell(self, why: str) -> None:
        """Once a second, so that strangers cannot fill the log."""
        now = asyncio.get_running_loop().time()
        self._untold += 1
        if now - self._told_at >= TELL_EVERY_S:
            log.warning("connection refused", error=why, refused=self._untold)
            self._told_at, self._untold = now, 0

    def forget(self, connection: RunnerConnection) -> None:
        """It is no stranger any more, or it is gone."""
        self.strangers.remove(connection)
        self._bytes -= self.said.pop(connection, 0)


class RunnerConnection(asyncio.Protocol):
    """One connection. Its first message says whether it is for control or for logs."""

    def __init__(
        self, links: Links, log_links: LogLinks, post: Callable[[Envelope], bool], all: RunnerConnections
    ) -> None:
        self._links = links
        self._log_links = log_links
        self._post = post
        self._all = all
        self._unpacker = wire.Unpacker(STRANGERS_FRAME_MAX)
        self._session = RunnerSession(self)
        self._is_log_link = False
        self._duplex: Duplex | None = None  # what goes on with the connection of a session
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._is_refused = False  # what it still says is thrown away

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without being one by name
        self._session.where = _address(transport)
        self._session.peer_name = peer_node(transport.get_extra_info("ssl_object"))
        self._all.add(self)
        if len(self._all) - len(self._all.strangers) > self._all.known_max:
            self.abort()
            return
        oldest = self._all.strangers.add(self._session.where.rpartition(":")[0], self)
        if oldest is not None:
            oldest.abort()
        self._deadline = asyncio.get_running_loop().call_later(HELLO_WITHIN_S, self._give_up)

    def data_received(self, data: bytes) -> None:
        if self._duplex is not None:
            self._duplex.data_received(data)
            return
        if self._is_refused:
            return
        try:
            for message in self._unpacker.feed(data):
                self._receive(message)
            if self in self._all.strangers:
                self._all.hear(self, self._unpacker.pending)
        except wire.WireError as error:
            self._all.tell(str(error))
            self._refuse(str(error))

    def eof_received(self) -> None:
        """The peer has closed its side: if it had not said hello by then, it gets an error."""
        if self._duplex is not None:
            self._duplex.eof_received()
        elif self._unpacker.pending and not self._is_refused:
            self._refuse("the connection ended within a frame")

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.discard(self)
        self._let_in()  # nobody waits before the door any more
        self._unpacker = wire.Unpacker()
        if self._deadline is not None:
            self._deadline.cancel()
        if self._duplex is not None:
            self._duplex.connection_lost(exc)
        elif self._is_log_link:
            self._log_links.closed(self)
        elif (envelope := self._links.closed(self._session)) is not None:
            self._post(envelope)

    def pause_writing(self) -> None:
        if self._duplex is not None:
            self._duplex.pause_writing()

    def resume_writing(self) -> None:
        if self._duplex is not None:
            self._duplex.resume_writing()

    def send(self, messages: list[wire.Message]) -> None:
        if self._session.node and self in self._all.strangers:  # this is its welcome
            self._let_in()
        if self._transport is None or self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() > BUFFER_MAX:  # a runner that no longer reads
            self._transport.abort()
            return
        self._transport.write(b"".join(map(wire.pack, messages)))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End it at once, and forget it: it need not be told."""
        self._all.forget(self)
        self._is_refused = True
        self._unpacker = wire.Unpacker()
        if self._transport is not None:
            self._transport.abort()

    def _let_in(self) -> None:
        self._all.forget(self)
        self._unpacker.frame_max = wire.FRAME_MAX

    def _give_up(self) -> None:
        self._refuse(f"no hello within {HELLO_WITHIN_S:.0f} s")

    def _refuse(self, why: str) -> None:
        """Say why, and read what still comes for a moment: closing at once would take the words back."""
        if self._session.node or self._transport is None:  # a runner dials again, and tells again
            self.close()
            return
        self._is_refused = True
        self._unpacker = wire.Unpacker(STRANGERS_FRAME_MAX)
        if not self._transport.is_closing():
            self._transport.write(wire.pack(wire.Rejected("NotUnderstood", why, True)))
            if self._transport.can_write_eof():
                self._transport.write_eof()
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(LINGER_S, self.close)

    def _receive(self, message: wire.Message) -> None:
        is_hello = isinstance(message, wire.HelloMessage | wire.LogHello | SessionHello)
        if is_hello and self._deadline is not None:
            self._deadline.cancel()
        if self._links.not_active is not None:  # whatever it wants, the active coordinator is elsewhere
            self.send([self._links.not_active])
            self.close()
        elif isinstance(message, wire.LogHello):
            self._is_log_link = self._log_links.opened(self, message, self._session.peer_name)
            if self._is_log_link:
                self._let_in()
        elif isinstance(message, SessionHello) and not self._session.node and not self._is_log_link:
            self._open_session(message)
        elif self._is_log_link and isinstance(message, wire.PutFile):
            self._log_links.put(self, message)
        elif isinstance(message, wire.LogData | UsageData | SnapshotsTold):
            self._log_links.arrived(self, message)
        elif not self._session.node and not isinstance(message, wire.HelloMessage):
            raise wire.WireError("the first message must be a hello")
        elif (envelope := self._links.receive(self._session, message)) is not None and not self._post(
            envelope
        ):
            self.close()  # nobody will read it: the runner dials again, and tells again

    def _open_session(self, hello: SessionHello) -> None:
        arrivals = self._log_links.sessions
        no_session = wire.Rejected("NoSession", "this coordinator opens no sessions", False)
        refusal = (
            no_session
            if arrivals is None
            else arrivals.arrived(hello, self._session.peer_name, self._go_on_with)
        )
        if refusal is not None:
            self._is_refused = True
            self.send([refusal])
            self.close()

    def _go_on_with(self, duplex: Duplex) -> None:
        assert self._transport is not None
        self._let_in()
        self.send([SessionTaken()])
        self._duplex = duplex
        duplex.connection_made(self._transport)


def _address(transport: asyncio.BaseTransport) -> str:
    name = transport.get_extra_info("peername")
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else ""


async def serve(
    host: str,
    port: int,
    links: Links,
    log_links: LogLinks,
    post: Callable[[Envelope], bool],
    tls: Callable[[], ssl.SSLContext] | None = None,
    room: Shares | None = None,
) -> tuple[Acceptor, RunnerConnections]:
    """Listen for runners, with TLS if `tls` gives a context for it."""
    known, strangers = (
        (CONNECTIONS_MAX, STRANGERS_MAX) if room is None else (room.link_known, room.link_unauthenticated)
    )
    addresses = RunnerConnections(known, strangers)

    def make() -> RunnerConnection:
        return RunnerConnection(links, log_links, post, addresses)

    return await Acceptor.open(host, port, tls, make, LINK_NEEDS_TLS, strangers), addresses


class RestServer(uvicorn.Server):
    """uvicorn without its own signal handling, which would end the process before our last words.

    The acceptor listens in its place: uvicorn knows no limit for a handshake, no new certificate, and admits whoever
    comes before it serves who is in.
    """

    tls: Callable[[], ssl.SSLContext] | None = None
    unauthenticated_max = HANDSHAKES_MAX

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._listens = asyncio.Event()

    async def port(self) -> int:
        """Where it listens, as soon as it does."""
        await self._listens.wait()
        found: int = self.servers[0].sockets[0].getsockname()[1]
        return found

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        self.started = False
        acceptor = await Acceptor.open(
            self.config.host,
            self.config.port,
            self.tls,
            self._protocol,
            REST_NEEDS_TLS,
            self.unauthenticated_max,
        )
        self.servers = [cast(asyncio.Server, acceptor)]
        self.started = True
        self._listens.set()

    def _protocol(self) -> asyncio.Protocol:
        return BoundedProtocol(self.config, self.server_state, self.lifespan.state)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def rest_server(
    app: Callable[..., Awaitable[None]],
    host: str,
    port: int,
    tls: Callable[[], ssl.SSLContext] | None = None,
    room: Shares | None = None,
) -> RestServer:
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="error",  # what is not HTTP gets its answer, and strangers cannot fill the log with it
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=2,
        http=BoundedProtocol,
        ws="none",
        proxy_headers=False,
        server_header=False,
        date_header=True,  # `phalanx doctor` compares clocks by it
    )
    server = RestServer(config)
    server.tls = tls
    if room is not None:
        server.unauthenticated_max = room.rest_unauthenticated
        set_connections(server.server_state, Connections(room.rest_known, room.rest_unauthenticated))
    return server


def _needs_tls() -> bytes:
    body = spell_problem(
        BadRequest("this port speaks TLS", reason="TlsRequired", hint="write https:// instead")
    )
    head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\nconnection: close\r\n"
    return head + b"content-length: %d\r\n\r\n" % len(body) + body


REST_NEEDS_TLS = _needs_tls()
