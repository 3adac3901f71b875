"""The HTTP server of a coordinator process: uvicorn, with its limits, under our own signals."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import cast

import uvicorn

from phalanx.api.schema.problems import spell_problem
from phalanx.api.server.protocol import BoundedProtocol, Connections, set_connections
from phalanx.coordinator.acceptor import HANDSHAKES_MAX, Acceptor
from phalanx.coordinator.descriptors import Shares
from phalanx.errors import BadRequest


class RestServer(uvicorn.Server):
    """uvicorn without its own signal handling, which would end the process before our last words.

    The porter listens in its place: uvicorn knows no limit for a handshake, no new certificate, and lets in whoever
    comes before it serves who is in.
    """

    tls: Callable[[], ssl.SSLContext] | None = None
    unauthenticated_max = HANDSHAKES_MAX

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        self.started = False
        acceptor = await Acceptor.open(
            self.config.host, self.config.port, self.tls, self._protocol, NEEDS_TLS, self.unauthenticated_max
        )
        self.servers = [cast(asyncio.Server, acceptor)]
        self.started = True

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
        date_header=False,
    )
    server = RestServer(config)
    server.tls = tls
    if room is not None:
        server.unauthenticated_max = room.rest_newcomers
        set_connections(server.server_state, Connections(room.rest_known, room.rest_newcomers))
    return server


def _needs_tls() -> bytes:
    body = spell_problem(
        BadRequest("this port speaks TLS", reason="TlsRequired", hint="write https:// instead")
    )
    head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\nconnection: close\r\n"
    return head + b"content-length: %d\r\n\r\n" % len(body) + body


NEEDS_TLS = _needs_tls()
