"""C42: a coordinator inside one process answers as one behind a port for frames or gRPC does, to one recorded script.

The script has what runners sent and what users asked for, in order, with the types of the recorded answers. It is
played to new coordinators, through the pipe of `phalanx.local()` and through each port, and everything received is
compared. Everything in it is fixed: ids, epochs and leases.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest
from msgspec import structs

from phalanx.core.cluster.inputs import Cancel, Input, Submit
from phalanx.core.model.orders import AttemptKey, Ended, Exit, Phase, Report, Returned, Started, Why
from phalanx.link import wire
from tests.contract.backends import MemoryBackend
from tests.contract.coordinators import (
    NODE_TOKEN,
    CoordinatorGroup,
    Runner,
    StartedCoordinator,
    a_coordinator_group,
    ended,
)
from tests.contract.lines import Way
from tests.support.builders import a_capacity, a_job
from tests.support.waiting import until

pytestmark = pytest.mark.anyio
Dial = Callable[[Runner], Awaitable[None]]
ONE, THREE, LONG = (f"{number:026d}" for number in (1, 2, 3))  # jobs


class Later(NamedTuple):
    """Time passes."""

    seconds: float


class Step(NamedTuple):
    """What happens, on which connection it is answered, and by what kinds of messages."""

    line: str
    does: wire.Message | Input | Later | bytes
    hears: tuple[type, ...] = ()
    ends: tuple[str, ...] = ()  # the connections that are closed after it


def hello(
    node: str = "n1",
    life: str = "a",
    *,
    token: str = NODE_TOKEN,
    version: int = wire.VERSION,
    origin: str = "here",
    epoch: int = 0,
    held: tuple[AttemptKey, ...] = (),
) -> wire.HelloMessage:
    listed = [(key, Phase.RUNNING) for key in held]
    return wire.HelloMessage(version, token, node, life, origin, a_capacity(), epoch, listed)


def beat(number: int, *held: AttemptKey, generation: int = 1) -> wire.Beat:
    return wire.Beat(1, float(number), [(key, Phase.RUNNING) for key in held], generation)


def end(key: AttemptKey, code: int = 0, *, epoch: int = 1, generation: int = 1) -> wire.Reports:
    return wire.Reports(epoch, [ended(key, code)], generation)


def script() -> list[Step]:
    welcomed, disposed = (wire.Welcome, wire.Orders), (wire.Dispositions,)
    one, long = (ONE, 0, 1), (LONG, 0, 1)
    of_three: list[AttemptKey] = [(THREE, position, 1) for position in range(3)]
    several: list[Report] = [
        Started(of_three[0], 5.0),
        Ended(of_three[0], Exit(Why.EXITED, 3, 5.0, 6.0, "", "no such file")),
        Ended(of_three[1], Exit(Why.NONE, 0, 5.0, 6.0)),
    ]
    return [
        Step("stranger", hello(token="of-nobody"), (wire.Rejected,), ("stranger",)),
        Step("reader", wire.LogHello(wire.VERSION, "of-nobody", "n1", "a"), (wire.Rejected,), ("reader",)),
        Step("old", hello(version=2), (wire.Rejected,), ("old",)),
        Step("nameless", hello("no name"), (wire.Rejected,), ("nameless",)),
        Step("ahead", hello(epoch=9), (wire.Rejected,), ("ahead",)),
        Step("rude", beat(1), (wire.Rejected,), ("rude",)),
        Step("noise", b"\x00\x00\x00\x03abc", (wire.Rejected,), ("noise",)),
        Step("giant", b"\xff\xff\xff\xff", (wire.Rejected,), ("giant",)),
        Step("n1", hello(), welcomed),
        Step("n1", beat(1), (wire.BeatAck,)),
        Step("n1", Submit(a_job(id=ONE, max_retries=0)), (wire.Orders,)),
        Step("n1", wire.Reports(1, [Started(one, 5.0)], 1), disposed),
        Step("n1", end(one, epoch=0), disposed),
        Step("n1", end(one, generation=7), disposed),
        Step("n1", end((ONE, 0, 2)), disposed),
        Step("n1", end(("9" * 26, 0, 1)), disposed),
        Step("n1", end(one), disposed),
        Step("n1", end(one), disposed),
        Step("n1", beat(2), (wire.BeatAck, wire.Orders)),  # what it knew of the job may be forgotten
        Step("n1", Submit(a_job(id=THREE, array="1-3", max_retries=0)), (wire.Orders,)),
        Step("n1", wire.Reports(1, several, 1), disposed),
        Step("n1", wire.Reports(1, [Returned(of_three[1])], 1), disposed),
        Step("n1", Cancel(THREE), (wire.Orders,)),
        Step("n1", end(of_three[2]), disposed),
        Step("n1", Submit(a_job("n1", id=LONG, max_retries=0)), (wire.Orders,)),
        Step("n1", beat(3, long, ("8" * 26, 0, 1)), (wire.BeatAck, wire.Orders, wire.Orders)),
        Step("twin", hello(life="b", origin="elsewhere"), (wire.Rejected,), ("twin",)),
        Step("n1 again", hello(epoch=1, held=(long,)), welcomed, ("n1",)),
        Step("n2", hello("n2"), welcomed),
        Step("n2", Later(16.0)),
        Step("n2", beat(1), (wire.BeatAck,)),
        Step("n2", Later(16.0)),
        Step("n2", beat(2), (wire.BeatAck,)),  # by now n1 was silent for too long
        Step("n1 again", end(long), disposed),
        Step("n1 again", beat(4, long), disposed, ("n1 again",)),
        Step("n1 anew", hello(epoch=1, held=(long,)), (*welcomed, wire.Orders)),
        Step("n1 anew", end(long, generation=3), (*disposed, wire.Orders)),  # its place is free again
        Step("n2", wire.BeatAck(1, 1.0), (), ("n2",)),  # a message that a runner never sends
    ]


async def played(
    group: CoordinatorGroup, coordinator: StartedCoordinator, dial: Dial
) -> dict[str, list[wire.Message]]:
    """What was received on each connection."""
    lines: dict[str, Runner] = {}
    for at, step in enumerate(script()):
        if step.line not in lines:
            lines[step.line] = Runner(step.line)
            await dial(lines[step.line])
        line = lines[step.line]
        before = len(line.heard)
        match step.does:
            case Later():
                group.clock.ahead_s += step.does.seconds
            case bytes():
                line._transport.write(step.does)
            case Submit() | Cancel():
                await coordinator.parts.leadership.ask([step.does])
            case _:
                line.say(step.does)  # type: ignore[arg-type]
        await until(lambda: len(line.heard) >= before + len(step.hears))  # noqa: B023 - awaited here
        await until(lambda: not any(lines[name].is_open for name in step.ends))  # noqa: B023 - as well
        kinds = [type(each) for each in line.heard[before:]]
        assert kinds == list(step.hears), f"step {at}: {step.does!r}"
    await coordinator.resign()  # its last messages
    await until(lambda: not any(line.is_open for line in lines.values()))
    return {name: [_without_time(each) for each in line.heard] for name, line in lines.items()}


def _without_time(heard: wire.Message) -> wire.Message:
    """The same without times."""
    if not isinstance(heard, wire.BeatAck):
        return heard
    assert heard.at > 0.0
    return structs.replace(heard, at=0.0)


async def by(way: Way) -> dict[str, list[wire.Message]]:
    backend = MemoryBackend()
    backend.way = way
    async with a_coordinator_group(backend) as group:
        coordinator = await group.coordinator("c1")

        async def dial(runner: Runner) -> None:
            coordinator.connect(runner)

        return await played(group, coordinator, dial)


def _in_any_words(heard: wire.Message) -> wire.Message:
    """Errors of the transport differ in their text only."""
    if isinstance(heard, wire.Rejected) and heard.code == "NotUnderstood":
        return structs.replace(heard, message="")
    return heard


async def test_c42_a_pipe_in_memory_and_a_port_give_the_same_replies_in_the_same_order():
    in_process, over_tcp = await by("pipe"), await by("frames")
    assert list(in_process) == list(over_tcp)
    for line, heard in in_process.items():
        assert heard == over_tcp[line], line


async def test_c42_grpc_gives_the_same_replies_in_the_same_order():
    in_process, over_grpc = await by("pipe"), await by("grpc")
    assert list(in_process) == list(over_grpc)
    for line, heard in in_process.items():
        assert list(map(_in_any_words, heard)) == list(map(_in_any_words, over_grpc[line])), line
