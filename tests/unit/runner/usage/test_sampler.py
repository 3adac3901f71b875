"""The sampler: sums, curves and ends of attempts, what it keeps for the next runner, and what it costs."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from phalanx.core.model.orders import Phase, Start
from phalanx.core.model.resources import Grant
from phalanx.core.model.usage import AttemptUsage
from phalanx.core.runner.attempts import Held, ProcessEnd
from phalanx.link.usage import ReadUsage
from phalanx.runner.turn import RunnerEngine
from phalanx.runner.usage.device_meter import DeviceMeter, DeviceReading
from phalanx.runner.usage.idle import IdleRule
from phalanx.runner.usage.sampler import COST_SHARE, UsageRules, UsageSampler
from tests.support import known_load
from tests.support.builders import a_capacity

pytestmark = pytest.mark.anyio
JOB = f"01kx{os.getpid():022}"  # other processes that run these tests at the same time look for their own
KEY = (JOB, 0, 1)
NAME = f"{JOB}/0/1/1"
MIB = 1 << 20


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class FakeClock:
    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return 1e9 + self.at

    def monotonic(self) -> float:
        return self.at


class FakeMeter(DeviceMeter):
    def __init__(self, **readings: DeviceReading) -> None:
        super().__init__(None)
        self.readings = {uuid.replace("_", "-"): reading for uuid, reading in readings.items()}

    async def read(self, uuids: Any) -> dict[str, DeviceReading]:
        return {uuid: self.readings[uuid] for uuid in uuids if uuid in self.readings}


def an_engine(gpus: int = 0) -> RunnerEngine:
    return RunnerEngine("n1", "a", "o", "t", a_capacity(gpus=gpus))


def a_sampler(folder: Path, engine: RunnerEngine | None = None, **more: Any) -> UsageSampler:
    return UsageSampler(engine or an_engine(), folder, **more)


def an_end(**fields: Any) -> ProcessEnd:
    return ProcessEnd(0, None, False, None, 1.0, 2.0, **fields)


@contextmanager
def running(argv: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, env=os.environ
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"used\n"
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


async def test_a_running_attempt_has_sums_and_a_curve(tmp_path: Path):
    sampler, clock = a_sampler(tmp_path), FakeClock()
    with running(known_load.cpu(0.5)) as process:
        sampler.started(KEY, NAME, process.pid, at=clock.at)
        clock.at += 2.0
        await sampler.sample(clock)
        clock.at += 2.0
        await sampler.sample(clock)
        data = sampler.answer(ReadUsage(7, [KEY, ("other", 0, 1)], 60), clock.now())
    [found] = data.attempts
    assert (data.id, found.key, found.source) == (7, KEY, "processes")
    assert found.usage.cpu_s == pytest.approx(0.5, rel=0.1, abs=0.03)
    first, second = found.points
    assert first.cores == pytest.approx(found.usage.cpu_s / 2.0, rel=0.05)
    assert second.cores == pytest.approx(0.0, abs=0.02)
    assert first.at == pytest.approx(1e9 + 1002.0, abs=0.01)
    assert (first.span_s, first.processes) == (2.0, 1)
    assert found.last is not None
    assert found.last.at == 1e9 + 1004.0


async def test_an_end_has_the_most_of_what_was_sampled_and_what_the_keeper_saw(tmp_path: Path):
    sampler, clock = a_sampler(tmp_path), FakeClock()
    with running(known_load.memory(64, children=1)) as process:
        sampler.started(KEY, NAME, process.pid, at=clock.at)
        clock.at += 1.0
        await sampler.sample(clock)
    # More than any of them can have read, since the program itself may have come from the disk.
    saw = an_end(cpu_s=9.0, memory_peak_bytes=70 * MIB, read_bytes=5 << 40, written_bytes=6 << 40)
    end = sampler.ended(KEY, saw)
    assert end.usage is not None
    assert (end.usage.cpu_s, end.usage.read_bytes, end.usage.written_bytes) == (9.0, 5 << 40, 6 << 40)
    assert end.usage.memory_peak_bytes > 120 * MIB  # of both processes, of which the keeper sees the larger
    assert not sampler.running


def test_a_short_attempt_has_what_its_keeper_saw(tmp_path: Path):
    sampler = a_sampler(tmp_path)
    sampler.started(KEY, NAME, 4_000_000, at=1.0)
    end = sampler.ended(KEY, an_end(cpu_s=0.25, memory_peak_bytes=8 * MIB))
    assert end.usage == AttemptUsage(0.25, 8 * MIB)


def test_an_older_keeper_tells_nothing_and_so_nothing_is_reported(tmp_path: Path):
    assert a_sampler(tmp_path).ended(KEY, an_end()).usage is None


def test_the_last_counters_of_its_cgroup_count(tmp_path: Path):
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "cpu.stat").write_text("usage_usec 4000000\n")
    (folder / "memory.current").write_text("1\n")
    (folder / "memory.peak").write_text(f"{200 * MIB}\n")
    (folder / "memory.stat").write_text(f"file {50 * MIB}\nshmem 0\n")
    sampler = a_sampler(tmp_path)
    sampler.started(KEY, NAME, 4_000_000, [str(folder)], at=1.0)
    end = sampler.ended(KEY, an_end(cpu_s=3.5, memory_peak_bytes=180 * MIB), [str(folder)])
    assert end.usage == AttemptUsage(4.0, 150 * MIB)


async def test_a_runner_that_starts_again_goes_on_from_what_was_measured(tmp_path: Path):
    engine, clock = an_engine(gpus=2), FakeClock()
    meter = FakeMeter(GPU_1=DeviceReading(0.5, 9 * MIB))
    first = a_sampler(tmp_path, engine, meter=meter)
    with running(known_load.memory(64)) as process:
        held = engine.state.held[KEY] = Held(Start(KEY, 1, Grant(1, 0, (1,)), None, 0), 1, Phase.RUNNING)
        first.started(KEY, NAME, process.pid, at=clock.at)
        clock.at += 10.0
        await first.sample(clock)
        first.write()

        held.start = None  # a runner is not told again what an attempt was granted
        second = a_sampler(tmp_path, engine, meter=meter)
        second.read()
        second.started(KEY, NAME, process.pid)
        clock.at += 10.0
        await second.sample(clock)  # this one only shows where the sums stand
        clock.at += 10.0
        await second.sample(clock)
    end = second.ended(KEY, an_end(cpu_s=0.1, memory_peak_bytes=MIB))
    assert end.usage is not None
    assert end.usage.memory_peak_bytes > 60 * MIB
    assert (end.usage.device_s, end.usage.device_busy_s) == (20.0, 10.0)
    assert end.usage.device_memory_peak_bytes == 9 * MIB


@pytest.mark.parametrize("content", [b"", b"\xff\xff", b"\x91\x93\xa1a\x91\xcb\xff\xf0\0\0\0\0\0\0\x90"])
def test_a_file_that_cannot_be_true_is_not_used(tmp_path: Path, content: bytes):
    (tmp_path / "usage").write_bytes(content)
    sampler = a_sampler(tmp_path)
    sampler.read()
    sampler.started(KEY, NAME, 4_000_000)
    assert sampler.ended(KEY, an_end()).usage is None


async def test_devices_are_sampled_for_who_holds_them(tmp_path: Path):
    engine, clock = an_engine(gpus=2), FakeClock()
    rules = UsageRules(5.0, IdleRule(0.05, 50.0))
    with running(known_load.cpu(0.0)) as process:
        readings = {
            "GPU_0": DeviceReading(0.9, 40 * MIB, {process.pid: 30 * MIB, 1: MIB}),
            "GPU_1": DeviceReading(0.0, 7 * MIB),
        }
        sampler = a_sampler(tmp_path, engine, rules=rules, meter=FakeMeter(**readings))
        engine.state.held[KEY] = Held(Start(KEY, 1, Grant(1, 0, (0, 1)), None, 0), 1, Phase.RUNNING)
        sampler.started(KEY, NAME, process.pid, at=clock.at)
        for _ in range(10):
            clock.at += 5.0
            await sampler.sample(clock)
        [found] = sampler.answer(ReadUsage(1, [KEY], 10), clock.now()).attempts
    busy, idle = found.devices
    assert (busy.use, busy.memory_bytes, busy.is_own, busy.idle_s) == (0.9, 30 * MIB, True, 0.0)
    assert (idle.use, idle.memory_bytes, idle.is_own, idle.idle_s) == (0.0, 7 * MIB, False, 50.0)
    assert found.usage.device_s == 100.0
    assert found.usage.device_busy_s == pytest.approx(45.0)
    assert found.usage.device_idle_s == 50.0
    assert [(each.index, each.idle_s) for each in sampler._idle()] == [(1, 50.0)]


async def test_the_more_a_round_costs_the_longer_until_the_next(tmp_path: Path):
    spent = iter([0.0, *[step * 0.1 for step in range(1, 100)]])
    sampler, clock = a_sampler(tmp_path, cost_s=lambda: next(spent)), FakeClock()
    with running(known_load.cpu(0.0)) as process:
        sampler.started(KEY, NAME, process.pid, at=clock.at)
        clock.at += 1.0
        await sampler.sample(clock)
    assert sampler.round_cost_s > 0.1
    assert sampler.interval_s == pytest.approx(sampler.round_cost_s / COST_SHARE)


async def test_only_so_many_attempts_have_a_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("phalanx.runner.usage.sampler.SERIES_MAX", 1)
    sampler, clock = a_sampler(tmp_path), FakeClock()
    other = (KEY[0], 1, 1)
    with running(known_load.cpu(0.0)) as one, running(known_load.cpu(0.0)) as two:
        sampler.started(KEY, NAME, one.pid, at=clock.at)
        sampler.started(other, "b/1/1/1", two.pid, at=clock.at)
        clock.at += 1.0
        await sampler.sample(clock)
        found = sampler.answer(ReadUsage(1, [KEY, other], 10), clock.now()).attempts
        assert [len(each.points) for each in found] == [1, 0]
        assert all(each.last is not None for each in found)
        sampler.forget(KEY)
        clock.at += 1.0
        await sampler.sample(clock)
        [left] = sampler.answer(ReadUsage(1, [KEY, other], 10), clock.now()).attempts
        assert len(left.points) == 1
