"""A gRPC port for the tests of the clients: the REST app behind it, on a loop in a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from phalanx.coordinator.rpc import RpcServer
from phalanx.coordinator.rpc_clients import ClientsService
from phalanx.tls import ServerTls
from tests.support.rest_app import RestApp, a_loop


@contextmanager
def serving_rpc(house: RestApp, tls: ServerTls | None = None, port: int = 0) -> Iterator[str]:
    """The app, as a coordinator serves it. Yields its address."""

    async def begin() -> tuple[RpcServer, int]:
        server = RpcServer(clients=ClientsService(house.app, house.tokens))
        return server, await server.open("127.0.0.1", port, None if tls is None else lambda: tls.pem)

    with a_loop() as loop:
        server, taken = asyncio.run_coroutine_threadsafe(begin(), loop).result(10)
        try:
            yield f"grpc{'' if tls is None else 's'}://127.0.0.1:{taken}"
        finally:
            asyncio.run_coroutine_threadsafe(server.close(), loop).result(10)
