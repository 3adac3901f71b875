"""Collections stay short: survivors are frozen, and collected again when the memory has doubled."""

from __future__ import annotations

import asyncio
import gc

import pytest

from phalanx.coordinator import garbage
from tests.support.waiting import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_survivors_of_a_full_collection_are_not_looked_through_again(monkeypatch):
    monkeypatch.setattr(garbage, "MEMORY_LOOK_S", 0.001)
    was = gc.get_threshold()
    keeping = asyncio.ensure_future(garbage.keep_short())
    try:
        await until(lambda: gc.get_threshold()[0] == garbage.COLLECT_AFTER[0])
        before = gc.get_freeze_count()
        state = [[number] for number in range(20_000)]
        gc.collect()
        await until(lambda: gc.get_freeze_count() >= before + len(state))
    finally:
        keeping.cancel()
        gc.unfreeze()
        gc.set_threshold(*was)


async def test_a_collection_looks_at_few_objects_however_many_there_are():
    """What is frozen is not in the next collection; `gc.get_objects` has only what is not frozen."""
    most = [0]

    def look(phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            most[0] = max(most[0], len(gc.get_objects()))

    was = gc.get_threshold()
    keeping = asyncio.ensure_future(garbage.keep_short())
    try:
        await until(lambda: gc.get_threshold()[0] == garbage.COLLECT_AFTER[0])
        gc.callbacks.append(look)
        state = [[number] for number in range(1_000_000)]
        assert state
        assert 0 < most[0] <= 20_000
    finally:
        gc.callbacks.remove(look)
        keeping.cancel()
        gc.unfreeze()
        gc.set_threshold(*was)


async def test_what_takes_long_waits_for_a_quiet_moment_but_not_for_ever(monkeypatch):
    survivors = garbage._Survivors()
    gc.unfreeze()
    assert 0 < survivors.growth < 1
    known = survivors._known
    monkeypatch.setattr(garbage, "_resident", lambda: 3 * known + 2 * garbage.MEMORY_SMALL)
    assert 1 < survivors.growth < garbage.OVERDUE
    monkeypatch.setattr(garbage, "_resident", lambda: 5 * (known + garbage.MEMORY_SMALL))
    assert survivors.growth > garbage.OVERDUE


async def test_when_they_have_grown_all_are_looked_at(monkeypatch):
    monkeypatch.setattr(garbage, "MEMORY_LOOK_S", 0.001)
    monkeypatch.setattr(garbage, "OVERDUE", 0.0)  # no growth is enough
    monkeypatch.setattr(garbage, "BUSY", 0.0)
    was = gc.get_threshold()
    keeping = asyncio.ensure_future(garbage.keep_short())
    try:
        await until(lambda: gc.get_threshold()[0] == garbage.COLLECT_AFTER[0])
        ring: list[object] = []
        ring.append(ring)
        gc.collect()
        gc.freeze()  # now it is among the survivors,
        left = _Left()
        ring.append(left)
        del ring, left  # and garbage
        gc.collect()
        await until(lambda: _Left.alive == 0)
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
