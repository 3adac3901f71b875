"""One running attempt as the sampler knows it: its sums so far, its curve, and its devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from phalanx.core.model.orders import AttemptKey
from phalanx.core.model.usage import AttemptUsage
from phalanx.core.runner.attempts import ProcessEnd
from phalanx.link.usage import DEVICES_SHOWN_MAX, AttemptSamples, DeviceSample, UsagePoint
from phalanx.runner.usage.accounting import CgroupCounters
from phalanx.runner.usage.device_meter import DeviceReading
from phalanx.runner.usage.idle import IdleRule, IdleWindow
from phalanx.runner.usage.scan import ProcessSums
from phalanx.runner.usage.series import UsageSeries


class MeasuredAttempt:
    """Sums never fall: a process that vanished between two passes has used what it used."""

    __slots__ = (
        "cpu_s", "device_busy_s", "device_idle_s", "device_memory_peak_bytes", "device_s", "devices", "folders", "key",
        "last", "memory_peak_bytes", "name", "pid", "read_bytes", "sampled_at", "series", "shown", "source",
        "written_bytes",
    )  # fmt: skip

    def __init__(
        self, key: AttemptKey, name: str, pid: int, folders: Sequence[str], at: float | None
    ) -> None:
        """`at` is when it started, by a clock that does not step; None: before this runner, so sums come first."""
        self.key, self.name, self.pid, self.folders = key, name, pid, folders
        self.sampled_at = at
        self.series: UsageSeries | None = None
        self.source = ""
        self.last: UsagePoint | None = None
        self.cpu_s = 0.0
        self.memory_peak_bytes = self.read_bytes = self.written_bytes = 0
        self.device_s = self.device_busy_s = self.device_idle_s = 0.0
        self.device_memory_peak_bytes = 0
        self.devices: dict[int, DeviceUse] = {}
        self.shown: tuple[DeviceSample, ...] = ()

    def hold(self, devices: Sequence[int], rule: IdleRule) -> None:
        self.devices = {index: DeviceUse(rule) for index in devices}

    def restore(self, kept: AttemptUsage) -> None:
        """What an earlier runner had measured."""
        for name in AttemptUsage.__struct_fields__:
            setattr(self, name, getattr(kept, name))

    def sample(
        self,
        sums: ProcessSums,
        counters: CgroupCounters,
        readings: Mapping[int, DeviceReading],
        now: float,
        idle_below: float,
    ) -> UsagePoint | None:
        """Take one sample; returns the point of the curve, unless this one only shows where the sums stand."""
        before = self.cpu_s, self.read_bytes, self.written_bytes
        self._count(sums, counters)
        memory_bytes = sums.memory_bytes if counters.memory_bytes is None else counters.memory_bytes
        self.memory_peak_bytes = max(self.memory_peak_bytes, memory_bytes)
        sampled_at, self.sampled_at = self.sampled_at, now
        if sampled_at is None or now <= sampled_at:
            return None
        span_s = now - sampled_at
        use, device_memory_bytes = self._sample_devices(sums, readings, span_s, idle_below)
        return UsagePoint(
            now,
            span_s,
            (self.cpu_s - before[0]) / span_s,
            memory_bytes,
            (self.read_bytes - before[1]) / span_s,
            (self.written_bytes - before[2]) / span_s,
            len(sums.pids),
            use,
            device_memory_bytes,
        )

    def _count(self, sums: ProcessSums, counters: CgroupCounters) -> None:
        self.source = "processes" if counters.cpu_s is None else "cgroup"
        self.cpu_s = max(self.cpu_s, sums.cpu_s, counters.cpu_s or 0.0)
        self.read_bytes = max(self.read_bytes, sums.read_bytes, counters.read_bytes or 0)
        self.written_bytes = max(self.written_bytes, sums.written_bytes, counters.written_bytes or 0)
        self.memory_peak_bytes = max(self.memory_peak_bytes, counters.memory_peak_bytes or 0)

    def _sample_devices(
        self, sums: ProcessSums, readings: Mapping[int, DeviceReading], span_s: float, idle_below: float
    ) -> tuple[float, int]:
        """The mean utilisation of those that could be read, below 0 if none could, and the memory in use there."""
        pids, shown = set(sums.pids), []
        for index, device in self.devices.items():
            if (reading := readings.get(index)) is not None:
                shown.append(device.sample(index, reading, pids, span_s))
                self.device_s += span_s
                self.device_busy_s += span_s * reading.use
                self.device_idle_s += span_s if reading.use < idle_below else 0.0
        if not shown:
            return -1.0, 0
        self.shown = tuple(shown[:DEVICES_SHOWN_MAX])
        memory_bytes = sum(each.memory_bytes for each in shown)
        self.device_memory_peak_bytes = max(self.device_memory_peak_bytes, memory_bytes)
        return sum(each.use for each in shown) / len(shown), memory_bytes

    def usage(self) -> AttemptUsage:
        return AttemptUsage(*(getattr(self, name) for name in AttemptUsage.__struct_fields__))

    def close(self, end: ProcessEnd, counters: CgroupCounters) -> AttemptUsage | None:
        """What it used in all, with what its keeper saw at its end; None if nothing was measured."""
        self._count(ProcessSums(end.cpu_s, 0, end.read_bytes, end.written_bytes), counters)
        if counters.memory_peak_bytes is None:
            # The kernel counts from before the program was loaded, so this is never less than the keeper's own size.
            self.memory_peak_bytes = max(self.memory_peak_bytes, end.memory_peak_bytes)
        return self.usage() if self.memory_peak_bytes else None

    def samples(self, points: int) -> AttemptSamples:
        curve = () if self.series is None else self.series.points(points)
        return AttemptSamples(self.key, self.usage(), curve, self.shown, self.last, self.source)


class DeviceUse:
    """One device of an attempt."""

    __slots__ = ("_busy_s", "_sampled_s", "window")

    def __init__(self, rule: IdleRule) -> None:
        self.window = IdleWindow(rule)
        self._sampled_s = self._busy_s = 0.0

    def sample(self, index: int, reading: DeviceReading, pids: set[int], span_s: float) -> DeviceSample:
        self._sampled_s += span_s
        self._busy_s += span_s * reading.use
        self.window.add(reading.use, span_s)
        own = [reading.processes[pid] for pid in reading.processes.keys() & pids]
        return DeviceSample(
            index,
            reading.use,
            sum(own) if own else reading.memory_bytes,
            bool(own),
            self._busy_s / self._sampled_s,
            self.window.idle_s,
        )
