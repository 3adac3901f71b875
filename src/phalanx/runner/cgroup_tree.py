"""The cgroup hierarchies of this machine, and the folders of one node in them.

v1 has a hierarchy for each controller, v2 one for all; hybrid machines have both. Each is found with the folder that
the runner is in, from which its rights extend. In it the folder of this node is made, and in that a leaf for the
keeper. On v2 the controllers are enabled down to where they are needed: in the node's folder for cgroups with memory
limits, and in the folder of threaded cgroups below it for all others. What is written into a cgroup is left to
`cgroup_limits.py`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path

from msgspec import Struct

from phalanx.runner.keeper.cgroup import BASE, HOME, THREADED

RUNNER = "phalanx-runner"
V2 = ""  # the name of the one hierarchy of v2
ON_THREADS = ("cpu", "cpuset", "pids")  # controllers of v2 that threaded cgroups may have


class Hierarchy(Struct, frozen=True):
    """One mounted tree of cgroups. `home` is where the runner is in it, `base` where its attempts will be."""

    name: str  # the controllers of a hierarchy of v1, or V2
    home: Path
    base: Path
    controllers: frozenset[str] = frozenset()  # what can be limited in the folders of `base`
    threaded: Path | None = None  # on v2, the folder of threaded cgroups
    on_threads: frozenset[str] = frozenset()  # what can be limited in the folders of `threaded`

    @property
    def is_v2(self) -> bool:
        return self.name == V2


def mounted(node: str, root: Path, proc_root: Path, wanted: Collection[str]) -> list[Hierarchy]:
    """The mounted hierarchies with these controllers, and the runner's folder in each (from /proc/self/cgroup)."""
    found = []
    for line in lines_of(proc_root / "self" / "cgroup"):
        _, names, path = [*line.split(":", 2), "", ""][:3]
        useful = sorted(set(wanted) & set(names.split(",")))
        if names != V2 and not useful:
            continue
        top = _top(root, useful, names)
        home = _home(top, path) if top is not None else None
        if home is not None:
            # A runner that was moved to a leaf, by itself or by systemd, has its attempts beside it.
            home = home.parent if home.name == RUNNER and names == V2 else home
            found.append(Hierarchy(names, home, home / f"{BASE}{node}", frozenset(useful)))
    return found


def prepared(hierarchy: Hierarchy, wanted: Collection[str]) -> Hierarchy:
    """Make the node's folder and the keeper's leaf; returns the hierarchy with what it can limit. Raises OSError."""
    if hierarchy.is_v2:
        _hand_down(hierarchy.home, wanted)
    hierarchy.base.mkdir(exist_ok=True)
    if hierarchy.is_v2:
        _hand_down(hierarchy.base, wanted)
    home = hierarchy.base / HOME
    home.mkdir(exist_ok=True)
    if not os.access(home / "cgroup.procs", os.W_OK):
        raise PermissionError(13, f"{home}/cgroup.procs may not be written")
    if hierarchy.is_v2:
        return _prepared_v2(hierarchy, wanted)
    if "cpuset" in hierarchy.controllers:
        for folder in (hierarchy.base, home):
            fill_cpuset(folder)
    return hierarchy


def fill_cpuset(folder: Path) -> None:
    """A new cpuset of v1 has no CPU and no memory, and nothing can enter it: give it all that is above it."""
    for name in ("cpuset.mems", "cpuset.cpus"):
        if not (folder / name).read_text().strip():
            (folder / name).write_text((folder.parent / name).read_text().strip())


def lines_of(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def words_of(path: Path) -> list[str]:
    return [word for line in lines_of(path) for word in line.split()]


def _top(root: Path, useful: list[str], names: str) -> Path | None:
    """Where a hierarchy is mounted: by its controllers' names on v1, the root or its `unified` on v2."""
    for name in [names, *useful] if names != V2 else ["", "unified"]:
        top = root / name
        if (top / ("cgroup.procs" if names != V2 else "cgroup.controllers")).exists():
            return top
    return None


def _home(top: Path, path: str) -> Path | None:
    """The runner's folder; in a container without its own view the path is the host's, and `top` is ours."""
    home = top / path.strip("/")
    if ".." in home.parts:
        return None
    return home if (home / "cgroup.procs").exists() else top


def _prepared_v2(hierarchy: Hierarchy, wanted: Collection[str]) -> Hierarchy:
    base, slots = hierarchy.base, hierarchy.base / THREADED
    _make_threaded(slots)
    threaded = slots if slots.is_dir() else None
    on_threads: set[str] = set()
    if threaded is not None:
        with contextlib.suppress(OSError):
            _hand_down(threaded, set(wanted) & set(ON_THREADS))
        on_threads = enabled_in(threaded) & set(ON_THREADS)
    given = enabled_in(base) & set(wanted)
    return Hierarchy(V2, hierarchy.home, base, frozenset(given), threaded, frozenset(on_threads))


def enabled_in(folder: Path) -> set[str]:
    """The controllers of v2 that the folders below this one have."""
    return {word.lstrip("+") for word in words_of(folder / "cgroup.subtree_control")}


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


def _hand_down(folder: Path, wanted: Collection[str]) -> None:
    """Let the folders below this one have these limits. v2 allows that only where no process is in the folder."""
    offered = (folder / "cgroup.controllers").read_text().split()
    names: list[str] = [
        name for name in ("memory", "cpu", "cpuset", "pids") if name in offered and name in wanted
    ]
    if not set(names) - set(words_of(folder / "cgroup.subtree_control")):
        return
    control = folder / "cgroup.subtree_control"
    try:
        control.write_text(" ".join(f"+{name}" for name in names))
    except OSError:
        _step_aside(folder)
        _enable_each(control, names)


def _enable_each(control: Path, names: list[str]) -> None:
    """One by one: a kernel may refuse one controller, such as cpu while a real-time process exists."""
    failed: list[OSError] = []
    for name in names:
        try:
            control.write_text(f"+{name}")
        except OSError as error:
            failed.append(error)
    if len(failed) == len(names):
        raise failed[0]


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
