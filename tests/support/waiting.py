"""Waiting for a condition with a deadline: the only file of the tests in which time may pass for its own sake.

`wait_until` is for processes, `until` for tasks of one event loop. `pause` and `pause_task` are for rigs whose
faults happen at drawn moments and for loops that have to give others a turn; a test waits for a condition instead.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
LOOK_S = 0.01
WITHIN_S = 15.0


def wait_until(condition: Callable[[], T | None], within_s: float = WITHIN_S, what: str = "") -> T:
    """The first true answer of `condition`, asked again and again until the deadline."""
    deadline = time.monotonic() + within_s
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within_s:g} s: {what or condition}")
        pause(LOOK_S)
    return answer


def pause(seconds: float) -> None:
    time.sleep(max(0.0, seconds))


async def until(condition: Callable[[], object], within_s: float = WITHIN_S) -> None:
    """Return as soon as `condition` holds; fail at the deadline."""
    async with asyncio.timeout(within_s):
        while not condition():
            await pause_task(LOOK_S / 2)


async def found(look: Callable[[], T | None], within_s: float = WITHIN_S) -> T:
    """What `look` gives as soon as it gives something."""
    await until(lambda: look() is not None, within_s)
    there = look()
    assert there is not None
    return there


async def pause_task(seconds: float = 0.0) -> None:
    """Let the other tasks of the loop run; with 0 for one iteration."""
    await asyncio.sleep(seconds)
