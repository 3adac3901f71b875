"""The runner's connections to its coordinator: one for control, one for logs, both dialled by the runner.

A connection that breaks is dialled again with growing pauses, at the address that `addresses` chooses. `turn.py` and
`logs.py` decide what is sent; here are only sockets.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, cast

from phalanx.duplex import Duplex
from phalanx.link import wire
from phalanx.logger import logger
from phalanx.runner.addresses import LinkAddresses
from phalanx.tls import ClientTls, explain

log = logger("runner")
PAUSE_FIRST_S, PAUSE_MAX_S = 0.05, 0.6
DIAL_WITHIN_S = 5.0
DIAL_ONE_OF_MANY_WITHIN_S = 2.0
ANSWER_WITHIN_S = 3.0  # of one of several addresses; a coordinator that does not answer may be frozen


class LinkClient(Protocol):
    """The user of a connection."""

    def connected(self, wire_out: Wire) -> None: ...

    def received(self, message: wire.Message) -> None: ...

    def settled(self) -> None:
        """All that had arrived has been received."""
        ...

    def disconnected(self) -> None: ...


class Wire(asyncio.Protocol):
    """One connection, from dialling to its end. A redirect by a standby is not passed on to the client.

    Reports are sent as fast as the coordinator takes them. All else overtakes them: a heartbeat that waited behind
    megabytes of ends would come too late.
    """

    def __init__(self, client: LinkClient, on_welcome: Callable[[], None] | None = None) -> None:
        self._client = client
        self._on_welcome = on_welcome
        self._unpacker = wire.Unpacker()
        self._transport: asyncio.Transport | None = None
        self._reports: deque[bytes] = deque()  # frames that wait until those before them are sent
        self._is_full = False
        self.sent_away: wire.Rejected | None = None
        self.refused = False  # for good
        self.trouble: Exception | None = None  # the error it ended with
        self.heard = False
        self.welcomed = False
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without inheriting from it
        self._client.connected(self)

    def data_received(self, data: bytes) -> None:
        self.heard = True
        try:
            for message in self._unpacker.feed(data):
                self._receive(message)
        except wire.WireError as error:
            log.warning("the coordinator does not speak our protocol", error=str(error))
            self.close()
        self._client.settled()

    def connection_lost(self, exc: Exception | None) -> None:
        self.trouble = exc
        self._client.disconnected()
        if not self.ended.done():
            self.ended.set_result(None)

    def send(self, message: wire.Message) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if isinstance(message, wire.Reports):
            self._reports.extend(wire.frames_of(message))
            self._send_reports()
        else:
            self._transport.write(wire.pack(message))

    @property
    def is_behind(self) -> bool:
        """Whether reports wait: others need not come on top of them."""
        return bool(self._reports)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._send_reports()

    def _send_reports(self) -> None:
        while self._reports and not self._is_full and self._transport is not None:
            if self._transport.is_closing():
                return  # they are told again on the next connection
            self._transport.write(self._reports.popleft())

    @property
    def local_address(self) -> str:
        """Our own address of the connection: how others reach us too, unless there is NAT in between."""
        name = self._transport.get_extra_info("sockname") if self._transport is not None else None
        return name[0].partition("%")[0] if isinstance(name, tuple) else ""

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once and drop what is unsent: the peer does not read it."""
        if self._transport is not None:
            self._transport.abort()

    def abort_unless_heard(self) -> None:
        if not self.heard:
            self.abort()

    def _receive(self, message: wire.Message) -> None:
        if isinstance(message, wire.Rejected) and message.code == "NotActive":
            self.sent_away = message
            self.close()
            return
        self.refused = isinstance(message, wire.Rejected) and not message.retry
        self._client.received(message)
        if self.refused:
            self.close()
        is_taken = self._transport is not None and not self._transport.is_closing()
        if isinstance(message, wire.Welcome) and is_taken:
            self.welcomed = True
            if self._on_welcome is not None:
                self._on_welcome()


class Dialler:
    """Makes connections, and logs each new obstacle once."""

    def __init__(self, addresses: LinkAddresses, tls: ClientTls | None = None) -> None:
        self.addresses = addresses
        self._tls = tls
        self._warned: dict[str, str] = {}  # by address
        self.control: Wire | None = None
        self.was_welcomed = False  # by any of them

    def hello_again(self) -> None:
        """What the node has changed: the next hello, on another connection, says so."""
        if self.control is not None:
            self.control.close()

    async def dial(
        self, address: str, client: LinkClient, on_welcome: Callable[[], None] | None = None
    ) -> Wire | None:
        host, _, port = address.rpartition(":")
        within_s = DIAL_WITHIN_S if self.addresses.is_alone else DIAL_ONE_OF_MANY_WITHIN_S
        tls = None if self._tls is None else self._tls.context()
        try:
            async with asyncio.timeout(within_s):
                _, made = await asyncio.get_running_loop().create_connection(
                    lambda: Wire(client, on_welcome), host.strip("[]"), int(port), ssl=tls
                )
        except (OSError, TimeoutError) as error:
            self.warn(address, error, f"no answer within {within_s:g} s")
            return None
        return made

    async def dial_beside(self) -> Duplex:
        """A connection for one session, to where control was welcomed last; raises OSError."""
        host, _, port = self.addresses.leader.rpartition(":")
        tls = None if self._tls is None else self._tls.context()
        _, made = await asyncio.get_running_loop().create_connection(
            Duplex, host.strip("[]"), int(port), ssl=tls
        )
        return made

    def warn(self, address: str, error: Exception | None, otherwise: str) -> None:
        """Log an obstacle, unless it is the same as before."""
        explained = explain(error)
        why = f"{explained.text} ({explained.hint})" if explained else str(error or "") or otherwise
        if why != self._warned.get(address):
            log.warning("cannot reach the coordinator", address=address, error=why)
        self._warned[address] = why

    @property
    def hung_up(self) -> str:
        """What an immediate close of the connection means. With TLS 1.3 there is often no other sign.

        Where a coordinator has welcomed us it is no certificate: it stops, or another leads.
        """
        if self.was_welcomed:
            return "it closed the connection without a message"
        if self._tls is None:
            return "it closed the connection without a message (does it use TLS? give runner.tls_ca_file)"
        return (
            "it closed the connection without a message: it asks for a certificate, or refuses ours"
            " (phalanx ca issue DIR --node NAME makes one)"
        )

    def got_through(self, address: str) -> None:
        self._warned.pop(address, None)


async def keep_connected(dialler: Dialler, client: LinkClient, jitter: Callable[[], float]) -> None:
    """Control: connect, serve, and connect again, until no address will ever accept us; after a loss, others first."""
    pause_s, addresses, loop = PAUSE_FIRST_S, dialler.addresses, asyncio.get_running_loop()
    while not addresses.is_hopeless(loop.time()):
        connection = dialler.control = await dialler.dial(addresses.at, client, addresses.welcomed)
        if connection is not None:
            if not addresses.is_alone:
                loop.call_later(ANSWER_WITHIN_S, connection.abort_unless_heard)
            if await _lasted(connection) and connection.welcomed:
                pause_s = PAUSE_FIRST_S
            if connection.welcomed:
                dialler.was_welcomed = True
                log.warning("lost the coordinator; looking for the leader", address=addresses.at)
            if connection.heard:
                dialler.got_through(addresses.at)
            else:
                dialler.warn(addresses.at, connection.trouble, dialler.hung_up)
        if connection is not None and connection.sent_away is not None:
            at_once = addresses.standby(connection.sent_away.leader, loop.time())
        elif connection is not None and connection.refused:
            at_once = addresses.refused(loop.time())
        else:
            at_once = addresses.failed(loop.time(), silent=connection is None or not connection.heard)
        if not at_once:
            await asyncio.sleep(pause_s * (0.5 + jitter()))
            pause_s = min(PAUSE_MAX_S, pause_s * 2)


async def keep_beside(dialler: Dialler, client: LinkClient, jitter: Callable[[], float]) -> None:
    """The log connection: connect where control was welcomed last, and move when it is welcomed again."""
    pause_s, addresses = PAUSE_FIRST_S, dialler.addresses
    number = await addresses.welcome(0)
    while True:
        moved = asyncio.ensure_future(addresses.welcome(number))
        try:
            connection = await dialler.dial(addresses.leader, client)
            if connection is not None and await _lasted(connection, moved):
                pause_s = PAUSE_FIRST_S
            await asyncio.wait({moved}, timeout=pause_s * (0.5 + jitter()))
            pause_s = min(PAUSE_MAX_S, pause_s * 2)
            if moved.done():
                number, pause_s = moved.result(), PAUSE_FIRST_S
        finally:
            moved.cancel()


async def _lasted(connection: Wire, moved: asyncio.Future[int] | None = None) -> bool:
    """Stay until the connection ends, or control has moved; returns whether that took a while."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    if moved is not None:
        either: set[asyncio.Future[Any]] = {moved, connection.ended}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        connection.abort()
    await connection.ended
    return loop.time() - began > 1.0
