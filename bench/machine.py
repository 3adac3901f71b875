"""The machine: what it is, what our processes used of it, and how busy others kept it meanwhile.

CPU is read from /proc for processes we know, never as a difference of the whole machine: others work here too. What
the whole machine spent beyond ours is the weather, and is reported beside every figure.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

Parts = Mapping[str, Sequence[int]]  # the processes of each part, by pid
QUIET = 0.08  # of all CPUs: the share that others may use before a figure counts as disturbed
CALM_MS = 0.15  # for one new file; after many deletions ext4 needs more for minutes
_NOTHING = (0.0, 0.0, 0.0, 0.0)
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Used(NamedTuple):
    """CPU seconds of a process, and of those of its children that it has reaped."""

    own_s: float
    children_s: float


class Weather(NamedTuple):
    """How busy others kept the machine, as shares of all its CPUs."""

    foreign: float
    stolen: float  # by the host, from this virtual machine
    load: float

    @property
    def is_quiet(self) -> bool:
        return self.foreign + self.stolen <= QUIET


class Span:
    """What happened between two looks: time, CPU by part, and the weather. Filled when the span is over."""

    def __init__(self) -> None:
        self.wall_s = 0.0
        self.used: dict[str, Used] = {}
        self.weather = Weather(0.0, 0.0, 0.0)

    @property
    def cpu_s(self) -> float:
        return sum(used.own_s + used.children_s for used in self.used.values())


class Machine:
    """This machine, and the processes on it that are ours."""

    def __init__(self) -> None:
        self._ours: set[int] = set()
        self._noted = self._look()
        self._waited: tuple[float, ...] = _NOTHING

    def own(self, parts: Parts) -> None:
        """These processes are ours: what they use is not foreign."""
        self._ours.update(pid for pids in parts.values() for pid in pids)

    @contextmanager
    def span(self, parts: Parts) -> Iterator[Span]:
        """Watch these processes until the block ends. Our own process counts without its children."""
        found = Span()
        before, looked, began = _all_used(parts), self._look(), time.perf_counter()
        yield found
        found.wall_s = time.perf_counter() - began
        after = _all_used(parts)
        found.used = {name: _less(after[name], before[name]) for name in parts}
        found.weather = _between(looked, self._look())

    def take_note(self) -> None:
        """Start a period of weather."""
        self._noted, self._waited = self._look(), _NOTHING

    def weather(self) -> Weather:
        """The weather since `take_note`, without the time spent waiting for a better one."""
        begun = tuple(noted + waited for noted, waited in zip(self._noted, self._waited, strict=True))
        return _between(begun, self._look())

    def wait_until_quiet(self, folder: Path, patience_s: float) -> float:
        """Wait for a quiet second and a calm disk, or until patience ends: the figures then say so.

        Returns how long it took.
        """
        began, first = time.monotonic(), self._look()
        quiet = False
        while not quiet and time.monotonic() - began < patience_s:
            looked = self._look()
            time.sleep(1.0)
            quiet = _between(looked, self._look()).is_quiet and creation_ms(folder) <= CALM_MS
        last = zip(first, self._look(), self._waited, strict=True)
        self._waited = tuple(waited + after - before for before, after, waited in last)
        return time.monotonic() - began

    def _look(self) -> tuple[float, ...]:
        """All time of all CPUs, of it busy, of it stolen, and of the busy part ours; in seconds."""
        words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        user, nice, system, idle, iowait, irq, softirq, steal = (int(word) * _TICK_S for word in words)
        busy = user + nice + system + irq + softirq
        spent = os.times()
        ours = spent.user + spent.system + spent.children_user + spent.children_system
        ours += sum(sum(used(pid)) for pid in self._ours)
        return busy + idle + iowait + steal, busy, steal, ours


def used(pid: int) -> Used:
    """What a process has used so far; nothing once it is gone."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return Used(0.0, 0.0)
    return Used((int(words[11]) + int(words[12])) * _TICK_S, (int(words[13]) + int(words[14])) * _TICK_S)


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for each in found:
        found += children.get(each, ())
    return found


def resident_mb(pid: int) -> float:
    """Memory of a process that is in RAM, in megabytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def filesystem(folder: Path) -> str:
    """The type of the filesystem a folder is on, such as ext4."""
    device = folder.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    found = ""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        words = line.split()
        if words[2] == wanted:
            found = words[words.index("-") + 1]
    return found


def commits_per_s(folder: Path, count: int = 300) -> float:
    """How often a second this disk makes one small append durable: a lower bound for every durable answer."""
    with (folder / "fdatasync").open("wb", buffering=0) as file:
        began = time.perf_counter()
        for _ in range(count):
            file.write(bytes(256))
            os.fdatasync(file.fileno())
        return count / (time.perf_counter() - began)


def creation_ms(folder: Path, count: int = 50) -> float:
    """Milliseconds that one new, empty file takes in a new folder: the price of a task's log."""
    place = Path(mkdtemp(dir=folder))
    began = time.perf_counter()
    for number in range(count):
        os.close(os.open(place / str(number), os.O_CREAT | os.O_WRONLY, 0o600))
    return (time.perf_counter() - began) / count * 1000


def describe() -> list[tuple[str, str]]:
    """What a reader has to know about the machine to read a figure."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return [
        ("CPUs", f"{os.cpu_count()}, {_cpu_name()}"),
        ("memory", f"{memory:.0f} GiB"),
        ("kernel", f"{platform.system()} {platform.release()}"),
        ("Python", platform.python_version()),
        ("SQLite", sqlite3.sqlite_version),
        *((name, _version(name)) for name in ("phalanx", "msgspec", "uvicorn", "uvloop", "hyperqueue")),
    ]


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _all_used(parts: Parts) -> dict[str, Used]:
    return {name: _sum([_used_here(pid) for pid in pids]) for name, pids in parts.items()}


def _used_here(pid: int) -> Used:
    """Our own process is read to the nanosecond, and its children are counted separately."""
    return Used(time.process_time(), 0.0) if pid == os.getpid() else used(pid)


def _sum(each: list[Used]) -> Used:
    return Used(sum(used.own_s for used in each), sum(used.children_s for used in each))


def _less(after: Used, before: Used) -> Used:
    return Used(after.own_s - before.own_s, after.children_s - before.children_s)


def _between(before: tuple[float, ...], after: tuple[float, ...]) -> Weather:
    total, busy, stolen, ours = (b - a for a, b in zip(before, after, strict=True))
    share = max(0.0, busy - ours) / total if total else 0.0
    return Weather(share, stolen / total if total else 0.0, os.getloadavg()[0])
