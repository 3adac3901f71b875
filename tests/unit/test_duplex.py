"""Connections with back-pressure."""

from __future__ import annotations

import asyncio
import socket

import pytest

from phalanx.duplex import BUFFER_BYTES, Duplex
from tests.support.waiting import until

pytestmark = pytest.mark.anyio


async def a_pair() -> tuple[Duplex, Duplex]:
    loop = asyncio.get_running_loop()
    made = [await loop.create_connection(Duplex, sock=each) for each in socket.socketpair()]
    return made[0][1], made[1][1]


async def test_what_is_written_is_read_in_pieces_of_any_size():
    here, there = await a_pair()
    await here.write(b"abcdef")
    assert await there.read_exactly(2) == b"ab"
    assert await there.read(100) == b"cdef"
    here.end_writing()
    assert await there.read(100) == b""
    await there.write(b"still")
    assert await here.read_exactly(5) == b"still"
    with pytest.raises(EOFError):
        await there.read_exactly(1)
    here.abort()
    there.abort()


async def test_a_slow_reader_stops_the_writer_and_little_is_held():
    here, there = await a_pair()
    written = 0

    async def flood() -> None:
        nonlocal written
        while True:
            await here.write(bytes(65_536))
            written += 65_536

    writing = asyncio.create_task(flood())
    seen = -1
    while written != seen:
        seen = written
        await until(lambda: True)
        await asyncio.sleep(0)
        for _ in range(50):
            await asyncio.sleep(0)
    assert written < 4 << 20
    assert len(there._buffer) <= BUFFER_BYTES + 512 * 1024
    await there.read_exactly(written)
    await until(lambda: written > seen)
    writing.cancel()
    here.abort()
    there.abort()


async def test_a_lost_connection_is_an_error_for_who_writes_and_wakes_who_waits():
    here, there = await a_pair()
    waiting = asyncio.create_task(there.read_exactly(1))
    await asyncio.sleep(0)
    here.abort()
    with pytest.raises(EOFError):
        await waiting
    await there.lost if not there.lost.done() else None
    await until(lambda: here.lost.done())
    with pytest.raises(ConnectionError):
        await here.write(b"x")
    there.abort()


async def test_silence_is_seen_only_of_who_could_speak():
    here, there = await a_pair()
    now = asyncio.get_running_loop().time()
    assert here.is_silent(now + 100, 60)
    assert not here.is_silent(now + 50, 60)
    here.pause_writing()
    assert not here.is_silent(now + 100, 60)
    here.resume_writing()
    beating = asyncio.create_task(there.beat(b"!", 0.01))
    assert await here.read_exactly(2) == b"!!"
    here.abort()
    there.abort()
    await beating
