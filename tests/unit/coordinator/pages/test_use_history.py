"""The use of the last day survives a restart of its coordinator, with a gap for the time between."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from phalanx.coordinator.pages.use_history import (
    DAY_S,
    SAMPLES_MAX,
    UseRing,
    UseSample,
    read_samples,
    write_samples,
)
from tests.support.clocks import ManualClock
from tests.support.waiting import until
from tests.unit.coordinator.test_declarations import a_coordinator


def a_sample(at: float, used: float = 1.0) -> UseSample:
    return UseSample(at, 8.0, used, 16.0, 2.0, 1, 0)


def test_samples_of_the_last_day_are_read_again(tmp_path: Path):
    file, now = tmp_path / "use.msgpack", 10 * DAY_S
    kept = [a_sample(now - 120.0), a_sample(now - 60.0)]
    write_samples(file, [a_sample(now - DAY_S - 1), *kept, a_sample(now + 60.0)])
    assert read_samples(file, now) == kept
    assert [each.name for each in tmp_path.iterdir()] == ["use.msgpack"]
    write_samples(file, [a_sample(now - at / 100) for at in range(2 * SAMPLES_MAX)])
    assert len(read_samples(file, now)) == SAMPLES_MAX


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x91\x91\xa1x", b"{}"])
def test_a_file_that_cannot_be_read_is_none(tmp_path: Path, body: bytes):
    file = tmp_path / "use.msgpack"
    assert read_samples(file, 5.0) == []
    file.write_bytes(body)
    assert read_samples(file, 5.0) == []


def test_without_a_place_for_the_file_nothing_fails(tmp_path: Path):
    write_samples(tmp_path / "gone" / "use.msgpack", [a_sample(5.0)])


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_coordinator_goes_on_after_a_gap(tmp_path: Path, anyio_backend: str):
    file, clock = tmp_path / "use.msgpack", ManualClock(5 * DAY_S)
    write_samples(file, [a_sample(clock.now() - 3600.0 + 60.0 * at, used=4.0) for at in range(3)])
    async with a_coordinator() as here:
        ring = UseRing(here.leadership, clock)
        keeping = asyncio.create_task(ring.keep(file))
        await until(lambda: len(read_samples(file, clock.now())) == 4)
        keeping.cancel()
        told = ring.told()
        assert told.devices_used == [4.0, 0.0], "samples on both sides of the gap are not averaged"
        assert told.at[1] - told.at[0] > 3000.0
