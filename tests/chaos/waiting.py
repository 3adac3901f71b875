"""Waiting for a condition, with a deadline and the rig's one clock: seconds since boot, as the tasks read it."""

from __future__ import annotations

import select
import time
from collections.abc import Callable

LOOK_S = 0.1


def clock() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def pause(seconds: float) -> None:
    """Let time pass: for a rig whose faults happen at drawn moments, not for a test that hopes."""
    select.select([], [], [], max(0.0, seconds))


def wait_for(condition: Callable[[], object], within_s: float, what: str) -> None:
    deadline = clock() + within_s
    while not condition():
        if clock() > deadline:
            raise TimeoutError(f"not within {within_s:g} s: {what}")
        pause(LOOK_S)
