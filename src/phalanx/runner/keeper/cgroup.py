"""Control groups as the keeper needs them: go in, come back, read OOM kills, find and kill who is inside.

An attempt may be in several folders at once, one per hierarchy (memory on v1, tracking on v2). Folders with limits are
made and removed by the runner (`runner/cgroups.py`); those without, which only tell one attempt's processes from
another's, by the keeper (`slots.py`). Beside them is a leaf named `keeper`, to which the keeper returns.

How a child gets in before its first instruction was measured here (CPU above a plain spawn, memory on v1 and
unified v2 together): the keeper goes in, spawns and comes back +0.1 ms; a `/bin/sh` that enters and execs
+0.85 ms; writing the child's pid after the spawn +0.03 ms, but then what the child forked meanwhile is
outside. So the keeper goes in. The price: until its exec the child shares the keeper's memory, and an OOM
kill in that instant would take the keeper along. That is why the runner sets no limit under a few MiB.
"""

from __future__ import annotations

import contextlib
import os

from . import files, log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

HOME = "keeper"
BASE = "phalanx-"  # and the node's name: the folder of all this
OPTION = "--cgroups="  # and a folder of this node's: how a keeper is told where whoever it finds is its own
PID_DIGITS_MAX = 7
SLOT = "slot-"  # and a number: the cgroups that the keeper itself makes


class Homes:
    """The way back: an open `cgroup.procs` of the leaf `keeper`, one for each hierarchy."""

    def __init__(self) -> None:
        self._procs: dict[str, int] = {}

    def open(self, folder: str) -> None:
        """Make sure that there is a way back from this folder; raises OSError."""
        self._home(folder)

    def enter(self, folder: str) -> None:
        """Move the keeper into the folder, but only when the way back is known to be open."""
        self.open(folder)
        files.write(f"{folder}/cgroup.procs", b"0")

    def leave(self, folder: str) -> None:
        try:
            os.write(self._home(folder), b"0")
        except OSError:  # the leaf was removed
            self._forget(folder)
            try:
                os.write(self._home(folder), b"0")
            except OSError as error:
                log.say("leave", f"cannot leave the cgroup {folder}: {error}")

    def _forget(self, folder: str) -> None:
        if (fd := self._procs.pop(files.parent(folder), -1)) >= 0:
            os.close(fd)

    def _home(self, folder: str) -> int:
        parent = files.parent(folder)
        if parent not in self._procs:
            with contextlib.suppress(OSError):
                os.mkdir(f"{parent}/{HOME}")  # noqa: PTH102 (the keeper imports no pathlib)
            self._procs[parent] = os.open(f"{parent}/{HOME}/cgroup.procs", os.O_WRONLY)
        return self._procs[parent]


def oom_kills(folders: list[str]) -> int:
    """How many processes the kernel has OOM-killed in these folders so far."""
    total = 0
    for folder in folders:
        for name in ("memory.events", "memory.oom_control"):  # v2, v1
            for line in files.read(f"{folder}/{name}").splitlines():
                if line.startswith(b"oom_kill "):
                    total += int(line.split()[1])
    return total


def members(folders: list[str]) -> set[int]:
    """The processes now in these folders, without the keeper itself; raises OSError where that cannot be told."""
    return {pid for folder in folders for pid in _pids(folder)} - {os.getpid()}


def is_of_a_node(folder: str) -> bool:
    """Whether it can be an attempt's, beside a keeper's leaf: whatever a journal says, no other is killed."""
    base, _, name = folder.rpartition("/")
    is_ours = files.parent(base).startswith("/") and base.rpartition("/")[2].startswith(BASE)
    return (
        is_ours
        and ".." not in folder.split("/")
        and name not in ("", ".", HOME)
        and _is_folder(f"{base}/{HOME}")
    )


def attempts_in(bases: Collection[str]) -> set[str]:
    """All cgroups in these folders of a node, with those that tasks made in theirs, but for the keeper's leaf."""
    found: set[str] = set()
    for base in bases:
        if is_of_a_node(f"{base}/{SLOT}0"):
            for folder, names, _ in os.walk(base):
                if folder == base:
                    names[:] = [name for name in names if name != HOME]
                found.update(f"{folder}/{name}" for name in names)
    return found


def _is_folder(path: str) -> bool:
    return os.access(f"{path}/.", os.F_OK)


def is_only_ours(folder: str) -> bool:
    """Whether nobody is in it but this process, which could not leave."""
    return _pids(folder) == {os.getpid()}


def kill(folders: list[str], spared: Collection[int] = ()) -> bool:
    """Kill everyone inside at once where the kernel offers it (v2); False when a signal to each is needed."""
    killed = False
    for folder in folders:
        # Where the keeper's way back failed, better signal each than have it die with them.
        try:
            if not _pids(folder).isdisjoint((os.getpid(), *spared)):
                continue
            files.write(f"{folder}/cgroup.kill", b"1")
            killed = True
        except OSError:
            continue
    return killed


def _pids(folder: str) -> set[int]:
    """Who is inside; a journal can name a folder that is no cgroup, with anything in a file of that name."""
    words = files.read_surely(f"{folder}/cgroup.procs").split()
    return {int(word) for word in words if word.isdigit() and len(word) <= PID_DIGITS_MAX}
