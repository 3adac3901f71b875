"""The sampler: what the attempts of this node use, looked at every few seconds, and summed up when one ends.

A round costs about as much as there are processes of attempts. It is done in small steps between which the runner does
its work, and the next round waits until the last one was a small part of the time that passed, so however many run, the
sampler takes no more than a share of one core. An attempt that ends between two rounds costs nothing: what its keeper
saw at its end is enough.

Sums are written to the state folder from time to time, so that a runner that starts again goes on from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from msgspec import MsgspecError, Struct, msgpack, structs

from phalanx.clock import Clock, thread_cpu_s
from phalanx.core.model.orders import AttemptKey
from phalanx.core.model.resources import Device
from phalanx.core.model.usage import AttemptUsage, wrong_usage
from phalanx.core.runner.attempts import ProcessEnd
from phalanx.link.usage import IdleDevice, ReadUsage, UsageData
from phalanx.logger import logger
from phalanx.runner import state_files
from phalanx.runner.keeper import system
from phalanx.runner.turn import RunnerEngine
from phalanx.runner.usage.accounting import CgroupCounters, read_counters
from phalanx.runner.usage.attempt_usage import MeasuredAttempt
from phalanx.runner.usage.device_meter import DeviceMeter, DeviceReading
from phalanx.runner.usage.idle import IdleRule
from phalanx.runner.usage.memory_watch import MemoryWatch
from phalanx.runner.usage.scan import ProcessScan, ProcessSums
from phalanx.runner.usage.series import UsageSeries

log = logger("runner")
FILE = "usage"
FILE_BYTES_MAX = 8 << 20
KEEP_EVERY_S = 30.0
COST_SHARE = 0.01  # of one core
INTERVAL_S_MAX = 300.0
SERIES_MAX = 2000  # attempts with a curve; of others only sums are kept
ATTEMPTS_PER_STEP = 16


class UsageRules(Struct, frozen=True):
    """How often is sampled, and from when on devices count as idle."""

    interval_s: float = 5.0
    idle: IdleRule = IdleRule()


class KeptUsage(Struct, frozen=True, array_like=True):
    """The sums of one attempt, for the next runner: which devices it holds is told to no runner twice."""

    name: str
    usage: AttemptUsage
    devices: tuple[int, ...] = ()


class UsageSampler:
    """The attempts of one runner that run now. Nothing is read before `keep` is run, but the files of ended ones."""

    def __init__(
        self,
        engine: RunnerEngine,
        state_dir: Path,
        rules: UsageRules | None = None,
        meter: DeviceMeter | None = None,
        cost_s: Callable[[], float] = thread_cpu_s,
    ) -> None:
        self.rules = rules or UsageRules()
        self.interval_s = self.rules.interval_s  # until the next round: longer if the last was costly
        self.round_cost_s = 0.0
        self._engine = engine
        self._path = state_dir / FILE
        self._meter = meter or DeviceMeter()
        self._cost_s = cost_s
        self._scan = ProcessScan()
        self._running: dict[AttemptKey, MeasuredAttempt] = {}
        # Those that started since the last look: their names, pids and starts. Most end before the next.
        self._fresh: dict[AttemptKey, tuple[str, int, float]] = {}
        self._kept: dict[str, KeptUsage] = {}  # what an earlier runner left, until its attempts are adopted
        self._series = 0
        self.memory_watch: MemoryWatch | None = None

    def set_rules(self, rules: UsageRules) -> None:
        """From now on, and for attempts that start from now on."""
        self.rules, self.interval_s = rules, rules.interval_s

    # What happens to attempts.

    def started(
        self, key: AttemptKey, name: str, pid: int, folders: Sequence[str] = (), at: float | None = None
    ) -> None:
        """It runs, since `at`; None: an earlier runner had started it. A keeper may tell it twice."""
        if key in self._running or key in self._fresh:
            return
        held = self._engine.state.held.get(key)
        devices: Sequence[int] = (
            held.start.grant.devices if held is not None and held.start is not None else ()
        )
        if at is not None and not folders and not devices:
            self._fresh[key] = name, pid, at
            return
        attempt = self._running[key] = MeasuredAttempt(key, name, pid, folders, at)
        if at is None and (kept := self._kept.pop(name, None)) is not None:
            attempt.restore(kept.usage)
            devices = devices or kept.devices
        if devices:
            attempt.hold(devices, self.rules.idle)

    def ended(self, key: AttemptKey, end: ProcessEnd, folders: Sequence[str] = ()) -> ProcessEnd:
        """The end with what the attempt used in all; its cgroups still exist."""
        self._fresh.pop(key, None)
        if (
            key not in self._running and not folders
        ):  # it ended before it was measured, or its start was not told
            if not end.memory_peak_bytes:
                return end
            used = AttemptUsage(end.cpu_s, end.memory_peak_bytes, end.read_bytes, end.written_bytes)
            return structs.replace(end, usage=used)
        attempt = self._running.pop(key, None)
        if attempt is None:  # it ended while no runner was there, or before its start was told
            attempt = MeasuredAttempt(key, "", 0, folders, None)
        elif attempt.series is not None:
            self._series -= 1
        measured = attempt.close(end, read_counters(folders) if folders else CgroupCounters())
        return end if measured is None else structs.replace(end, usage=measured)

    def _take_fresh(self) -> None:
        """Those that have lasted until now are measured."""
        for key, (name, pid, at) in self._fresh.items():
            self._running[key] = MeasuredAttempt(key, name, pid, (), at)
        self._fresh.clear()

    @property
    def running(self) -> Collection[AttemptKey]:
        self._take_fresh()
        return self._running.keys()

    def forget(self, key: AttemptKey) -> None:
        """It does not run any more, and nothing is known of its end."""
        self._fresh.pop(key, None)
        if self.memory_watch is not None:
            self.memory_watch.forget(key)
        if (attempt := self._running.pop(key, None)) is not None and attempt.series is not None:
            self._series -= 1

    # Rounds.

    async def keep(self, clock: Clock) -> None:
        """Sample as long as the runner lives."""
        kept_at = clock.monotonic()
        while True:
            await asyncio.sleep(self.interval_s)
            if self.running:
                await self.sample(clock)
            self._engine.idle = self._idle()
            if clock.monotonic() - kept_at >= KEEP_EVERY_S:
                kept_at = clock.monotonic()
                self.write()

    async def sample(self, clock: Clock) -> None:
        """One round over all attempts that run."""
        began_s, cost_s = self._cost_s(), 0.0
        self._take_fresh()
        leaders = {each.pid: each.name for each in self._running.values()}
        sums: dict[str, ProcessSums] = {}
        async for found in self._scan.scan(leaders):
            sums = found
            cost_s += self._cost_s() - began_s
            await asyncio.sleep(0)
            began_s = self._cost_s()
        cost_s += self._cost_s() - began_s
        readings = await self._read_devices()
        began_s = self._cost_s()
        for number, attempt in enumerate(list(self._running.values())):
            if not (number + 1) % ATTEMPTS_PER_STEP:
                cost_s += self._cost_s() - began_s
                await asyncio.sleep(0)
                began_s = self._cost_s()
            if attempt.key in self._running:
                self._sample_one(attempt, sums.get(attempt.name), readings, clock)
        self.round_cost_s = cost_s + self._cost_s() - began_s
        self.interval_s = min(max(self.rules.interval_s, self.round_cost_s / COST_SHARE), INTERVAL_S_MAX)

    def _sample_one(
        self,
        attempt: MeasuredAttempt,
        sums: ProcessSums | None,
        readings: Mapping[int, DeviceReading],
        clock: Clock,
    ) -> None:
        counters = read_counters(attempt.folders) if attempt.folders else CgroupCounters()
        if sums is None and counters.cpu_s is None:
            return  # it began after the pass, or its end is on its way
        if self.memory_watch is not None and sums is not None:
            self.memory_watch.look(attempt.key, sums.memory_bytes, sums.pids)
        below = self.rules.idle.use_below
        point = attempt.sample(sums or ProcessSums(pids=[]), counters, readings, clock.monotonic(), below)
        if point is None:
            return
        attempt.last = structs.replace(point, at=clock.now())
        if attempt.series is None and self._series < SERIES_MAX:
            self._series += 1
            attempt.series = UsageSeries(clock.now())
        if attempt.series is not None:
            attempt.series.add(attempt.last)

    async def _read_devices(self) -> dict[int, DeviceReading]:
        """The devices that running attempts hold, by index."""
        held = {index for attempt in self._running.values() for index in attempt.devices}
        uuids = {device.uuid: device.index for device in self._held(held)}
        readings = await self._meter.read(list(uuids)) if uuids else {}
        return {uuids[uuid]: reading for uuid, reading in readings.items() if uuid in uuids}

    def _held(self, indices: set[int]) -> list[Device]:
        return [each for each in self._engine.capacity.devices if each.index in indices and each.uuid]

    def _idle(self) -> list[IdleDevice]:
        return [
            IdleDevice(index, device.window.idle_s, device.window.use)
            for attempt in self._running.values()
            for index, device in attempt.devices.items()
            if device.window.idle_s
        ]

    # Questions.

    def answer(self, asked: ReadUsage, now: float) -> UsageData:
        self._take_fresh()
        found = (self._running.get(key) for key in asked.keys)
        attempts = [each.samples(asked.points) for each in found if each is not None]
        return UsageData(asked.id, now, self.interval_s, attempts)

    # The file for the next runner.

    def read(self) -> None:
        """Read what an earlier runner left; what is not readable, or cannot be true, is not used."""
        try:
            found = msgpack.decode(system.read(str(self._path), FILE_BYTES_MAX), type=list[KeptUsage])
        except MsgspecError:
            return
        self._kept = {each.name: each for each in found if not wrong_usage(each.usage)}

    def write(self) -> None:
        """Leave it for the next runner; a disk that is full costs only this."""
        sampled = [each for each in self._running.values() if each.memory_peak_bytes]
        kept = [KeptUsage(each.name, each.usage(), tuple(each.devices)) for each in sampled]
        content = msgpack.encode(kept)
        if len(content) > FILE_BYTES_MAX:
            return
        try:
            state_files.write(self._path, content)
        except OSError as error:
            log.warning("usage is not kept for the next runner", error=str(error))
