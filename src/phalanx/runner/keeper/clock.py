"""The keeper's clocks, read here and nowhere else in it."""

from __future__ import annotations

import os
import time
from functools import partial

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def wall() -> float:
    """Seconds since 1970, for people and reports."""
    return time.time()


# Seconds since boot, including the machine's sleep: a lease must not outlive one. Read ten times for every task.
since_boot = partial(time.clock_gettime, time.CLOCK_BOOTTIME)


def tick() -> int:
    """Now, as /proc/PID/stat counts the start of a process: saves reading that file for each attempt."""
    return int(since_boot() * _TICKS_PER_SECOND)
