"""The gRPC port of a coordinator: what listens there, with which limits and which certificate.

It is there if `coordinator.grpc_port` is given, and only then is this imported. What runners say is carried by
`rpc_runners`, what clients ask by `rpc_clients`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc  # type: ignore[import-untyped]

from phalanx.coordinator.rpc_clients import ClientsService
from phalanx.coordinator.rpc_connections import RpcConnections
from phalanx.coordinator.rpc_runners import RunnersService
from phalanx.rpc.messages import RECEIVED_MAX
from phalanx.rpc.statuses import METADATA_MAX
from phalanx.tls import Pem

CONNECTIONS_MAX = 4096
STREAMS_PER_CONNECTION_MAX = 256
CALLS_MAX = 20_000
HANDSHAKE_WITHIN_MS = 10_000
IDLE_MS = 300_000  # a connection without a call
PING_EVERY_MS, PONG_WITHIN_MS = 20_000, 10_000  # who does not answer is gone, or frozen
PING_AT_MOST_EVERY_MS = 5_000  # of clients
GRACE_S = 2.0


class RpcServer:
    """One port."""

    def __init__(
        self,
        runners: RunnersService | None = None,
        clients: ClientsService | None = None,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        self._runners = runners
        self._clients = clients
        self._connections = RpcConnections(connections_max)
        for service in (runners, clients):
            if service is not None:
                service.connections = self._connections
        options = {
            "grpc.so_reuseport": 0,
            "grpc.max_receive_message_length": RECEIVED_MAX,
            "grpc.max_send_message_length": -1,  # what we say ourselves is limited elsewhere
            "grpc.max_metadata_size": METADATA_MAX,
            "grpc.absolute_max_metadata_size": METADATA_MAX,
            "grpc.max_concurrent_streams": STREAMS_PER_CONNECTION_MAX,
            "grpc.max_allowed_incoming_connections": connections_max,
            "grpc.server_handshake_timeout_ms": HANDSHAKE_WITHIN_MS,
            "grpc.max_connection_idle_ms": IDLE_MS,
            "grpc.keepalive_time_ms": PING_EVERY_MS,
            "grpc.keepalive_timeout_ms": PONG_WITHIN_MS,
            "grpc.keepalive_permit_without_calls": 1,
            "grpc.http2.min_recv_ping_interval_without_data_ms": PING_AT_MOST_EVERY_MS,
        }
        self._server = grpc.aio.server(options=tuple(options.items()), maximum_concurrent_rpcs=CALLS_MAX)
        services = [each.handlers() for each in (runners, clients) if each is not None]
        self._server.add_generic_rpc_handlers(tuple(services))

    async def open(self, host: str, port: int, pem: Callable[[], Pem] | None = None) -> int:
        """Listen, with TLS if `pem` gives a certificate for it; the port."""
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if pem is None:
                taken: int = self._server.add_insecure_port(place)
            else:
                taken = self._server.add_secure_port(place, _credentials(pem))
        except RuntimeError as error:
            raise OSError(f"port {port} of {host} cannot be used for gRPC: {error}") from None
        await self._server.start()
        self._connections.watch(taken)
        return taken

    async def close(self) -> None:
        """New calls are refused; open ones still receive what was sent to them."""
        if self._runners is not None:
            self._runners.close()
        await self._connections.close()
        await self._server.stop(GRACE_S)
        if self._clients is not None:
            await self._clients.settled()


def _credentials(pem: Callable[[], Pem]) -> Any:
    """The certificate of the moment for each handshake. With an authority, all must show one of its certificates."""
    given = pem()

    def configuration(shown: Pem) -> Any:
        return grpc.ssl_server_certificate_configuration(((shown.key, shown.cert),), shown.ca)

    def renewed() -> Any:
        nonlocal given
        newest = pem()
        if newest is given:
            return None
        given = newest
        return configuration(newest)

    return grpc.dynamic_ssl_server_credentials(
        configuration(given), renewed, require_client_authentication=given.ca is not None
    )
