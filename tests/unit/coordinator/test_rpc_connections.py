"""Connections of the gRPC port: who shows no token is let go, and whoever has the most makes room for others."""

from __future__ import annotations

import asyncio

import grpc  # type: ignore[import-untyped]
import pytest

from phalanx.coordinator import rpc_connections
from phalanx.coordinator.rpc import RpcServer
from phalanx.coordinator.rpc_clients import ClientsService
from phalanx.coordinator.rpc_connections import TOKEN_WITHIN_S, RpcConnections
from phalanx.rpc import messages
from tests.support.rest_app import TOKEN, a_rest_app

pytestmark = pytest.mark.anyio
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"
ASK = f"/{messages.CLIENTS}/Call"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_who_shows_no_token_in_time_is_let_go_and_a_user_without_a_call_is_not():
    connections = RpcConnections(100)
    now = asyncio.get_running_loop().time()
    connections.begin("10.0.0.1:1", "ada")
    connections.end("10.0.0.1:1")
    peers = {"10.0.0.1:1": 1, "10.0.0.2:1": 2}
    assert connections.chosen(peers, now) == []
    assert connections.chosen(peers, now + TOKEN_WITHIN_S) == ["10.0.0.2:1"]


async def test_another_connection_from_the_same_port_has_its_own_time():
    connections = RpcConnections(100)
    now = asyncio.get_running_loop().time()
    assert connections.chosen({"10.0.0.2:1": 2}, now) == []
    assert connections.chosen({"10.0.0.2:1": 3}, now + TOKEN_WITHIN_S) == []
    assert connections.chosen({}, now + TOKEN_WITHIN_S + 1) == []
    assert connections.chosen({"10.0.0.2:1": 3}, now + 2 * TOKEN_WITHIN_S) == []


async def test_where_there_are_many_the_oldest_of_whoever_has_the_most_make_room():
    connections = RpcConnections(8)
    now = asyncio.get_running_loop().time()
    connections.begin("10.0.0.1:1", "ada")  # this call goes on
    for number in range(5):
        connections.begin(f"10.0.0.2:{number}", "eve")
        connections.end(f"10.0.0.2:{number}")
        connections._known[f"10.0.0.2:{number}"].since = now + number
    peers = dict.fromkeys([*connections._known, "10.0.0.3:1"], 1)
    assert connections.chosen(peers, now + 9) == ["10.0.0.2:0", "10.0.0.2:1", "10.0.0.2:2"]


async def test_a_call_is_not_cut_off_however_many_there_are():
    connections = RpcConnections(2)
    peers = {f"10.0.0.1:{number}": number for number in range(9)}
    for peer in peers:
        connections.begin(peer, "ada")
    assert connections.chosen(peers, 1e9) == []


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "::"])
async def test_a_connection_that_says_nothing_more_is_closed_and_one_with_a_token_stays(
    host: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(rpc_connections, "TOKEN_WITHIN_S", 0.3)
    monkeypatch.setattr(rpc_connections, "LOOK_EVERY_S", 0.02)
    house = a_rest_app()
    server = RpcServer(clients=ClientsService(house.app, house.tokens))
    port = await server.open(host, 0)
    near = "127.0.0.1" if host == "::" else host
    reader, writer = await asyncio.open_connection(near, port)
    writer.write(PREFACE)
    place = f"[{near}]:{port}" if ":" in near else f"{near}:{port}"
    try:
        async with grpc.aio.insecure_channel(place) as channel:
            said = messages.CallRequestMessage(method="GET", path="/v1/cluster").SerializeToString()
            ask = channel.unary_stream(ASK)
            shown = (("authorization", f"Bearer {TOKEN}"),)
            assert [each async for each in ask(said, metadata=shown)]
            async with asyncio.timeout(10):
                while await reader.read(1000):
                    pass
            assert channel.get_state() is grpc.ChannelConnectivity.READY
            assert [each async for each in ask(said, metadata=shown)]
    finally:
        writer.close()
        await server.close()
