"""Memory where no cgroup holds it: a task that is seen above what it asked for, several times in a row, is to end.

Only where the operator wants it (`runner.watch_memory`). The resident sets of processes count pages for each that
shares them, such as those that workers have from the process that forked them. So before anything is held against a
task, the kernel is asked for the proportional sets, in which such a page counts once; that costs more and is done only
for tasks that seem to be above their limit. What grows faster than samples are taken is not held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from phalanx.core.model.orders import AttemptKey
from phalanx.runner.keeper import system

SAMPLES = 3  # in a row above the limit, before a task is ended
ROLLUP_BYTES_MAX = 4096


class MemoryWatch:
    """The attempts that have a limit which nothing else holds."""

    def __init__(
        self,
        limit_of: Callable[[AttemptKey], int],
        end: Callable[[AttemptKey], None],
        shared_of: Callable[[Iterable[int]], int] | None = None,
    ) -> None:
        """`limit_of` gives the bytes that an attempt may use, 0 for any; `end` is called for one that is above."""
        self._limit_of = limit_of
        self._end = end
        self._used = shared_of or proportional_bytes
        self._above: dict[AttemptKey, int] = {}  # how often in a row

    def look(self, key: AttemptKey, resident_bytes: int, pids: Iterable[int]) -> None:
        """A sample of one attempt."""
        limit = self._limit_of(key)
        if not limit or resident_bytes <= limit or self._used(pids) <= limit:
            self._above.pop(key, None)
            return
        self._above[key] = self._above.get(key, 0) + 1
        if self._above[key] >= SAMPLES:
            self._end(key)

    def forget(self, key: AttemptKey) -> None:
        self._above.pop(key, None)


def proportional_bytes(pids: Iterable[int], root: str = "/proc") -> int:
    """The proportional set sizes of these processes, in all; of one that has ended, none."""
    total = 0
    for pid in pids:
        for line in system.read(f"{root}/{pid}/smaps_rollup", ROLLUP_BYTES_MAX).splitlines():
            if line.startswith((b"Pss:", b"SwapPss:")):
                total += int(line.split()[1]) << 10
    return total
