"""The gRPC port: which callers are accepted, the status that others get, and what TLS proves there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
from grpc import StatusCode

from phalanx.coordinator import rpc_runners
from phalanx.coordinator.rpc import RpcServer
from phalanx.coordinator.rpc_runners import RunnersService
from phalanx.link import wire
from phalanx.rpc import messages
from phalanx.tls import ServerTls, TlsFiles, read_pem
from tests.contract.backends import MemoryBackend
from tests.contract.coordinators import NODE_TOKEN, StartedCoordinator, a_coordinator_group
from tests.support.builders import a_capacity
from tests.support.certificate_authority import Authority
from tests.support.waiting import until

pytestmark = pytest.mark.anyio
CONNECT, LOGS = f"/{messages.RUNNERS}/Connect", f"/{messages.RUNNERS}/Logs"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def a_port(
    tls: ServerTls | None = None, streams_max: int = 100, connections_max: int = 100
) -> AsyncIterator[tuple[StartedCoordinator, int]]:
    async with a_coordinator_group(MemoryBackend()) as group:
        coordinator = await group.coordinator("c1")
        parts = coordinator.parts
        service = RunnersService(
            parts.links, parts.log_links, parts.leadership.post, parts.keys, parts.streams, streams_max
        )
        server = RpcServer(service, connections_max=connections_max)
        port = await server.open("127.0.0.1", 0, None if tls is None else lambda: tls.pem)
        try:
            yield coordinator, port
        finally:
            await server.close()


class Caller:
    """One call of a runner."""

    def __init__(self, channel: Any, token: str | None = NODE_TOKEN, method: str = CONNECT) -> None:
        shown = () if token is None else (("authorization", f"Bearer {token}"),)
        self.call = channel.stream_stream(method)(metadata=shown)
        self._back = messages.to_logs if method == LOGS else messages.to_runner

    async def say(self, *data: bytes) -> None:
        for each in data:
            await self.call.write(each)

    async def hear(self) -> wire.Message | None:
        """The next message; None at the end."""
        try:
            data = await self.call.read()
        except grpc.aio.AioRpcError:
            return None
        return None if data is grpc.aio.EOF else self._back.hear(data)

    async def end(self) -> tuple[StatusCode, str]:
        while await self.hear() is not None:
            pass
        return await self.call.code(), await self.call.details()


def plain(port: int) -> Any:
    return grpc.aio.insecure_channel(f"127.0.0.1:{port}")


def hello(node: str = "n1", version: int = wire.VERSION, epoch: int = 0) -> bytes:
    made = wire.HelloMessage(version, "", node, "a", f"of {node}", a_capacity(), epoch, [])
    return messages.from_runner.pack(made)


async def welcomed(caller: Caller, *data: bytes) -> wire.Welcome:
    await caller.say(*(data or (hello(),)))
    found = await caller.hear()
    assert isinstance(found, wire.Welcome)
    return found


@pytest.mark.parametrize("token", [None, "", "of-nobody", "x" * 5000])
@pytest.mark.parametrize("method", [CONNECT, LOGS])
async def test_a_stranger_is_refused_before_a_word_is_read(token: str | None, method: str):
    async with a_port() as (coordinator, port), plain(port) as channel:
        caller = Caller(channel, token, method)
        refused = await caller.hear()  # nothing was said
        assert isinstance(refused, wire.Rejected)
        assert (refused.code, refused.retry) == ("Unauthorized", False)
        code, why = await caller.end()
        assert code == StatusCode.UNAUTHENTICATED and "token" in why
        assert coordinator.state.nodes.keys() == set()


@pytest.mark.parametrize(
    ("said", "code", "status", "retry"),
    [
        (hello(version=2), "VersionMismatch", StatusCode.FAILED_PRECONDITION, False),
        (hello("no name"), "BadName", StatusCode.INVALID_ARGUMENT, False),
        (hello(epoch=9), "StaleEpoch", StatusCode.ABORTED, True),
        (b"\xff", "NotUnderstood", StatusCode.INVALID_ARGUMENT, True),
        (b"", "NotUnderstood", StatusCode.INVALID_ARGUMENT, True),
        (
            messages.from_runner.pack(wire.Beat(1, 1.0, [])),
            "NotUnderstood",
            StatusCode.INVALID_ARGUMENT,
            True,
        ),
        (hello("n" * 600_000), "TooLarge", StatusCode.RESOURCE_EXHAUSTED, True),
    ],
    ids=["version", "name", "epoch", "noise", "empty", "no hello", "too long"],
)
async def test_a_hello_that_is_refused_ends_with_a_status_that_says_the_same(
    said: bytes, code: str, status: StatusCode, retry: bool
):
    async with a_port() as (_, port), plain(port) as channel:
        caller = Caller(channel)
        await caller.say(said)
        refused = await caller.hear()
        assert isinstance(refused, wire.Rejected) and (refused.code, refused.retry) == (code, retry)
        ended, why = await caller.end()
        assert ended == status and why == f"{code}: {refused.message}"


@pytest.mark.parametrize("method", [CONNECT, LOGS])
async def test_a_user_is_refused_before_a_word_is_read(method: str):
    async with a_port() as (_, port), plain(port) as channel:
        caller = Caller(channel, "a-token-of-users", method)
        refused = await caller.hear()  # nothing was said
        assert isinstance(refused, wire.Rejected) and refused.code == "Unauthorized"
        assert "a user's token cannot speak for a node" in refused.message
        assert (await caller.end())[0] == StatusCode.UNAUTHENTICATED


async def test_a_message_of_a_known_runner_that_cannot_be_meant_names_the_field():
    async with a_port() as (_, port), plain(port) as channel:
        caller = Caller(channel)
        await welcomed(caller)
        made = messages.from_runner.made()
        made.beat.held.add().key.job = "j"
        await caller.say(made.SerializeToString())
        code, why = await caller.end()
        assert code == StatusCode.INVALID_ARGUMENT
        assert why.startswith("beat.held[0].phase = 0: expected one of PHASE_QUEUED")


async def test_a_message_over_the_limit_ends_the_call():
    async with a_port() as (_, port), plain(port) as channel:
        caller = Caller(channel)
        await welcomed(caller)
        await caller.say(b"x" * (messages.RECEIVED_MAX + 1))
        assert (await caller.end())[0] == StatusCode.RESOURCE_EXHAUSTED


async def test_there_are_so_many_streams_and_no_more():
    async with a_port(streams_max=2) as (_, port), plain(port) as channel:
        kept = [Caller(channel) for _ in range(2)]
        for at, caller in enumerate(kept):
            await welcomed(caller, hello(f"n{at}"))
        late = Caller(channel)
        refused = await late.hear()
        assert isinstance(refused, wire.Rejected) and refused.code == "TooMany" and refused.retry
        assert (await late.end())[0] == StatusCode.RESOURCE_EXHAUSTED


async def test_those_who_say_no_hello_keep_nobody_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rpc_runners, "STRANGERS_MAX", 2)
    async with a_port() as (_, port), plain(port) as channel:
        silent = []
        for _ in range(3):
            silent.append(Caller(channel))
            await silent[-1].call.wait_for_connection()
        refused = await silent[0].hear()
        assert (
            isinstance(refused, wire.Rejected) and refused.code == "TooMany" and "oldest" in refused.message
        )
        await welcomed(Caller(channel))
        assert not any(each.call.done() for each in silent[1:])
        for each in silent[1:]:
            each.call.cancel()


async def test_a_heartbeat_lists_no_more_than_a_node_can_hold():
    async with a_port() as (_, port), plain(port) as channel:
        caller = Caller(channel)
        await welcomed(caller)
        made = messages.from_runner.made()
        for _ in range(wire.HELD_MAX + 1):
            made.beat.held.add()
        await caller.say(made.SerializeToString())
        code, why = await caller.end()
        assert code == StatusCode.INVALID_ARGUMENT
        assert why == f"beat.held: {wire.HELD_MAX + 1} are listed, expected at most {wire.HELD_MAX}"


async def test_a_standby_sends_runners_away_as_unavailable():
    async with a_port() as (coordinator, port), plain(port) as channel:
        caller = Caller(channel)
        await welcomed(caller)
        coordinator.parts.closed()
        code, why = await caller.end()
        assert code == StatusCode.UNAVAILABLE and why.startswith("NotActive")
        late = Caller(channel, token=None)  # whatever it asks for, and whatever its token
        refused = await late.hear()
        assert isinstance(refused, wire.Rejected) and refused.code == "NotActive"


async def test_there_are_so_many_connections_and_no_more():
    async with a_port(connections_max=3) as (_, port):
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        over: set[int] = set()

        async def read(at: int) -> None:
            with suppress(ConnectionError):
                while await silent[at][0].read(100):
                    pass
            over.add(at)

        reading = [asyncio.ensure_future(read(at)) for at in range(5)]
        await until(lambda: len(over) == 2)
        for task, (_, writer) in zip(reading, silent, strict=True):
            task.cancel()
            writer.close()


def secure(port: int, shown: TlsFiles) -> Any:
    ca, cert, key = (None if path is None else path.read_bytes() for path in shown)
    return grpc.aio.secure_channel(f"localhost:{port}", grpc.ssl_channel_credentials(ca, key, cert))


async def test_over_tls_a_certificate_speaks_for_its_own_node_alone(tmp_path: Path):
    authority = Authority(tmp_path)
    tls = ServerTls(authority.coordinator())
    async with a_port(tls) as (_, port), secure(port, authority.node("n1")) as channel:
        await welcomed(Caller(channel))
        other = Caller(channel)
        await other.say(hello("n2"))
        refused = await other.hear()
        assert isinstance(refused, wire.Rejected) and "certificate is for node 'n1'" in refused.message
        assert (await other.end())[0] == StatusCode.UNAUTHENTICATED


async def test_over_tls_a_certificate_that_is_no_nodes_speaks_for_none(tmp_path: Path):
    authority = Authority(tmp_path)
    tls = ServerTls(authority.coordinator())
    async with a_port(tls) as (_, port), secure(port, authority.client()) as channel:
        caller = Caller(channel)
        await caller.say(hello())
        assert isinstance(await caller.hear(), wire.Rejected)


async def test_where_certificates_are_asked_for_nobody_enters_without_one(tmp_path: Path):
    authority, other = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    forged = other.node("n1")._replace(ca_file=authority.alone.ca_file)
    async with a_port(ServerTls(authority.coordinator())) as (_, port):
        for shown in (authority.alone, forged):
            async with secure(port, shown) as channel:
                assert (await Caller(channel).end())[0] == StatusCode.UNAVAILABLE


async def test_without_an_authority_of_its_own_the_port_asks_for_none(tmp_path: Path):
    authority = Authority(tmp_path)
    tls = ServerTls(authority.coordinator()._replace(ca_file=None))
    async with a_port(tls) as (_, port), secure(port, authority.alone) as channel:
        await welcomed(Caller(channel))


async def test_a_renewed_certificate_is_taken_up_by_new_connections(tmp_path: Path):
    authority = Authority(tmp_path)
    here, elsewhere = authority.coordinator(), authority.coordinator("c2", "elsewhere")
    tls = ServerTls(here._replace(ca_file=None))
    async with a_port(tls) as (_, port):
        async with secure(port, authority.alone) as channel:
            await welcomed(Caller(channel))
        tls.pem = read_pem(elsewhere._replace(ca_file=None))
        async with secure(port, authority.alone) as channel:  # the certificate is no longer for this host
            assert (await Caller(channel).end())[0] == StatusCode.UNAVAILABLE


async def test_a_port_that_is_taken_is_told_with_its_number():
    async with a_port() as (coordinator, port):
        parts = coordinator.parts
        service = RunnersService(
            parts.links, parts.log_links, parts.leadership.post, parts.keys, parts.streams
        )
        with pytest.raises(OSError, match=f"port {port} of 127.0.0.1 cannot be used for gRPC"):
            await RpcServer(service).open("127.0.0.1", port)
