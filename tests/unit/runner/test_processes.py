"""When the runner's requests to its keeper leave: together, at the end of a turn; `forget` with the next.

And when a keeper that hung up is asked again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any, cast

import pytest

from phalanx.runner import processes as module
from phalanx.runner.keeper_messages import Event
from phalanx.runner.processes import KeeperFailed, Machine, Processes
from phalanx.sim.eventloop import an_event_loop
from phalanx.sim.life import Life
from phalanx.sim.world import LocalClock, World


class Frames:
    """A connection that keeps the frames it is given, as lists of requests."""

    def __init__(self) -> None:
        self.frames: list[list[Any]] = []
        self.heard = asyncio.Event()

    def write(self, data: bytes) -> None:
        assert int.from_bytes(data[:4], "big") == len(data) - 4
        self.frames.append(json.loads(data[4:]))
        self.heard.set()

    def is_closing(self) -> bool:
        return False


async def a_turn() -> None:
    """Until the event loop has run its pending callbacks."""
    done = asyncio.Event()
    asyncio.get_running_loop().call_soon(done.set)
    await done.wait()


def connected(on_event: Callable[[Event], None] = lambda _: None) -> tuple[Processes, Frames]:
    processes, frames = Processes(on_event), Frames()
    processes.connection_made(cast(asyncio.Transport, frames))
    return processes, frames


def test_what_the_keeper_may_forget_leaves_with_the_next_request_and_after_it():
    async def story() -> list[list[Any]]:
        processes, frames = connected()
        processes.forget(["a"])
        processes.forget_brief("b")
        await a_turn()
        assert frames.frames == []
        processes.brief("b", ["true"], {})
        processes.go("c")
        processes.forget(["d"])
        await a_turn()
        return frames.frames

    (frame,) = asyncio.run(story())
    assert [request[:2] for request in frame] == [
        ["forget_brief", "b"],
        ["brief", "b"],
        ["go", "c"],
        ["forget", ["a", "d"]],
    ]


def test_what_the_keeper_may_forget_leaves_alone_after_a_moment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "FORGET_WITHIN_S", 0.01)

    async def story() -> list[list[Any]]:
        processes, frames = connected()
        for key in ("a", "b"):
            frames.heard.clear()
            processes.forget([key])
            await asyncio.wait_for(frames.heard.wait(), 10.0)
        return frames.frames

    assert asyncio.run(story()) == [[["forget", ["a"]]], [["forget", ["b"]]]]


@pytest.mark.parametrize(("answer", "leaves"), [("go", True), ("forget", False)])
def test_what_is_asked_for_because_of_an_answer_leaves_at_once(answer: str, leaves: bool):
    async def story() -> int:
        def heard(event: Event) -> None:
            processes.go("a") if answer == "go" else processes.forget(["a"])

        processes, frames = connected(heard)
        body = b'[["ready","a"]]'
        processes.data_received(len(body).to_bytes(4, "big") + body)
        return len(frames.frames)

    assert asyncio.run(story()) == int(leaves)


def test_a_lease_leaves_at_once_with_what_was_asked_before_it():
    async def story() -> list[list[Any]]:
        processes, frames = connected()
        processes.go("a")
        processes.lease(10.0)
        return frames.frames  # without another turn

    assert asyncio.run(story()) == [[["go", "a"], ["lease", 10.0]]]


class KeeperThatHangsUp:
    """A machine whose keeper accepts every connection and closes it, without an answer."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.tried_at: list[float] = []
        self._now = now

    async def connect(self, make: Callable[[], Processes]) -> Processes:
        self.tried_at.append(self._now())
        processes = make()
        processes.connection_made(cast(asyncio.Transport, Frames()))
        asyncio.get_running_loop().call_soon(processes.connection_lost, None)
        return processes


def test_a_keeper_that_always_hangs_up_is_asked_again_after_growing_pauses():
    world = World(seed=1)
    clock = LocalClock(world, 0.0, 1.0)
    loop, machine = an_event_loop(Life(world, "runner"), clock), KeeperThatHangsUp(clock.monotonic)
    failed: list[str] = []

    async def story() -> None:
        try:
            await Processes.open(cast(Machine, machine), lambda _: None, deadline_s=3.0)
        except KeeperFailed as error:
            failed.append(type(error).__name__)

    loop.begin(story())
    world.run(world.now + 5.0)  # it raises if time stands still
    assert failed == ["KeeperFailed"], "a keeper that hangs up is not silent: it is not to be ended"
    gaps = [round(later - earlier, 6) for earlier, later in pairwise(machine.tried_at)]
    assert gaps == [0.01, 0.02, 0.04, 0.08, 0.16] + [0.2] * 13
