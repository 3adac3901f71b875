"""Usage on its way from a runner: what the coordinator asks over the connection for logs, and the answer.

Samples are asked for when a user wants to see them, and are not stored by the coordinator. What is kept of an attempt
travels with its end (`core/model/usage.py`).
"""

from __future__ import annotations

import math

from msgspec import Struct, structs

from phalanx.core.model.orders import AttemptKey
from phalanx.core.model.usage import BYTES_MAX, AttemptUsage, wrong_usage

KEYS_MAX = 1000  # attempts in one question
POINTS_MAX = 240  # of one attempt
DEVICES_SHOWN_MAX = 64  # of one attempt


class UsagePoint(Struct, frozen=True, array_like=True, gc=False):
    """Means over a span of time that ended at `at`: short ones of the last minutes, longer ones before."""

    at: float
    span_s: float
    cores: float  # processor seconds for each second
    memory_bytes: float  # the most in that time
    read_bytes_per_s: float
    written_bytes_per_s: float
    processes: float  # the most in that time
    device_use: float = -1.0  # mean utilisation of its devices from 0 to 1; below 0: not sampled
    device_memory_bytes: float = 0.0  # of all its devices, the most in that time


class DeviceSample(Struct, frozen=True, array_like=True, gc=False):
    """One device of an attempt as it was sampled last."""

    index: int
    use: float  # utilisation from 0 to 1
    memory_bytes: int  # of the attempt's own processes, if `is_own`; else all that is in use there
    is_own: bool = False
    mean_use: float = 0.0  # since the attempt holds it
    idle_s: float = 0.0  # for how long the mean has been below the threshold; 0: it is in use


class AttemptSamples(Struct, frozen=True, array_like=True):
    """What is known of one running attempt: sums so far, the newest sample, and its curve, the oldest first."""

    key: AttemptKey
    usage: AttemptUsage
    points: tuple[UsagePoint, ...]
    devices: tuple[DeviceSample, ...] = ()
    last: UsagePoint | None = None
    source: str = ""  # "cgroup" or "processes": what the numbers rest on


class ReadUsage(Struct, frozen=True, tag="read_usage"):
    """Ask for the usage of attempts; those that the runner does not sample are missing in the answer."""

    id: int
    keys: list[AttemptKey]
    points: int  # at most so many of each


class UsageData(Struct, frozen=True, tag="usage_data"):
    id: int
    at: float  # by the runner's clock
    interval_s: float  # between two samples at the moment
    attempts: list[AttemptSamples]


class IdleDevice(Struct, frozen=True, array_like=True, gc=False):
    """A device that a task holds and hardly uses, as a heartbeat tells."""

    index: int
    idle_s: float
    use: float  # mean utilisation in the time that is looked at, from 0 to 1


def wrong_samples(data: UsageData) -> str:
    """What cannot be true of an answer; empty: nothing."""
    if len(data.attempts) > KEYS_MAX:
        return f"usage_data.attempts: {len(data.attempts)} are listed, expected at most {KEYS_MAX}"
    for each in data.attempts:
        if len(each.points) > POINTS_MAX or len(each.devices) > DEVICES_SHOWN_MAX:
            return f"usage_data.points: expected at most {POINTS_MAX}, and {DEVICES_SHOWN_MAX} devices"
        if wrong := wrong_usage(each.usage):
            return wrong
        last = () if each.last is None else (each.last,)
        for part in (*each.points, *each.devices, *last):
            if any(not math.isfinite(number) or number > BYTES_MAX for number in structs.astuple(part)):
                return f"usage_data: {part} of {each.key[0][:80]} is out of range: expected finite numbers"
    return ""


def wrong_idle(devices: list[IdleDevice], most: int) -> str:
    """What cannot be true of the idle devices in a heartbeat; empty: nothing."""
    if len(devices) > most:
        return f"idle: {len(devices)} devices are listed, expected at most {most}"
    for each in devices:
        if not (0 <= each.idle_s <= BYTES_MAX and 0 <= each.use <= 1 and each.index >= 0):
            return f"idle: device {each.index}, {each.idle_s} s, use {each.use}: expected seconds and a use up to 1"
    return ""
