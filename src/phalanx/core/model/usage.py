"""Usage: what attempts really used of what they were granted, as sums that can be added up.

The runner measures (`runner/usage`), the coordinator keeps what an attempt used with its end, and adds it up for its
job. Means and efficiencies are made of these sums where they are shown, so that those of many attempts are right too.
"""

from __future__ import annotations

import math

from msgspec import Struct, structs

SECONDS_MAX = 1e12
BYTES_MAX = float(1 << 62)


class AttemptUsage(Struct, frozen=True, array_like=True, gc=False):
    """What one attempt used, with all its processes. Seconds of devices are counted only while they were sampled."""

    cpu_s: float = 0.0
    memory_peak_bytes: int = 0  # 0: not measured, for every process has some memory
    read_bytes: int = 0
    written_bytes: int = 0
    device_s: float = 0.0  # each of its devices counts
    device_busy_s: float = 0.0  # the same times the utilisation, from 0 to 1
    device_idle_s: float = (
        0.0  # of these, seconds in which the utilisation was below the threshold for idle devices
    )
    device_memory_peak_bytes: int = 0  # of all its devices together


class UsageTotals(Struct, array_like=True):
    """The sums over all attempts of a job that have ended: what was granted, for how long, and what they used."""

    attempts: int = 0
    run_s: float = 0.0
    core_s: float = 0.0  # granted cores times the run time
    device_s: float = 0.0  # granted devices times the run time
    cost: float = 0.0
    cpu_s: float = 0.0
    measured_core_s: float = 0.0  # of `core_s`, that of attempts whose use of processors was measured
    read_bytes: int = 0
    written_bytes: int = 0
    sampled_device_s: float = 0.0
    device_busy_s: float = 0.0
    device_idle_s: float = 0.0
    memory_peak_bytes: int = 0  # the largest of one attempt
    asked_byte_s: float = 0.0  # requested memory times the run time, of attempts whose memory was measured
    peak_byte_s: float = 0.0  # the peaks of these attempts times their run time

    def hold(self, run_s: float, cores: float, devices: int, cost_rate: float) -> None:
        """An attempt held so much for so long."""
        self.attempts += 1
        self.run_s += run_s
        self.core_s += run_s * cores
        self.device_s += run_s * devices
        self.cost += run_s * cost_rate

    def use(self, used: AttemptUsage, run_s: float, cores: float, memory_bytes: int) -> None:
        """It used so much of that."""
        self.cpu_s += used.cpu_s
        self.measured_core_s += run_s * cores
        self.read_bytes += used.read_bytes
        self.written_bytes += used.written_bytes
        if used.device_s:
            self.sampled_device_s += used.device_s
            self.device_busy_s += used.device_busy_s
            self.device_idle_s += used.device_idle_s
        self.memory_peak_bytes = max(self.memory_peak_bytes, used.memory_peak_bytes)
        if memory_bytes:
            self.asked_byte_s += run_s * memory_bytes
            self.peak_byte_s += run_s * used.memory_peak_bytes

    def add(self, other: UsageTotals) -> None:
        """All of it added up; the largest peak stays. Written out, for a report does this twice for every job."""
        self.attempts += other.attempts
        self.run_s += other.run_s
        self.core_s += other.core_s
        self.device_s += other.device_s
        self.cost += other.cost
        self.cpu_s += other.cpu_s
        self.measured_core_s += other.measured_core_s
        self.read_bytes += other.read_bytes
        self.written_bytes += other.written_bytes
        self.sampled_device_s += other.sampled_device_s
        self.device_busy_s += other.device_busy_s
        self.device_idle_s += other.device_idle_s
        self.asked_byte_s += other.asked_byte_s
        self.peak_byte_s += other.peak_byte_s
        self.memory_peak_bytes = max(self.memory_peak_bytes, other.memory_peak_bytes)


def share(part: float, whole: float) -> float | None:
    """How much of the whole a part is; None if there is no whole to speak of."""
    return part / whole if whole > 0 else None


def run_seconds(started_at: float | None, ended_at: float | None) -> float:
    """How long something ran; two clocks may disagree, and nothing runs less than no time."""
    return 0.0 if started_at is None or ended_at is None else max(0.0, ended_at - started_at)


def wrong_usage(usage: AttemptUsage) -> str:
    """What cannot be true of a usage that a runner reports; empty: nothing."""
    if _is_possible(usage):
        return ""
    for name, value in structs.asdict(usage).items():
        most = BYTES_MAX if name.endswith("_bytes") else SECONDS_MAX
        if not (math.isfinite(value) and 0 <= value <= most):
            return f"exit.usage.{name} = {value:.6g}: expected 0 to {most:.6g}"
    return ""


def _is_possible(usage: AttemptUsage) -> bool:
    """The same question without a name for what is wrong: it is asked at every end. NaN and infinity are not."""
    return (
        0 <= usage.cpu_s <= SECONDS_MAX
        and 0 <= usage.memory_peak_bytes <= BYTES_MAX
        and 0 <= usage.read_bytes <= BYTES_MAX
        and 0 <= usage.written_bytes <= BYTES_MAX
        and 0 <= usage.device_s <= SECONDS_MAX
        and 0 <= usage.device_busy_s <= SECONDS_MAX
        and 0 <= usage.device_idle_s <= SECONDS_MAX
        and 0 <= usage.device_memory_peak_bytes <= BYTES_MAX
    )
