"""Calls to etcd are over when the client is closed, also those that their callers gave up.

Else what gRPC has to say of their end fails in the next loop of the process, over whatever runs there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import uvloop

from phalanx.store.etcd.client import EtcdClient
from tests.support import late_grpc
from tests.support.servers import shared_etcd

LOOPS = 50  # one after the other: each would hear of the one before


async def renew(client: EtcdClient) -> None:
    lease = await client.grant(30)
    for _ in range(5):
        await client.keep_alive(lease)


async def give_up(client: EtcdClient) -> None:
    lease = await client.grant(30)
    for ask in (client.range(b"given up"), client.keep_alive(lease)):
        with suppress(TimeoutError):
            async with asyncio.timeout(0):
                await ask


@pytest.mark.parametrize("use", [renew, give_up])
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_later_loop_hears_nothing_of_the_calls_of_one_before(
    use: Callable[[EtcdClient], Awaitable[None]], new_loop: Callable[[], asyncio.AbstractEventLoop]
):
    failures: list[str] = []
    heard_before = len(late_grpc.heard)
    for _ in range(LOOPS):
        loop = new_loop()
        loop.set_exception_handler(lambda _, context: failures.append(str(context)))
        loop.run_until_complete(_used(use))
        loop.close()
    assert failures == []
    assert late_grpc.heard[heard_before:] == []


async def _used(use: Callable[[EtcdClient], Awaitable[None]]) -> None:
    client = EtcdClient(shared_etcd().hosts)
    await use(client)
    await client.close()
