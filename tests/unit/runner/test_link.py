"""A runner's connections over real sockets: it finds the leader, stays with it, and its log connection follows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from phalanx.core.model.resources import Capacity
from phalanx.core.runner.attempts import ProcessEnd
from phalanx.link import wire
from phalanx.link.exits import TEXT_MAX
from phalanx.runner import link
from phalanx.runner.addresses import LinkAddresses
from phalanx.runner.link import Dialler, Wire, keep_beside, keep_connected
from phalanx.runner.reports import ReportSender
from phalanx.runner.turn import RunnerEngine
from tests.support.waiting import until

pytestmark = pytest.mark.anyio
WELCOME = wire.Welcome(wire.VERSION, 1, 5.0, 20.0)
HELLO = wire.LogHello(wire.VERSION, "token", "n1", "i1")


class Coordinator(asyncio.Protocol):
    """One listener: it answers a first message with what `answer` returns, and counts connections."""

    def __init__(self, coordinator: FakeCoordinator) -> None:
        self.coordinator = coordinator
        self.unpacker = wire.Unpacker()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.coordinator.clients.append(transport)

    def data_received(self, data: bytes) -> None:
        self.coordinator.said += self.unpacker.feed(data)
        if (answer := self.coordinator.answer()) is not None:
            self.transport.write(wire.pack(answer))


class FakeCoordinator:
    def __init__(self, answer: Callable[[], wire.Message | None]) -> None:
        self.answer = answer
        self.clients: list[asyncio.Transport] = []
        self.said: list[wire.Message] = []
        self.address = ""


class RecordingListener:
    """A client that sends hello and remembers what happened."""

    def __init__(self) -> None:
        self.heard: list[wire.Message] = []
        self.connections = 0
        self.up = False
        self.wire: Wire | None = None

    def connected(self, wire_out: Wire) -> None:
        self.connections, self.up, self.wire = self.connections + 1, True, wire_out
        wire_out.send(HELLO)

    def received(self, message: wire.Message) -> None:
        self.heard.append(message)

    def settled(self) -> None:
        """Nothing gathers."""

    def disconnected(self) -> None:
        self.up = False


@asynccontextmanager
async def a_coordinator(answer: Callable[[], wire.Message | None]) -> AsyncIterator[FakeCoordinator]:
    coordinator = FakeCoordinator(answer)
    server = await asyncio.get_running_loop().create_server(lambda: Coordinator(coordinator), "127.0.0.1", 0)
    coordinator.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield coordinator
    finally:
        server.close()
        for each in coordinator.clients:
            each.abort()


@asynccontextmanager
async def connected(
    dialler: Dialler, listener: RecordingListener, log_link: RecordingListener | None = None
) -> AsyncIterator[None]:
    work = [keep_connected(dialler, listener, lambda: 0.5)]
    if log_link is not None:
        work.append(keep_beside(dialler, log_link, lambda: 0.5))
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def standby(leader: str = "") -> wire.Rejected:
    return wire.Rejected("NotActive", "a standby", True, leader)


async def test_a_standby_sends_the_runner_to_the_leader():
    async with (
        a_coordinator(lambda: WELCOME) as leader,
        a_coordinator(lambda: standby(leader.address)) as second,
    ):
        listener = RecordingListener()
        async with connected(Dialler(LinkAddresses([second.address, leader.address])), listener):
            await until(lambda: listener.heard == [WELCOME])
        assert len(second.clients) == 1


async def test_a_runner_that_was_welcomed_does_not_blame_its_certificate():
    async with a_coordinator(lambda: WELCOME) as leader:
        listener, dialler = RecordingListener(), Dialler(LinkAddresses([leader.address]))
        assert "TLS" in dialler.hung_up
        async with connected(dialler, listener):
            await until(lambda: listener.heard == [WELCOME])
            leader.clients[0].abort()
            await until(lambda: dialler.was_welcomed)
    assert "TLS" not in dialler.hung_up


async def test_dead_doors_are_passed_over():
    async with a_coordinator(lambda: WELCOME) as leader:
        listener = RecordingListener()
        async with connected(Dialler(LinkAddresses(["127.0.0.1:1", leader.address])), listener):
            await until(lambda: listener.heard == [WELCOME])


async def test_a_frozen_coordinator_is_left_for_the_next(monkeypatch):
    monkeypatch.setattr(link, "ANSWER_WITHIN_S", 0.1)
    async with a_coordinator(lambda: None) as frozen, a_coordinator(lambda: WELCOME) as leader:
        listener = RecordingListener()
        async with connected(Dialler(LinkAddresses([frozen.address, leader.address])), listener):
            await until(lambda: listener.heard == [WELCOME])


async def test_when_the_leader_is_lost_the_runner_and_its_log_road_go_to_the_next():
    leads = {"first": True}

    def answer_of(name: str) -> wire.Message:
        return WELCOME if leads["first"] == (name == "first") else standby()

    async with (
        a_coordinator(lambda: answer_of("first")) as first,
        a_coordinator(lambda: answer_of("second")) as second,
    ):
        listener, log_link = RecordingListener(), RecordingListener()
        async with connected(Dialler(LinkAddresses([first.address, second.address])), listener, log_link):
            await until(lambda: listener.up and log_link.up and len(first.clients) == 2)
            leads["first"] = False
            first.clients[0].abort()  # control is cut, the log connection is not
            await until(lambda: len(second.clients) == 2 and listener.up and log_link.up)
        assert listener.connections == 2
        assert log_link.connections == 2


async def test_a_standby_that_becomes_the_leader_is_joined_within_a_second():
    answers: dict[str, wire.Message] = {"now": standby()}
    async with a_coordinator(lambda: answers["now"]) as coordinator:
        listener = RecordingListener()
        async with connected(Dialler(LinkAddresses([coordinator.address])), listener):
            await until(lambda: len(coordinator.clients) > 3)
            loop = asyncio.get_running_loop()
            answers["now"], began = WELCOME, loop.time()
            await until(lambda: listener.heard == [WELCOME])
            assert loop.time() - began < 1.0


async def test_a_coordinator_of_another_cluster_does_not_end_a_runner_that_others_would_have():
    stranger = wire.Rejected("Unauthorized", "the token is not one of this cluster's", False)
    answers: dict[str, wire.Message] = {"second": standby()}
    async with a_coordinator(lambda: stranger) as first, a_coordinator(lambda: answers["second"]) as second:
        listener = RecordingListener()
        async with connected(Dialler(LinkAddresses([first.address, second.address])), listener):
            await until(lambda: len(first.clients) > 2 and len(second.clients) > 2)
            answers["second"] = WELCOME
            await until(lambda: WELCOME in listener.heard)


async def test_a_runner_whom_every_coordinator_refuses_ends():
    refusal = wire.Rejected("Unauthorized", "revoked", False)
    async with a_coordinator(lambda: refusal) as first, a_coordinator(lambda: refusal) as second:
        async with asyncio.timeout(5):
            await keep_connected(
                Dialler(LinkAddresses([first.address, second.address])), RecordingListener(), lambda: 0.5
            )


def an_engine_with(ends: int, tail: str) -> RunnerEngine:
    """It was cut off while so many attempts ended, and is welcome again."""
    engine = RunnerEngine("n1", "life", "origin", "token", Capacity(4, 0))
    for position in range(ends):
        end = ProcessEnd(1, None, False, None, 1.0, 2.0, stderr_tail=tail)
        engine.state.adopt(("0" * 26, position, 1), position, end, 1.0)
    engine.hello(1.0)
    engine.receive(WELCOME, 1.0)
    return engine


async def test_heartbeats_overtake_the_ends_of_a_long_absence_and_no_end_is_sent_on_top_of_others():
    async with a_coordinator(lambda: None) as coordinator:
        listener, engine = RecordingListener(), an_engine_with(ends=150, tail="x" * TEXT_MAX)
        async with connected(Dialler(LinkAddresses([coordinator.address])), listener):
            await until(lambda: coordinator.said)
            coordinator.clients[0].pause_reading()
            wire_out = listener.wire
            assert wire_out is not None and wire_out._transport is not None
            reports = ReportSender(engine, lambda: wire_out)
            for at in range(5):  # with each heartbeat all that was not answered would be sent again
                wire_out.send(engine.beat(float(at)))
                reports.flush()
            assert wire_out.is_behind
            assert wire_out._transport.get_write_buffer_size() < 3 * wire.LIST_MAX
            coordinator.clients[0].resume_reading()
            await until(lambda: not wire_out.is_behind)
            reports.flush()  # what the heartbeats asked for, once
            await until(lambda: len(ends_in(coordinator.said)) == 300)
    kinds = [type(each) for each in coordinator.said]
    assert max(at for at, kind in enumerate(kinds) if kind is wire.Beat) < len(kinds) / 3
    assert ends_in(coordinator.said) == 2 * list(range(150))


def ends_in(said: list[wire.Message]) -> list[int]:
    return [each.key[1] for message in said if isinstance(message, wire.Reports) for each in message.reports]
