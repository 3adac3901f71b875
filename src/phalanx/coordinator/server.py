"""The door for runners: TCP connections that carry frames. What they say is judged in `links` and `logs`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from phalanx.api import wire
from phalanx.coordinator.links import Letter, Links, Session
from phalanx.coordinator.logs import LogRoads
from phalanx.diary import diary

log = diary("coordinator")
HELLO_WITHIN_S = 10.0
CONNECTIONS_MAX = 20_000
BUFFER_MAX = 64 * 1024 * 1024


class Door(asyncio.Protocol):
    """One connection. Its first message says whether it is for control or for logs."""

    def __init__(self, links: Links, roads: LogRoads, post: Callable[[Letter], None], all: set[Door]) -> None:
        self._links = links
        self._roads = roads
        self._post = post
        self._all = all
        self._unpacker = wire.Unpacker()
        self._session = Session(self)
        self._is_log_road = False
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without being one by name
        self._all.add(self)
        if len(self._all) > CONNECTIONS_MAX:
            self._transport.abort()
        self._deadline = asyncio.get_running_loop().call_later(HELLO_WITHIN_S, self.close)

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._unpacker.feed(data):
                self._receive(message)
        except wire.WireError as error:
            log.warning("connection refused", error=str(error))
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()
        if self._is_log_road:
            self._roads.closed(self)
        elif (letter := self._links.closed(self._session)) is not None:
            self._post(letter)

    def send(self, messages: list[wire.Message]) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() > BUFFER_MAX:  # a runner that no longer reads
            self._transport.abort()
            return
        self._transport.write(b"".join(map(wire.pack, messages)))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _receive(self, message: wire.Message) -> None:
        if isinstance(message, wire.HelloMessage | wire.LogHello) and self._deadline is not None:
            self._deadline.cancel()
        if isinstance(message, wire.LogHello):
            self._is_log_road = self._roads.opened(self, message)
        elif isinstance(message, wire.LogData):
            self._roads.arrived(message)
        elif not self._session.node and not isinstance(message, wire.HelloMessage):
            raise wire.WireError("the first message must be a hello")
        elif (letter := self._links.receive(self._session, message)) is not None:
            self._post(letter)


async def serve(
    host: str, port: int, links: Links, roads: LogRoads, post: Callable[[Letter], None]
) -> tuple[asyncio.Server, set[Door]]:
    """Listen for runners."""
    doors: set[Door] = set()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Door(links, roads, post, doors), host, port, backlog=1024)
    return server, doors
