"""Clock: the time, and how much of it has passed.

This is the only module that reads the machine's clock. Everything else gets a `Clock`, and `core/` gets `now` itself,
so that the simulator can let an hour pass at once.
"""

from __future__ import annotations

import sys
import time
from datetime import datetime
from typing import Protocol

# CLOCK_BOOTTIME goes on while the machine is suspended, so a lease that ran out meanwhile is seen to be over.
# Elsewhere than on Linux, CLOCK_MONOTONIC is the nearest; on macOS it counts sleep as well.
_SINCE_BOOT = time.CLOCK_BOOTTIME if sys.platform == "linux" else time.CLOCK_MONOTONIC


class Clock(Protocol):
    """Two readings: one to show and to store, one to measure with."""

    def now(self) -> float:
        """Seconds since the Unix epoch. It may jump when the machine's time is set."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed instant. It never goes back, and it counts time spent suspended."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.clock_gettime(_SINCE_BOOT)


def local_now() -> datetime:
    """What a clock on the wall shows here, without a zone."""
    return datetime.fromtimestamp(time.time())  # noqa: DTZ006


class SteadyClock(SystemClock):
    """Wall time that never jumps: read once, then continued by the monotonic clock.

    Leases and retries are counted with it, so that setting the machine's time loses no node.
    """

    def __init__(self) -> None:
        self._offset = time.time() - time.clock_gettime(_SINCE_BOOT)

    def now(self) -> float:
        return self._offset + time.clock_gettime(_SINCE_BOOT)


def thread_cpu_s() -> float:
    """Processor seconds that this thread has used: what a piece of work costs, whoever else runs meanwhile."""
    return time.thread_time()


class Deadline:
    """An instant to be done by, or none."""

    def __init__(self, seconds: float | None) -> None:
        self._clock = SystemClock()
        self._at = None if seconds is None else self._clock.monotonic() + seconds

    def left_s(self, at_most: float) -> float:
        """What is left, at most so much."""
        return at_most if self._at is None else max(0.0, min(at_most, self._at - self._clock.monotonic()))

    @property
    def is_over(self) -> bool:
        return self._at is not None and self._clock.monotonic() >= self._at
