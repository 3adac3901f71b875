"""Connections with back-pressure."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from phalanx.duplex import READS_PER_TURN, Duplex
from tests.support.waiting import until

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def a_pair() -> AsyncIterator[tuple[Duplex, Duplex]]:
    loop = asyncio.get_running_loop()
    made = [(await loop.create_connection(Duplex, sock=each))[1] for each in socket.socketpair()]
    try:
        yield made[0], made[1]
    finally:
        for each in made:
            each.abort()
            await each.lost


async def test_what_is_written_is_read_in_pieces_of_any_size():
    async with a_pair() as (here, there):
        await here.write(b"abcdef")
        assert await there.read_exactly(2) == b"ab"
        assert await there.read(100) == b"cdef"
        here.end_writing()
        assert await there.read(100) == b""
        await there.write(b"still")
        assert await here.read_exactly(5) == b"still"
        with pytest.raises(EOFError):
            await there.read_exactly(1)


async def test_a_slow_reader_stops_the_writer_and_little_is_held():
    async with a_pair() as (here, there):
        written: list[int] = [0]

        async def flood() -> None:
            while True:
                await here.write(bytes(65_536))
                written.append(written[-1] + 65_536)

        writing = asyncio.create_task(flood())
        looks: list[int] = []

        def stands() -> bool:
            looks.append(written[-1])
            return len(looks) > 50 and looks[-50] == written[-1] > 0

        await until(stands)
        before = written[-1]
        assert before < 4 << 20
        for _ in range(before // 65_536):
            await there.read_exactly(65_536)
        await until(lambda: written[-1] > before)
        writing.cancel()


async def test_a_lost_connection_is_an_error_for_who_writes_and_wakes_who_waits():
    async with a_pair() as (here, there):
        waiting = asyncio.create_task(there.read_exactly(1))
        await until(lambda: there._arrival is not None)
        here.abort()
        with pytest.raises(EOFError):
            await waiting
        await here.lost
        with pytest.raises(ConnectionError):
            await here.write(b"x")


async def test_silence_is_seen_only_of_who_could_speak():
    async with a_pair() as (here, there):
        now = asyncio.get_running_loop().time()
        assert here.is_silent(now + 100, 60)
        assert not here.is_silent(now + 50, 60)
        here.pause_writing()
        assert not here.is_silent(now + 100, 60)
        here.resume_writing()
        beating = asyncio.create_task(there.beat(b"!", 0.01))
        assert await here.read_exactly(2) == b"!!"
        there.abort()
        await beating


async def test_who_reads_a_full_buffer_in_small_pieces_lets_others_have_their_turn():
    async with a_pair() as (here, there):
        await here.write(b"x" * 65_536)
        await until(lambda: len(there._buffer) == 65_536)
        turns, is_reading = 0, True

        def others() -> None:
            nonlocal turns
            turns += 1
            if is_reading:
                asyncio.get_running_loop().call_soon(others)

        others()
        for _ in range(65_536):
            await there.read_exactly(1)
        is_reading = False
        assert turns >= 65_536 // READS_PER_TURN
