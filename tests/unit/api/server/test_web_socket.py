"""A browser's end of a session against pages that are not ours: floods of what costs them nothing."""

from __future__ import annotations

import asyncio
import os

import pytest
from websockets.frames import Frame, Opcode

from phalanx.api.schema.session_frames import FrameError, FrameKind
from phalanx.api.server.web_socket import CONTROLS_MAX, PARTS_MAX, WebSocketEnd
from phalanx.duplex import Duplex
from tests.support.turns import counted_turns

pytestmark = pytest.mark.anyio
FLOOD = 10_000


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Deaf(asyncio.Transport):
    """Takes everything, and counts it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += len(data)

    def is_closing(self) -> bool:
        return False

    def can_write_eof(self) -> bool:
        return True

    def pause_reading(self) -> None:
        """Everything has come already."""

    def resume_reading(self) -> None:
        """Nor does more come."""


def an_end(*frames: bytes) -> tuple[WebSocketEnd, Deaf]:
    connection, transport = Duplex(), Deaf()
    connection.connection_made(transport)
    connection.data_received(b"".join(frames))
    connection.eof_received()
    return WebSocketEnd(connection), transport


def spelled(opcode: Opcode, data: bytes, *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=True)


@pytest.mark.parametrize("opcode", [Opcode.PING, Opcode.PONG])
async def test_a_flood_of_signs_of_life_ends_the_session(opcode: Opcode):
    end, transport = an_end(spelled(opcode, b"") * FLOOD)
    with pytest.raises(FrameError):
        await end.read_exactly(1)
    assert transport.written < 10 * CONTROLS_MAX


async def test_a_message_in_endless_pieces_of_nothing_ends_the_session():
    end, _ = an_end(spelled(Opcode.BINARY, b"\x01", fin=False), spelled(Opcode.CONT, b"", fin=False) * FLOOD)
    with pytest.raises(FrameError):
        await end.read_exactly(1)
    assert len(end._parts) <= PARTS_MAX + 1


async def test_others_have_their_turn_while_a_flood_is_looked_at():
    end, _ = an_end(spelled(Opcode.BINARY, bytes([FrameKind.STDIN])) * FLOOD)

    async def taken() -> None:
        for _ in range(FLOOD):
            await end.read_exactly(5)

    async with counted_turns() as turns:
        await taken()
    assert turns.count > FLOOD / 500


async def test_a_long_frame_is_read_whole():
    content = os.urandom(60_000)
    end, _ = an_end(spelled(Opcode.BINARY, bytes([FrameKind.STDIN]) + content))
    assert (await end.read_exactly(5 + len(content)))[5:] == content
