"""Frames of sessions."""

from __future__ import annotations

import pytest

from phalanx.api.schema import session_frames as frames
from phalanx.api.schema.session_frames import FROM_CLIENT, FROM_TASK, ExitFrame, FrameError, FrameKind
from phalanx.errors import Conflict

pytestmark = pytest.mark.anyio


class Source:
    def __init__(self, data: bytes) -> None:
        self._data = data

    async def read_exactly(self, count: int) -> bytes:
        if len(self._data) < count:
            raise EOFError
        found, self._data = self._data[:count], self._data[count:]
        return found


async def test_frames_are_read_as_they_were_packed():
    source = Source(
        frames.pack_frame(FrameKind.STDOUT, b"\0\xff")
        + frames.pack_window(70_000)
        + frames.pack_exit(ExitFrame(3))
    )
    assert await frames.read_frame(source, FROM_TASK) == (FrameKind.STDOUT, b"\0\xff")
    kind, content = await frames.read_frame(source, FROM_TASK)
    assert (kind, frames.read_window(content)) == (FrameKind.WINDOW, 70_000)
    assert frames.read_end(*await frames.read_frame(source, FROM_TASK)) == ExitFrame(3)
    with pytest.raises(EOFError):
        await frames.read_frame(source, FROM_TASK)


async def test_an_error_comes_back_as_the_error_it_was():
    source = Source(frames.pack_error(Conflict("it has ended", reason="TaskEnded", hint="look")))
    kind, content = await frames.read_frame(source, FROM_TASK)
    with pytest.raises(Conflict, match="it has ended") as raised:
        frames.read_end(kind, content)
    assert (raised.value.reason, raised.value.hint) == ("TaskEnded", "look")


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\0\0\0\0",
        b"\0\xff\xff\xff\xff",
        frames.pack_frame(FrameKind.EXIT, b"{}"),
        frames.pack_frame(FrameKind.STDOUT, b"x"),
    ],
)
async def test_what_a_client_may_not_send_is_refused(data: bytes):
    with pytest.raises(FrameError):
        await frames.read_frame(Source(data), FROM_CLIENT)


@pytest.mark.parametrize("content", [b"", b"123", b"12345"])
def test_sizes_and_windows_have_four_bytes(content: bytes):
    with pytest.raises(FrameError):
        frames.read_size(content)
    with pytest.raises(FrameError):
        frames.read_window(content)


def test_a_size_is_kept_within_what_a_terminal_can_have():
    assert frames.read_size(frames.pack_size(100_000, -1)[frames.HEAD_BYTES :]) == (65_535, 0)


def test_an_end_that_cannot_be_read_is_an_error():
    with pytest.raises(FrameError):
        frames.read_end(FrameKind.EXIT, b"?")
