"""The processes of attempts, found in one pass over /proc, and what each attempt uses by their numbers.

The leader of an attempt starts a session of its own, so most of its tree is found by session. A process that left the
session is found by its parent, or by where it was found before; one whose parents are gone by the key in its
environment. What belongs to no attempt is remembered and not read again, so a pass costs little where others run
thousands of processes. A process that left its session and cleared its environment before the first pass that could see
its parent is not counted.

Numbers of the kernel include children that were waited for, so short children of a long-lived process are counted when
they have ended. Memory is the resident set; pages that several processes of an attempt share count for each of them.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping

from msgspec import Struct

from phalanx.runner.keeper.spawn import KEY_VARIABLE

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PIDS_PER_STEP = 64  # between two of which the runner may do other things
READ_BYTES = 4096
ENVIRONMENT_BYTES = 1 << 17
_KEY = f"{KEY_VARIABLE}=".encode()
_KTHREADD = 2


class ProcessSums(Struct):
    """What the processes of one attempt use, and have used, as /proc tells."""

    cpu_s: float = 0.0
    memory_bytes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    pids: list[int] = []


class _Stat(Struct, frozen=True, gc=False):
    parent: int
    session: int
    cpu_s: float
    born: int  # clock ticks since boot
    memory_bytes: int


class ProcessScan:
    """Passes over /proc, with a memory of whose the processes are."""

    def __init__(self, root: str = "/proc") -> None:
        self._root = root
        self._owners: dict[
            int, tuple[int, str]
        ] = {}  # pid → when it was born, and the keeper's key of its attempt
        self._foreign: set[int] = set()
        self._alive: frozenset[str] = frozenset()  # the keys of attempts that run

    async def scan(self, leaders: Mapping[int, str]) -> AsyncIterator[dict[str, ProcessSums]]:
        """Yields once for every few processes, so that the caller can let others run; the last one is the result."""
        pids = self._pids()
        self._foreign &= pids
        self._foreign -= leaders.keys()
        self._owners = {pid: owner for pid, owner in self._owners.items() if pid in pids}
        self._alive = frozenset(leaders.values())
        sums: dict[str, ProcessSums] = {}
        seen: dict[int, _Stat] = {}
        for number, pid in enumerate(pids - self._foreign):
            if (stat := self._stat(pid)) is not None:
                seen[pid] = stat
            if not (number + 1) % PIDS_PER_STEP:
                yield sums
        for number, (pid, stat) in enumerate(seen.items()):
            if (key := self._owner(pid, seen, leaders)) is not None:
                self._add(sums.setdefault(key, ProcessSums(pids=[])), pid, stat)
            if not (number + 1) % PIDS_PER_STEP:
                yield sums
        yield sums

    def _owner(self, pid: int, seen: Mapping[int, _Stat], leaders: Mapping[int, str]) -> str | None:
        """The key of the attempt that a process belongs to; all processes on the way up get the same answer."""
        chain: list[int] = []
        key: str | None = None
        while pid in seen and pid not in chain and pid not in self._foreign:
            chain.append(pid)
            stat = seen[pid]
            known = self._owners.get(pid)
            if (key := leaders.get(pid) or leaders.get(stat.session)) is not None:
                break
            if known is not None and known[0] == stat.born:
                key = known[1]
                break
            pid = stat.parent
        if key is None and chain:
            key = self._key_in_environment(chain[0], seen[chain[0]])
            if key is not None and key not in self._alive:
                self._foreign.add(
                    chain[0]
                )  # of an attempt that has ended, or of another node on this machine
                return None
            chain = chain[:1]
        for each in chain if key is not None else ():
            self._owners[each] = seen[each].born, key or ""
        return key if key in self._alive else None

    def _key_in_environment(self, pid: int, stat: _Stat) -> str | None:
        """The key that a process was started with; None if it has none, or shows none while it executes a program."""
        text = self._read(f"{pid}/environ", ENVIRONMENT_BYTES)
        for variable in text.split(b"\0"):
            if variable.startswith(_KEY):
                return variable[len(_KEY) :].decode("utf-8", "replace")
        if text or stat.parent in (0, _KTHREADD) or not os.access(f"{self._root}/{pid}/environ", os.R_OK):
            self._foreign.add(pid)
        return None

    def _add(self, sums: ProcessSums, pid: int, stat: _Stat) -> None:
        sums.pids.append(pid)
        sums.cpu_s += stat.cpu_s
        sums.memory_bytes += stat.memory_bytes
        for line in self._read(f"{pid}/io", READ_BYTES).splitlines():
            name, _, number = line.partition(b": ")
            if name == b"read_bytes":
                sums.read_bytes += int(number)
            elif name == b"write_bytes":
                sums.written_bytes += int(number)

    def _pids(self) -> set[int]:
        try:
            return {int(name) for name in os.listdir(self._root) if name.isdigit()}  # noqa: PTH208 - in every pass
        except OSError:
            return set()

    def _stat(self, pid: int) -> _Stat | None:
        words = self._read(f"{pid}/stat", READ_BYTES).rpartition(b")")[2].split()
        if len(words) < 22:  # it ended
            return None
        # User and system time, its own and that of children it waited for.
        ticks = sum(map(int, words[11:15]))
        return _Stat(
            int(words[1]), int(words[3]), ticks / TICKS_PER_S, int(words[19]), int(words[21]) * PAGE_BYTES
        )

    def _read(self, name: str, most: int) -> bytes:
        try:
            fd = os.open(f"{self._root}/{name}", os.O_RDONLY)
        except OSError:
            return b""
        try:
            return os.read(fd, most)
        except OSError:
            return b""
        finally:
            os.close(fd)
