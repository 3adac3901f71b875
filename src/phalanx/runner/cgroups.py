"""Control groups: a memory limit for an attempt, and a boundary round all its processes.

Found once at start, for v1 (memory in its own hierarchy, v2 beside it only for tracking and killing) and for v2. Below
the runner's own cgroup a folder for this node is made; in it a leaf for the keeper, which enters an attempt's cgroup
to spawn and returns to its leaf (`keeper/cgroup.py`), and one folder per attempt that has a limit; the others use
slots, which are threaded cgroups in their own folder where that is possible. Where nothing of this is allowed,
`why_not` says so and every attempt runs without.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Collection
from pathlib import Path

from msgspec import Struct

from phalanx.core.model.amounts import MILLI, MILLICORES
from phalanx.core.model.resources import Cores
from phalanx.runner.keeper.cgroup import BASE, HOME, SLOT, THREADED

ROOT = Path("/sys/fs/cgroup")
PROC = Path("/proc")
RUNNER = "phalanx-runner"
# Below this an OOM kill could strike while the keeper is inside, before the task has its own memory.
MEMORY_BYTES_MIN = 16 << 20
LEAVE_S_MIN, LEAVE_S_MAX = 0.01, 5.0
CPU_PERIOD_US = 100_000
CPU_QUOTA_US_MIN = 1000  # the kernel takes no less: a hundredth of a core
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,200})")


class Cgroup(Struct, frozen=True):
    """An attempt's folders, one for each hierarchy it is in."""

    name: str
    folders: tuple[str, ...]


class _Hierarchy(Struct, frozen=True):
    """One mounted tree of cgroups. `home` is where the runner is in it, `base` where its attempts will be."""

    controller: str  # "memory", "cpu", or "" for the one tree of v2
    home: Path
    base: Path


class Cgroups:
    """Makes and removes the cgroups of this node's attempts. What is not allowed is skipped, and never raised."""

    def __init__(
        self, hierarchies: tuple[_Hierarchy, ...], why_not: str | None, limit_cpu: bool, track: bool = True
    ) -> None:
        self.why_not = why_not  # why memory cannot be limited; None when it can
        self._hierarchies = hierarchies
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
    ) -> Cgroups:
        """Find usable hierarchies, and make this node's folders in them; `sweep` removes what earlier runners left."""
        usable: list[_Hierarchy] = []
        reasons: list[str] = []
        for hierarchy in _mounted(node, root, proc_root, limit_cpu):
            try:
                _prepare(hierarchy, limit_cpu)
                usable.append(hierarchy)
            except OSError as error:
                reasons.append(f"{hierarchy.home}: {error.strerror or error}")
        why_not = None
        if not any(map(_limits_memory, usable)):
            why_not = "; ".join(reasons) or f"no memory controller is mounted under {root}"
        return cls(tuple(usable), why_not, limit_cpu, track)

    @property
    def tracking(self) -> str | None:
        """The folder in which the keeper makes a cgroup for each attempt, to find its processes by; None without.

        v2 is better, since it can freeze a whole cgroup, and reports when one is empty.
        """
        if not self._track or not self._hierarchies:
            return None
        if self._tracked_in is None or not os.path.isdir(self._tracked_in):  # noqa: PTH112 - for every job
            base = min(self._hierarchies, key=lambda each: each.controller).base
            self._tracked_in = str(base / THREADED if (base / THREADED).is_dir() else base)
        return self._tracked_in

    @property
    def bases(self) -> tuple[str, ...]:
        """The folders of this node: only its keeper and its attempts are in them."""
        return tuple(str(hierarchy.base) for hierarchy in self._hierarchies)

    def create(self, name: str, memory_bytes: int, cores: Cores = 0) -> Cgroup | None:
        """A cgroup with this limit (0 sets none), or None where that is impossible."""
        if not self._hierarchies or (memory_bytes and self.why_not) or not _NAME.fullmatch(name):
            return None
        folders = [hierarchy.base / name for hierarchy in self._hierarchies]
        try:
            for hierarchy, folder in zip(self._hierarchies, folders, strict=True):
                folder.mkdir(exist_ok=True)
                _limit(hierarchy, folder, memory_bytes, cores if self._limit_cpu else 0)
        except OSError:
            self._remove_all(folders)
            return None
        return Cgroup(name, tuple(map(str, folders)))

    def named(self, name: str) -> Cgroup:
        """The cgroup that an earlier runner made under that name."""
        return Cgroup(name, tuple(str(hierarchy.base / name) for hierarchy in self._hierarchies))

    def remove(self, cgroup: Cgroup) -> bool:
        """Remove it; False while something is still inside."""
        return self._remove_all([Path(folder) for folder in cgroup.folders])

    def sweep(self, spared: Collection[str] = ()) -> None:
        """Remove all cgroups in which nothing runs, except those that are waited for and those the keeper uses again.

        Those of living attempts cannot be removed and stay.
        """
        for hierarchy in self._hierarchies:
            with contextlib.suppress(OSError):
                for folder in hierarchy.base.iterdir():
                    kept = (HOME, THREADED, *spared)
                    if folder.is_dir() and folder.name not in kept and not _is_slot(folder):
                        self._remove_all([folder])

    def close(self) -> bool:
        """Remove this node's own folders as well; False while a keeper or an attempt is in them."""
        bases = [hierarchy.base for hierarchy in self._hierarchies]
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
        for hierarchy in self._hierarchies:
            with contextlib.suppress(OSError):
                found += [folder for folder in hierarchy.base.rglob("*/") if folder.is_dir()]
        return sorted(found, key=lambda folder: len(folder.parts), reverse=True)

    def _remove_all(self, folders: list[Path]) -> bool:
        removed = True
        for folder in folders:
            try:
                folder.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                removed = False
        return removed


def _is_slot(folder: Path) -> bool:
    return folder.name.startswith(SLOT) and folder.name.removeprefix(SLOT).isdecimal()


def memory_limit(root: Path = ROOT, proc_root: Path = PROC) -> int | None:
    """What the runner itself may use: the smallest limit of the cgroups it is in."""
    limits = []
    for hierarchy in _mounted("", root, proc_root, False):
        for folder in (hierarchy.home, *hierarchy.home.parents):
            limits += [_number(folder / name) for name in ("memory.max", "memory.limit_in_bytes")]
            if folder == root:
                break
    return min((limit for limit in limits if limit is not None), default=None)


def _mounted(node: str, root: Path, proc_root: Path, limit_cpu: bool) -> list[_Hierarchy]:
    """The mounted hierarchies, with the runner's folder in each (from /proc/self/cgroup)."""
    wanted = {"memory": "memory", "": ""} | ({"cpu": "cpu"} if limit_cpu else {})
    found = []
    for line in _lines(proc_root / "self" / "cgroup"):
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        for controller in wanted.keys() & set(controllers.split(",")):
            top = _top(root, controller, controllers)
            home = _home(top, path) if top is not None else None
            if home is not None:
                # A runner that was moved to a leaf, by itself or by systemd, has its attempts beside it.
                home = home.parent if home.name == RUNNER and not controller else home
                found.append(_Hierarchy(controller, home, home / f"{BASE}{node}"))
    return found


def _top(root: Path, controller: str, controllers: str) -> Path | None:
    """Where a hierarchy is mounted: by its controllers' names on v1, the root or its `unified` on v2."""
    names = [controllers, controller] if controller else ["", "unified"]
    for name in names:
        top = root / name
        if (top / ("cgroup.procs" if controller else "cgroup.controllers")).exists():
            return top
    return None


def _home(top: Path, path: str) -> Path | None:
    """The runner's folder; in a container without its own view the path is the host's, and `top` is ours."""
    home = top / path.strip("/")
    if ".." in home.parts:
        return None
    return home if (home / "cgroup.procs").exists() else top


def _prepare(hierarchy: _Hierarchy, limit_cpu: bool) -> None:
    """Make the node's folder and the keeper's leaf; on v2 enable the controllers down to where they are needed."""
    if not hierarchy.controller:
        _hand_down(hierarchy.home, limit_cpu)
    hierarchy.base.mkdir(exist_ok=True)
    if not hierarchy.controller:
        _hand_down(hierarchy.base, limit_cpu)
    home = hierarchy.base / HOME
    home.mkdir(exist_ok=True)
    if not os.access(home / "cgroup.procs", os.W_OK):
        raise PermissionError(13, f"{home}/cgroup.procs may not be written")
    if not hierarchy.controller:
        _make_threaded(hierarchy.base / THREADED)


def _make_threaded(folder: Path) -> None:
    """Make a folder of threaded cgroups, which the keeper enters without waiting; skipped where it is impossible."""
    home = folder / HOME
    try:
        home.mkdir(parents=True, exist_ok=True)
        if (home / "cgroup.type").read_text().strip() != "threaded":
            (home / "cgroup.type").write_text("threaded")
    except OSError:
        for each in (home, folder):
            with contextlib.suppress(OSError):
                each.rmdir()


def _limits_memory(hierarchy: _Hierarchy) -> bool:
    files = ("memory.limit_in_bytes", "memory.max")
    return any((hierarchy.base / HOME / name).exists() for name in files)


def _hand_down(folder: Path, limit_cpu: bool) -> None:
    """Let the folders below this one limit memory. v2 allows that only where no process is in the folder."""
    offered = (folder / "cgroup.controllers").read_text().split()
    wanted = [name for name in ("memory", "cpu") if name in offered and (name != "cpu" or limit_cpu)]
    given = (folder / "cgroup.subtree_control").read_text().split()
    if not set(wanted) - set(given):
        return
    order = " ".join(f"+{name}" for name in wanted)
    try:
        (folder / "cgroup.subtree_control").write_text(order)
    except OSError:
        _step_aside(folder)
        (folder / "cgroup.subtree_control").write_text(order)


def _step_aside(folder: Path) -> None:
    """Move the runner into a leaf of its own cgroup, when it is alone there, so that the cgroup can have children."""
    others = set((folder / "cgroup.procs").read_text().split()) - {str(os.getpid())}
    if others:
        raise PermissionError(
            16,
            "this cgroup also has other processes; give the runner its own"
            f" (in a systemd unit: Delegate=yes and DelegateSubgroup={RUNNER})",
        )
    leaf = folder / RUNNER
    leaf.mkdir(exist_ok=True)
    (leaf / "cgroup.procs").write_text("0")


def _limit(hierarchy: _Hierarchy, folder: Path, memory_bytes: int, cores: Cores) -> None:
    quota = max(CPU_QUOTA_US_MIN, MILLICORES[cores] * CPU_PERIOD_US // MILLI)
    limit = str(max(memory_bytes, MEMORY_BYTES_MIN)) if memory_bytes else ""
    if hierarchy.controller == "memory" and limit:
        (folder / "memory.limit_in_bytes").write_text(limit)
        _write_if_there(folder / "memory.memsw.limit_in_bytes", limit)
    elif hierarchy.controller == "cpu" and cores:
        (folder / "cpu.cfs_quota_us").write_text(str(quota))
    elif not hierarchy.controller and (folder / "memory.max").exists():
        if limit:
            (folder / "memory.max").write_text(limit)
            _write_if_there(folder / "memory.swap.max", "0")
        # A task that lost one process to the OOM killer may hang or give wrong results; it is ended as a whole.
        _write_if_there(folder / "memory.oom.group", "1")
    if not hierarchy.controller and cores and (folder / "cpu.max").exists():
        (folder / "cpu.max").write_text(f"{quota} {CPU_PERIOD_US}")


def _write_if_there(path: Path, text: str) -> None:
    with contextlib.suppress(OSError):
        if path.exists():
            path.write_text(text)


def _number(path: Path) -> int | None:
    """A limit in a file; None when there is none, or it is v1's value for unlimited."""
    text = "".join(_lines(path))
    return int(text) if text.isdecimal() and int(text) < 1 << 60 else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
