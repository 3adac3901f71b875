"""The cgroups that the runner made for an attempt: how the keeper goes in and out, and what they show at the end.

They are used by one attempt after another, so their control files stay open, and what is the same for all cgroups of
one folder is found out once: how they are entered, what lists their processes, and what they count. The keeper's own
cgroups are in `cgroup.py`.
"""

from __future__ import annotations

import errno
import os

from . import cgroup, system

OPEN_MAX = 256
_READ_BYTES = 4096
COUNTERS = ("memory.events", "memory.oom_control", "pids.events")  # of memory on v2, on v1; of processes


class Entries(cgroup.Homes):
    """The way in, and the way back."""

    def __init__(self) -> None:
        super().__init__()
        self._ways: dict[str, str] = {}  # by the folder that cgroups are in
        self._files: dict[str, int] = {}
        self._behind_in = ""  # our scheduling priority is taken back while we are in a cgroup of this folder

    def enter(self, folder: str) -> None:
        """Move the keeper into the folder, but only when the way back is known to be open; raises OSError."""
        parent = system.parent(folder)
        self.open(parent)
        if parent not in self._ways:
            self._ways[parent] = cgroup.way_in(folder)
        path = f"{folder}/{self._ways[parent]}"
        try:
            self._write(path)
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:  # we come from another tree than these threaded cgroups
                self.join(folder)
            elif (
                error.errno == errno.EINVAL
            ):  # on v1 it may have no time for real-time processes, as we are one
                self._behind_in = parent
                system.go_behind()
            else:
                raise
            self._write(path)

    def leave(self, folder: str) -> None:
        parent = system.parent(folder)
        self.return_to(parent)
        if self._behind_in and self._behind_in == parent:
            self._behind_in = ""
            system.go_first()

    def _write(self, path: str) -> None:
        fd = self._files.get(path)
        if fd is not None:
            try:
                os.write(fd, b"0")
                return
            except OSError as error:
                if error.errno != errno.ENODEV:  # the cgroup was removed, and perhaps made anew
                    raise
                os.close(self._files.pop(path))
        if len(self._files) >= OPEN_MAX:
            os.close(self._files.pop(next(iter(self._files))))
        self._files[path] = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        os.write(self._files[path], b"0")


_emptiness_in: dict[str, str] = {}  # by the folder that cgroups are in: what tells at once that one is empty
_lists_in: dict[str, str] = {}  # likewise: what lists the processes of each
_counters_in: dict[str, tuple[str, ...]] = {}  # likewise: what they count
_open: dict[str, int] = {}  # files that are read for one attempt after another


def is_deserted(folders: list[str]) -> bool:
    """Whether no process is in these cgroups; raises OSError where that is unknown."""
    for folder in folders:
        parent = system.parent(folder)
        if parent not in _lists_in:
            threaded = cgroup.way_in(folder) == "cgroup.threads"
            _lists_in[parent] = "cgroup.threads" if threaded else "cgroup.procs"
            _emptiness_in[parent] = "pids.current" if os.access(f"{folder}/pids.current", os.R_OK) else ""
        if (name := _emptiness_in[parent]) and _read_again(f"{folder}/{name}") == b"0\n":
            continue
        # It is opened anew: the kernel (v1) answers a second read of the same open list from a copy that may be old.
        if system.read_surely(f"{folder}/{_lists_in[parent]}"):
            return False
    return True


def counters(folders: list[str]) -> tuple[bytes, ...]:
    """What the kernel has counted in these cgroups so far, as it shows it; to be compared by `counted_since`."""
    return tuple([_read_again(f"{folder}/{name}") for folder in folders for name in _counters(folder)])


def counted_since(before: tuple[bytes, ...], folders: list[str]) -> tuple[int, int]:
    """How many processes the kernel has OOM-killed in these cgroups since then, and how many it refused to start."""
    now = counters(folders)
    if before == now:
        return 0, 0
    names = [name for folder in folders for name in _counters(folder)]
    (kills, refused), (kills_before, refused_before) = _sums(names, now), _sums(names, before)
    return max(0, kills - kills_before), max(0, refused - refused_before)


def _sums(names: list[str], texts: tuple[bytes, ...]) -> tuple[int, int]:
    kills = refused = 0
    for name, text in zip(names, texts, strict=False):
        for line in text.splitlines():
            if line.startswith(b"oom_kill "):
                kills += int(line.split()[1])
            elif name == "pids.events" and line.startswith(b"max "):
                refused += int(line.split()[1])
    return kills, refused


def _read_again(path: str) -> bytes:
    """The content of a control file, which stays open; empty when it cannot be read."""
    fd = _open.get(path)
    try:
        if fd is not None:
            try:
                return os.pread(fd, _READ_BYTES, 0)
            except OSError:  # the cgroup was removed, and perhaps made anew
                os.close(_open.pop(path))
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    if len(_open) >= OPEN_MAX:
        os.close(_open.pop(next(iter(_open))))
    _open[path] = fd
    try:
        return os.pread(fd, _READ_BYTES, 0)
    except OSError:
        return b""


def _counters(folder: str) -> tuple[str, ...]:
    parent = system.parent(folder)
    if parent not in _counters_in:
        found = tuple(name for name in COUNTERS if os.access(f"{folder}/{name}", os.R_OK))
        if not os.access(folder, os.F_OK):
            return found
        _counters_in[parent] = found
    return _counters_in[parent]
