"""What a runner may rely on, and what it may not do, over each transport: frames over TCP, or streams of gRPC.

Fences and dispositions are tested in `test_cases.py`, over both as well; the order of all replies in
`test_reply_sequence.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from phalanx.api.schema.jobs import LogChunk
from phalanx.api.schema.submission import SubmitRequest
from phalanx.coordinator import rpc_runners, server
from phalanx.coordinator.logs import WantedLog
from phalanx.core.model.orders import (
    AttemptKey,
    Brief,
    Disposition,
    Ended,
    Exit,
    Order,
    Phase,
    Report,
    Start,
    Why,
)
from phalanx.core.model.resources import Capacity, Device, NumaNode
from phalanx.link import wire
from phalanx.link.exits import TEXT_MAX
from tests.contract.backends import WAYS, Backend
from tests.contract.coordinators import (
    CoordinatorGroup,
    Runner,
    StartedCoordinator,
    a_coordinator_group,
    ended,
)
from tests.support.builders import GIB
from tests.support.waiting import pause_task, until

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("backend", WAYS, indirect=True)]


@asynccontextmanager
async def a_node(backend: Backend) -> AsyncIterator[tuple[CoordinatorGroup, StartedCoordinator, Runner]]:
    async with a_coordinator_group(backend) as group:
        c1 = await group.coordinator("c1")
        yield group, c1, await group.runner(c1, "n1")


def orders(runner: Runner) -> list[Order]:
    return [each for message in runner.heard if isinstance(message, wire.Orders) for each in message.orders]


def disposed(runner: Runner) -> list[tuple[AttemptKey, Disposition]]:
    return [each for said in runner.heard if isinstance(said, wire.Dispositions) for each in said.items]


def line_of(runner: Runner) -> Any:
    return runner._transport


def slow(runner: Runner) -> None:
    """From now on it reads nothing."""
    line_of(runner).takes.clear()


async def test_a_brief_comes_once_before_the_first_start_of_its_group(backend: Backend):
    async with a_node(backend) as (_, c1, n1):
        request = SubmitRequest(command=["/bin/true"], array="1-3")
        (id,) = (await c1.commands.submit(request, "ada")).task_ids
        await until(lambda: sum(isinstance(each, Start) for each in orders(n1)) == 3)
        told = [type(each) for each in orders(n1)]
        assert told == [Brief, Start, Start, Start]
        assert {each.job for each in orders(n1) if isinstance(each, Brief)} == {id}


async def test_after_a_new_hello_the_brief_of_what_it_holds_comes_again(backend: Backend):
    async with a_node(backend) as (group, c1, n1):
        key = await n1.started(await c1.submit())
        await n1.begin(key)
        n1.heard.clear()
        await group.join(c1, n1)
        await until(lambda: any(isinstance(each, Brief) for each in orders(n1)))
        assert [each.job for each in orders(n1) if isinstance(each, Brief)] == [key[0]]
        assert n1.told_to(Start) == []


async def test_an_end_whose_answer_was_lost_is_told_again_and_counts_once(backend: Backend):
    async with a_node(backend) as (group, c1, n1):
        key = await n1.started(await c1.submit())
        await n1.begin(key)
        line_of(n1).is_mute = True  # the answer never arrives
        n1.say(wire.Reports(n1.epoch, [ended(key)], n1.generation))
        await until(lambda: c1.state.jobs[key[0]].is_over)
        n1.held[key] = Phase.ENDED
        await group.join(c1, n1)
        assert await n1.end(key) == Disposition.DUPLICATE


async def test_a_runner_comes_back_with_more_ends_than_one_message_may_hold(backend: Backend):
    async with a_coordinator_group(backend) as group:
        c1 = await group.coordinator("c1")
        n1 = await group.runner(c1, "n1", cores=80)
        (id,) = (await c1.commands.submit(SubmitRequest(command=["/bin/true"], array="1-80"), "ada")).task_ids
        await until(lambda: len(n1.told_to(Start)) == 80)
        line_of(n1).close()
        await until(lambda: "n1" not in c1.parts.links.sessions)
        n1.held = dict.fromkeys(n1.told_to(Start), Phase.ENDED)
        await group.join(c1, n1)
        longest = Exit(Why.NONE, 0, 1.0, 2.0, "x" * TEXT_MAX, "x" * TEXT_MAX)
        ends: list[Report] = [Ended(key, longest) for key in n1.held]
        assert len(ends) * 2 * TEXT_MAX > wire.FRAME_MAX
        n1.say(wire.Reports(n1.epoch, ends, n1.generation))
        await until(lambda: c1.state.jobs[id].is_over)
        await until(lambda: len(disposed(n1)) == 80)
        assert disposed(n1) == [(key, Disposition.ACCEPTED) for key in n1.held]
        assert n1.is_open


async def test_a_runner_comes_back_to_more_briefs_than_one_message_may_hold(backend: Backend):
    async with a_coordinator_group(backend) as group:
        c1 = await group.coordinator("c1")
        n1 = await group.runner(c1, "n1", cores=40)
        env = {f"LARGE_{number}": "x" * 130_000 for number in range(7)}
        assert wire.FRAME_MAX < 40 * 7 * 130_000
        jobs = [await c1.submit(env=env) for _ in range(40)]
        await until(lambda: len(n1.told_to(Start)) == 40)
        line_of(n1).close()
        await until(lambda: "n1" not in c1.parts.links.sessions)
        n1.heard.clear()
        await group.join(c1, n1)
        await until(lambda: len(orders(n1)) == 40)
        assert [each.job for each in orders(n1) if isinstance(each, Brief)] == sorted(jobs)
        assert isinstance(await n1.beat(), wire.BeatAck)


async def test_a_newer_connection_of_the_node_ends_the_one_before(backend: Backend):
    async with a_node(backend) as (group, c1, n1):
        twin = Runner("n1")
        twin.epoch = n1.epoch
        await group.join(c1, twin)
        await until(lambda: not n1.is_open)
        assert twin.is_open


async def test_when_the_stream_ends_the_node_is_not_reached_any_more(backend: Backend):
    async with a_node(backend) as (_, c1, n1):
        assert "n1" in c1.parts.links.sessions
        line_of(n1).close()
        await until(lambda: "n1" not in c1.parts.links.sessions)


async def test_a_hello_that_is_too_long_is_refused_and_a_long_heartbeat_of_a_known_node_is_not(
    backend: Backend,
):
    async with a_node(backend) as (_, c1, n1):
        stranger = Runner("n2")
        stranger.held = {("x" * 26, at, 1): Phase.RUNNING for at in range(20_000)}
        c1.connect(stranger)
        held = list(stranger.held.items())
        stranger.say(wire.HelloMessage(wire.VERSION, n1.token, "n2", "a", "b", n1.capacity, 0, held))
        await until(lambda: not stranger.is_open)
        assert "n2" not in c1.state.nodes
        n1.held = stranger.held
        assert isinstance(await n1.beat(), wire.BeatAck)


CANNOT_BE = {
    "capacity.cores = 1.9999": Capacity(1.9999, GIB),
    "capacity.memory_bytes = -5": Capacity(4, -5),
    "capacity.numa[0].cores = 1e+18: expected 0 to 16777216": Capacity(4, GIB, (NumaNode(0, 10**18),)),
    "capacity.numa: id 0 is there twice": Capacity(4, GIB, (NumaNode(0, 1), NumaNode(0, 1))),
    "capacity.numa[0].cpus = -1": Capacity(4, GIB, (NumaNode(0, 1, (-1, 3)),)),
    "capacity.devices: index 1 is there twice": Capacity(4, GIB, (), (Device(1, "a"), Device(1, "a"))),
    "the number of capacity.devices = 1025": Capacity(
        4, GIB, (), tuple(Device(at, "a") for at in range(1025))
    ),
    "capacity.devices[0].kind = '\\x1b[2J'": Capacity(4, GIB, (), (Device(0, "\x1b[2J"),)),
    "capacity.labels = 'a\\n'": Capacity(4, GIB, labels={"a\n": "b"}),
}


@pytest.mark.parametrize("says", CANNOT_BE)
async def test_what_a_node_cannot_have_is_refused_with_the_field(backend: Backend, says: str):
    async with a_node(backend) as (_, c1, n1):
        other = Runner("n2")
        other.capacity = CANNOT_BE[says]
        c1.connect(other)
        refused = await other.hello()
        assert isinstance(refused, wire.Rejected) and (refused.code, refused.retry) == ("BadHello", False)
        assert refused.message.startswith(says) and "expected" in refused.message
        assert "n2" not in c1.state.nodes
        assert isinstance(await n1.beat(), wire.BeatAck)


async def test_an_end_that_cannot_be_ends_the_connection_and_is_not_taken(backend: Backend):
    async with a_node(backend) as (_, c1, n1):
        key = await n1.started(await c1.submit())
        await n1.begin(key)
        n1.say(wire.Reports(n1.epoch, [ended(key, code=1 << 40)], n1.generation))
        await until(lambda: not n1.is_open)
        assert not c1.state.jobs[key[0]].is_over


async def test_a_connection_speaks_for_one_node(backend: Backend):
    async with a_node(backend) as (_, c1, n1):
        n1.node = "n2"
        refused = await n1.hello()
        assert isinstance(refused, wire.Rejected) and refused.code == "BadName" and "'n1'" in refused.message
        await until(lambda: not n1.is_open and not c1.state.nodes["n1"].connected)
        assert "n2" not in c1.state.nodes


async def test_who_says_no_hello_is_sent_away(backend: Backend, monkeypatch: pytest.MonkeyPatch):
    for module in (server, rpc_runners):
        monkeypatch.setattr(module, "HELLO_WITHIN_S", 0.05)
    async with a_node(backend) as (_, c1, _n1):
        silent = Runner("n2")
        c1.connect(silent)
        if backend.way == "grpc":  # a call is made with its first message or without any
            line_of(silent).open_silently()
        await until(lambda: not silent.is_open)


async def test_who_no_longer_reads_is_let_go_before_much_is_kept_for_it(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(server, "BUFFER_MAX", 4 * 1024 * 1024)
    async with a_node(backend) as (_, c1, n1):
        slow(n1)
        session = c1.parts.links.sessions["n1"]
        said = 0
        while "n1" in c1.parts.links.sessions and said < 500:  # at first the network takes some of it
            session.connection.send([wire.Welcome(wire.VERSION, 1, 5.0, 20.0, 1, "y" * 1024 * 1024)])
            said += 1
            await pause_task()
        await until(lambda: "n1" not in c1.parts.links.sessions)
        assert said < 250  # it is let go; how much the network takes first depends on the machine


async def test_a_log_is_read_over_a_stream_of_its_own(backend: Backend):
    async with a_node(backend) as (_, c1, n1):
        key = await n1.started(await c1.submit())
        logs = Runner("n1")
        c1.connect(logs)
        logs.say(wire.LogHello(wire.VERSION, n1.token, "n1", n1.life))
        reading = c1.parts.log_links.read("n1", key, WantedLog("stdout"))

        async def read() -> LogChunk:
            return await anext(reading)

        first = asyncio.ensure_future(read())
        await until(lambda: any(isinstance(each, wire.ReadLog) for each in logs.heard))
        asked = next(each for each in logs.heard if isinstance(each, wire.ReadLog))
        assert (asked.key, asked.stream, asked.offset) == (key, "stdout", 0)
        logs.say(wire.LogData(asked.id, 0, b"hello\n", 6, ended=True))
        chunk = await first
        assert (chunk.data, chunk.end) == (b"hello\n", True)


async def test_a_token_that_is_taken_back_ends_the_connection(backend: Backend):
    async with a_node(backend) as (_, c1, n1):
        c1.parts.keys._nodes.digests = frozenset()
        c1.parts.links.recheck()
        await until(lambda: not n1.is_open)
