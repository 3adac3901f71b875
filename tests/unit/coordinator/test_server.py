"""The port for runners: strangers may send little and be few; authenticated runners are not limited so."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from phalanx.coordinator.link import Envelope, Links
from phalanx.coordinator.link_auth import SharedToken
from phalanx.coordinator.logs import LogLinks
from phalanx.coordinator.server import (
    STRANGERS_BYTES_MAX,
    STRANGERS_FRAME_MAX,
    STRANGERS_MAX,
    RunnerConnection,
    RunnerConnections,
)
from phalanx.core.cluster.decision import Accepted
from phalanx.link import wire
from tests.support.builders import a_capacity, a_cluster

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
        self.said: list[wire.Message] = []

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
        self.said += wire.Unpacker().feed(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.is_ended = True


class Wiring:
    """Runner connections and what they share. Envelopes are answered at once."""

    def __init__(self) -> None:
        self.connections = RunnerConnections()
        state = a_cluster(n1={"cores": 4}).state
        self.links = Links(lambda: state, SharedToken())
        self.log_links = LogLinks(SharedToken(), lambda: None)

    def connection(self) -> tuple[RunnerConnection, Line]:
        connection, line = (
            RunnerConnection(self.links, self.log_links, self._answer, self.connections),
            Line(),
        )
        connection.connection_made(cast(asyncio.Transport, line))
        return connection, line

    def _answer(self, envelope: Envelope) -> bool:
        envelope[1]([Accepted()])
        return True


def head(size: int) -> bytes:
    """The beginning of a frame of this length."""
    return size.to_bytes(4, "big")


async def test_a_stranger_cannot_announce_a_large_frame():
    connection, line = Wiring().connection()
    connection.data_received(head(STRANGERS_FRAME_MAX + 1))
    assert line.is_ended


async def test_who_was_welcomed_can():
    connection, line = Wiring().connection()
    connection.data_received(wire.pack(HELLO))
    connection.data_received(head(STRANGERS_FRAME_MAX + 1))
    assert line.written and not line.is_ended


async def test_of_too_many_strangers_the_one_who_says_nothing_longest_is_turned_away():
    wiring = Wiring()
    addresses = [wiring.connection() for _ in range(STRANGERS_MAX + 1)]
    assert [line.is_ended for _, line in addresses] == [True] + [False] * STRANGERS_MAX


async def test_a_crowd_of_strangers_does_not_keep_a_runner_out():
    wiring = Wiring()
    for _ in range(2 * STRANGERS_MAX):
        wiring.connection()
    runner, line = wiring.connection()
    runner.data_received(wire.pack(HELLO))
    for _ in range(2 * STRANGERS_MAX):
        wiring.connection()
    assert line.written and not line.is_ended


async def test_who_was_welcomed_and_who_left_make_room_for_others():
    wiring = Wiring()
    (first, _), (second, _), *_ = [wiring.connection() for _ in range(STRANGERS_MAX)]
    first.data_received(wire.pack(HELLO))
    second.connection_lost(None)
    assert len(wiring.connections.strangers) == STRANGERS_MAX - 2
    first.connection_lost(None)
    assert len(wiring.connections.strangers) == STRANGERS_MAX - 2
    assert not wiring.connection()[1].is_ended


@pytest.mark.parametrize(
    "noise",
    [head(2**31), head(3) + b"\xff\xff\xff", wire.pack(wire.Reports(1, [])), b"GET / HTTP/1.1\r\n\r\n"],
    ids=["a long frame", "no message", "no hello", "HTTP"],
)
async def test_a_stranger_who_is_not_understood_is_told_so(noise: bytes):
    wiring = Wiring()
    connection, line = wiring.connection()
    connection.data_received(noise)
    (said,) = line.said
    assert isinstance(said, wire.Rejected) and (said.code, said.retry) == ("NotUnderstood", True)
    connection.data_received(noise)  # what follows is dropped
    assert len(line.said) == 1


async def test_a_stranger_who_ends_within_a_frame_is_told_so():
    connection, line = Wiring().connection()
    connection.data_received(head(100) + b"x")
    connection.eof_received()
    assert [type(each) for each in line.said] == [wire.Rejected]


async def test_what_strangers_say_together_is_bounded():
    wiring = Wiring()
    addresses = [wiring.connection() for _ in range(100)]
    for connection, _ in addresses:
        for _ in range(7):
            connection.data_received(
                head(STRANGERS_FRAME_MAX) if not connection._unpacker.pending else b"x" * 60_000
            )
    held = sum(connection._unpacker.pending for connection, _ in addresses)
    assert held <= STRANGERS_BYTES_MAX
    assert any(line.is_ended for _, line in addresses) and not all(line.is_ended for _, line in addresses)
    for connection, _ in addresses:
        connection.connection_lost(None)
    assert not wiring.connections.said and not wiring.connections._bytes


def test_a_runner_at_the_port_for_clients_is_told_so():
    with pytest.raises(wire.WireError, match=r"this is HTTP: .*7433"):
        wire.Unpacker().feed(b"HTTP/1.1 400 Bad Request\r\n")
