"""Control groups: limits for an attempt, and a boundary round all its processes.

Found once at start (`cgroup_tree.py`), for v1 (a hierarchy for each controller, v2 beside it only for tracking and
killing) and for v2. Below the runner's own cgroup a folder for this node is made; in it a leaf for the keeper, which
enters an attempt's cgroup to spawn and returns to its leaf (`keeper/cgroup.py`), and one folder per attempt that has a
memory limit. All other limits are in cgroups that are used again (`limit_sets.py`), and attempts without any use
slots, which are threaded cgroups in their own folder where that is possible. Where nothing of this is allowed,
`why_not` says so and every attempt runs without.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Collection, Iterable
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from phalanx.core.model.resources import Cores
from phalanx.runner.cgroup_limits import NO_LIMITS, TaskLimits, end_as_a_whole, write_limits
from phalanx.runner.cgroup_tree import Hierarchy, lines_of, mounted, prepared
from phalanx.runner.device_filter import DeviceFilter
from phalanx.runner.keeper.cgroup import BASE, HOME, SLOT, THREADED, make

ROOT = Path("/sys/fs/cgroup")
PROC = Path("/proc")
SET = "limits-"  # and a number: the cgroups of `limit_sets.py`
LEAVE_S_MIN, LEAVE_S_MAX = 0.01, 5.0
ISOLATING = ("cpu", "cpuset", "pids")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,200})")


class Cgroup(Struct, frozen=True):
    """An attempt's folders, one for each hierarchy it is in."""

    name: str
    folders: tuple[str, ...]


class Cgroups:
    """Makes and removes the cgroups of this node's attempts. What is not allowed is skipped, and never raised."""

    def __init__(
        self, hierarchies: tuple[Hierarchy, ...], why_not: str | None, limit_cpu: bool, track: bool = True
    ) -> None:
        self.why_not = why_not  # why memory cannot be limited; None when it can
        self.hierarchies = hierarchies
        self.reasons: tuple[str, ...] = ()  # why some hierarchies cannot be used
        self.isolates = False  # whether every task is to have limits
        self.devices: DeviceFilter | None = None  # for hierarchies of v2
        self._limit_cpu = limit_cpu
        self._track = track
        self._tracked_in: str | None = None

    @classmethod
    def find(
        cls,
        node: str,
        root: Path = ROOT,
        proc_root: Path = PROC,
        limit_cpu: bool = False,
        track: bool = True,
        isolate: bool = False,
        devices: bool = False,
    ) -> Cgroups:
        """Find usable hierarchies, and make this node's folders in them; `sweep` removes what earlier runners left.

        With `isolate` every task is to have limits of CPUs and processes, with `devices` also of device nodes.
        """
        wanted = {"memory", *(ISOLATING if isolate else ("cpu",) if limit_cpu else ())}
        wanted |= {"devices"} if isolate and devices else set()
        usable: list[Hierarchy] = []
        reasons: list[str] = []
        for hierarchy in mounted(node, root, proc_root, wanted):
            try:
                usable.append(prepared(hierarchy, wanted))
            except OSError as error:
                reasons.append(f"{hierarchy.home}: {error.strerror or error}")
        why_not = None
        if not any(map(_limits_memory, usable)):
            why_not = "; ".join(reasons) or f"no memory controller is mounted under {root}"
        found = cls(tuple(usable), why_not, limit_cpu or isolate, track)
        found.isolates, found.reasons = isolate, tuple(reasons)
        if devices and not any("devices" in each.controllers for each in usable):
            found.devices = DeviceFilter()
        return found

    @property
    def tracking(self) -> str | None:
        """The folder in which the keeper makes a cgroup for each attempt, to find its processes by; None without.

        v2 is better, since it can freeze a whole cgroup, and reports when one is empty.
        """
        if not self._track or not self.hierarchies:
            return None
        if self._tracked_in is None or not os.path.isdir(self._tracked_in):  # noqa: PTH112 - for every job
            # A new cpuset of v1 can be entered only once it has CPUs, which the keeper does not give.
            base = min(self.hierarchies, key=lambda each: ("cpuset" in each.name, each.name)).base
            self._tracked_in = str(base / THREADED if (base / THREADED).is_dir() else base)
        return self._tracked_in

    @property
    def v2_base(self) -> str | None:
        """The folder of this node on v2, if tasks are in cgroups there."""
        return next((str(each.base) for each in self.hierarchies if each.is_v2), None)

    def tracking_of(self, owner: str) -> str | None:
        """A folder in that of `tracking`, for attempts of one owner alone; the same if that is impossible."""
        whole, base = self.tracking, self.v2_base
        if whole is None or base is None or not whole.startswith(base):
            return whole
        folder = f"{whole}/{BASE}{sha256(owner.encode()).hexdigest()[:16]}"
        try:
            make(folder)
        except OSError:
            return whole
        return folder

    @property
    def bases(self) -> tuple[str, ...]:
        """The folders of this node: only its keeper and its attempts are in them."""
        return tuple(str(hierarchy.base) for hierarchy in self.hierarchies)

    @property
    def limits_memory_on_v2(self) -> bool:
        return any(each.is_v2 and "memory" in each.controllers for each in self.hierarchies)

    def create(
        self, name: str, memory_bytes: int, cores: Cores = 0, also: TaskLimits = NO_LIMITS
    ) -> Cgroup | None:
        """A cgroup with this memory limit (0 sets none), or None where that is impossible.

        It is in the hierarchies that hold a limit; on v2 that is the only one, so the other limits are set here `also`.
        """
        if not self.hierarchies or (memory_bytes and self.why_not) or not _NAME.fullmatch(name):
            return None
        used = [each for each in self.hierarchies if self._is_needed(each, memory_bytes, cores)]
        folders = [(each, each.base / name) for each in used or self.hierarchies]
        try:
            for hierarchy, folder in folders:
                folder.mkdir(exist_ok=True)
                self._limit(hierarchy, folder, memory_bytes, cores, also)
        except OSError:
            self._remove_all([folder for _, folder in folders])
            return None
        return Cgroup(name, tuple(str(folder) for _, folder in folders))

    def _is_needed(self, hierarchy: Hierarchy, memory_bytes: int, cores: Cores) -> bool:
        if hierarchy.is_v2 and not self._track:
            return True  # there are no slots, and this is the only boundary round its processes
        limited = {"memory"} if memory_bytes else set()
        limited |= {"cpu"} if cores and self._limit_cpu else set()
        return bool(limited & hierarchy.controllers)

    def _limit(
        self, hierarchy: Hierarchy, folder: Path, memory_bytes: int, cores: Cores, also: TaskLimits
    ) -> None:
        limits = TaskLimits(memory_bytes, cores if self._limit_cpu else 0)
        if hierarchy.is_v2:
            cores = limits.cores or also.cores
            limits = TaskLimits(memory_bytes, cores, also.cpus, also.mems, also.pids, also.denied)
        write_limits(folder, hierarchy.controllers, hierarchy.is_v2, limits, devices=self.devices)
        if hierarchy.is_v2:
            end_as_a_whole(folder)

    def named(self, name: str) -> Cgroup:
        """The cgroup that an earlier runner made under that name."""
        return Cgroup(name, tuple(str(hierarchy.base / name) for hierarchy in self.hierarchies))

    def remove(self, cgroup: Cgroup) -> bool:
        """Remove it; False while something is still inside."""
        return self._remove_all([Path(folder) for folder in cgroup.folders])

    def sweep(self, spared: Collection[str] = ()) -> None:
        """Remove all cgroups in which nothing runs, except those that are waited for and those the keeper uses again.

        Those of living attempts cannot be removed and stay.
        """
        kept = (HOME, THREADED, *spared)
        for hierarchy in self.hierarchies:
            with contextlib.suppress(OSError):
                for folder in hierarchy.base.iterdir():
                    if folder.is_dir() and folder.name not in kept and not _is_numbered(folder, SLOT):
                        self._remove_all([folder])
            if hierarchy.threaded is not None:
                with contextlib.suppress(OSError):
                    sets = [each for each in hierarchy.threaded.iterdir() if _is_numbered(each, SET)]
                    self._remove_all([folder for folder in sets if folder.name not in kept])

    def close(self) -> bool:
        """Remove this node's own folders as well; False while a keeper or an attempt is in them."""
        bases = [hierarchy.base for hierarchy in self.hierarchies]
        return self._remove_all([*self._folders(), *bases])

    async def leave(self) -> None:
        """Close as soon as the keeper has left its folder: it ends a moment after its last answer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S_MAX):
                while not self.close():
                    await asyncio.sleep(LEAVE_S_MIN)

    def _folders(self) -> list[Path]:
        """All folders in those of this node, with what tasks made in them, the innermost first."""
        found: list[Path] = []
        for hierarchy in self.hierarchies:
            with contextlib.suppress(OSError):
                found += [folder for folder in hierarchy.base.rglob("*/") if folder.is_dir()]
        return sorted(found, key=lambda folder: len(folder.parts), reverse=True)

    def _remove_all(self, folders: Iterable[Path]) -> bool:
        removed = True
        for folder in folders:
            try:
                folder.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                removed = False
        return removed


def _is_numbered(folder: Path, prefix: str) -> bool:
    return folder.name.startswith(prefix) and folder.name.removeprefix(prefix).isdecimal()


def memory_limit(root: Path = ROOT, proc_root: Path = PROC) -> int | None:
    """What the runner itself may use: the smallest limit of the cgroups it is in."""
    limits = []
    for hierarchy in mounted("", root, proc_root, ("memory",)):
        for folder in (hierarchy.home, *hierarchy.home.parents):
            limits += [number_in(folder / name) for name in ("memory.max", "memory.limit_in_bytes")]
            if folder == root:
                break
    return min((limit for limit in limits if limit is not None), default=None)


def number_in(path: Path) -> int | None:
    """A number in a file; None when there is none, or it is v1's value for unlimited."""
    text = "".join(lines_of(path))
    return int(text) if text.isdecimal() and int(text) < 1 << 60 else None


def _limits_memory(hierarchy: Hierarchy) -> bool:
    files = ("memory.limit_in_bytes", "memory.max")
    return any((hierarchy.base / HOME / name).exists() for name in files)
