"""The rig's one clock: seconds since boot, as its tasks read it."""

from __future__ import annotations

import time


def clock() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
