"""Collections stay short: what survived a full one is set aside, and looked at again when it has tripled."""

from __future__ import annotations

import asyncio
import gc

import pytest

from phalanx.coordinator import collector

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_survivors_of_a_full_collection_are_not_looked_through_again(monkeypatch):
    monkeypatch.setattr(collector, "LOOK_EVERY_S", 0.001)
    was = gc.get_threshold()
    keeping = asyncio.ensure_future(collector.keep_short())
    try:
        await _until(lambda: gc.get_threshold()[0] == collector.YOUNG)
        before = gc.get_freeze_count()
        state = [[number] for number in range(20_000)]
        gc.collect()
        await _until(lambda: gc.get_freeze_count() >= before + len(state))
    finally:
        keeping.cancel()
        gc.unfreeze()
        gc.set_threshold(*was)


async def test_when_they_have_grown_all_are_looked_at(monkeypatch):
    monkeypatch.setattr(collector, "LOOK_EVERY_S", 0.001)
    monkeypatch.setattr(collector, "SMALL", -1_000_000_000)  # any growth is enough
    was = gc.get_threshold()
    keeping = asyncio.ensure_future(collector.keep_short())
    try:
        await _until(lambda: gc.get_threshold()[0] == collector.YOUNG)
        ring: list[object] = []
        ring.append(ring)
        gc.collect()
        gc.freeze()  # now it is among the survivors,
        left = _Left()
        ring.append(left)
        del ring, left  # and garbage
        gc.collect()
        await _until(lambda: _Left.alive == 0)
    finally:
        keeping.cancel()
        gc.unfreeze()
        gc.set_threshold(*was)


class _Left:
    alive = 0

    def __init__(self) -> None:
        _Left.alive += 1

    def __del__(self) -> None:
        _Left.alive -= 1


async def _until(condition) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.wait({asyncio.get_running_loop().create_future()}, timeout=0.005)
