"""The door for runners: strangers may neither say much nor be many; whoever was let in may."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from phalanx.api import wire
from phalanx.coordinator.entry import SharedKey
from phalanx.coordinator.links import Letter, Links
from phalanx.coordinator.logs import LogRoads
from phalanx.coordinator.server import STRANGERS_FRAME_MAX, STRANGERS_MAX, Door, Hall
from phalanx.core.cluster.decision import Accepted
from tests.builders import a_capacity, a_cluster

pytestmark = pytest.mark.anyio
HELLO = wire.HelloMessage(wire.VERSION, "", "n1", "life", "origin", a_capacity(), 0, [])


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Line:
    """A transport that remembers whether it was ended."""

    def __init__(self) -> None:
        self.is_ended = False
        self.written = 0

    def get_extra_info(self, name: str) -> Any:
        return None

    def abort(self) -> None:
        self.is_ended = True

    close = abort

    def is_closing(self) -> bool:
        return self.is_ended

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        self.written += len(data)


class House:
    """A hall and the doors into it. Letters are answered at once."""

    def __init__(self) -> None:
        self.hall = Hall()
        state = a_cluster(n1={"cores": 4}).state
        self.links = Links(lambda: state, SharedKey())
        self.roads = LogRoads(SharedKey(), lambda: None)

    def door(self) -> tuple[Door, Line]:
        door, line = Door(self.links, self.roads, self._answer, self.hall), Line()
        door.connection_made(cast(asyncio.Transport, line))
        return door, line

    def _answer(self, letter: Letter) -> bool:
        letter[1]([Accepted()])
        return True


def head(size: int) -> bytes:
    """The beginning of a frame that will be so long."""
    return size.to_bytes(4, "big")


async def test_a_stranger_cannot_announce_a_large_frame():
    door, line = House().door()
    door.data_received(head(STRANGERS_FRAME_MAX + 1))
    assert line.is_ended


async def test_who_was_welcomed_can():
    door, line = House().door()
    door.data_received(wire.pack(HELLO))
    door.data_received(head(STRANGERS_FRAME_MAX + 1))
    assert line.written and not line.is_ended


async def test_of_too_many_strangers_the_one_who_says_nothing_longest_is_turned_away():
    house = House()
    doors = [house.door() for _ in range(STRANGERS_MAX + 1)]
    assert [line.is_ended for _, line in doors] == [True] + [False] * STRANGERS_MAX


async def test_a_crowd_of_strangers_does_not_keep_a_runner_out():
    house = House()
    for _ in range(2 * STRANGERS_MAX):
        house.door()
    runner, line = house.door()
    runner.data_received(wire.pack(HELLO))
    for _ in range(2 * STRANGERS_MAX):
        house.door()
    assert line.written and not line.is_ended


async def test_who_was_welcomed_and_who_left_make_room_for_others():
    house = House()
    (first, _), (second, _), *_ = [house.door() for _ in range(STRANGERS_MAX)]
    first.data_received(wire.pack(HELLO))
    second.connection_lost(None)
    assert len(house.hall.strangers) == STRANGERS_MAX - 2
    first.connection_lost(None)
    assert len(house.hall.strangers) == STRANGERS_MAX - 2
    assert not house.door()[1].is_ended
