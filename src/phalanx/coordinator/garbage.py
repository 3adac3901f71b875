"""Python's collector of garbage, kept short: a full collection of a large state would hold up everything else."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from pathlib import Path
from typing import Any

COLLECT_AFTER = (2_000, 0, 5)  # so many new objects are still in the cache; each second time, twice as many
MEMORY_LOOK_S = 1.0
MEMORY_GROWTH = 2
MEMORY_SMALL = 64 << 20  # bytes
BUSY = 0.5  # of a core: then what takes long waits,
OVERDUE = 2  # until there is so many times as much memory as had been enough
PAGE = os.sysconf("SC_PAGE_SIZE")


async def keep_short() -> None:
    """Keep collections short while the state grows: what survived is not looked through again.

    A full collection looks at all of it: half a second with some hundred thousand jobs, in which nobody is answered.
    So survivors are set aside (frozen) at every second collection. Garbage among them is found when the memory has
    doubled, in a quiet moment.
    """
    gc.set_threshold(*COLLECT_AFTER)
    survivors = _Survivors()
    gc.callbacks.append(survivors.collected)
    try:
        while True:
            used = time.process_time()
            await asyncio.sleep(MEMORY_LOOK_S)
            is_busy = time.process_time() - used > BUSY * MEMORY_LOOK_S
            if survivors.growth > (OVERDUE if is_busy else 1):
                survivors.look_through()
    finally:
        gc.callbacks.remove(survivors.collected)


class _Survivors:
    """What was set aside. To count it takes as long as to look through it, so its growth is that of the memory."""

    def __init__(self) -> None:
        self.look_through()

    @property
    def growth(self) -> float:
        """1.0 when there is so much that it should be looked through."""
        return _resident() / (MEMORY_GROWTH * self._known + MEMORY_SMALL)

    def collected(self, phase: str, info: dict[str, Any]) -> None:
        """Called by the collector, in whichever thread it runs."""
        if phase == "stop" and info["generation"] > 0:
            gc.freeze()

    def look_through(self) -> None:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        gc.collect()  # of the few that are left; the collector waits longer after it has seen many
        self._known = _resident()


def _resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE
