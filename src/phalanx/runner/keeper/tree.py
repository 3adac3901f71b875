"""All processes of an attempt: its process group, its cgroups, and those that left both.

The leader starts its own session, so most of its tree is one process group. Processes that escaped with setsid are
found by parentage; and since the keeper is a subreaper, an escaped process whose parents are gone becomes the keeper's
child, recognised by its mark (`slots.py`) or by the key in its environment. Without a cgroup, a process that escaped,
cleared its environment *and* removed the mark cannot be assigned, and is killed when no attempt is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal

from . import cgroup, files
from .attempt import is_key
from .cgroup import signal_each
from .spawn import KEY_VARIABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

    from .attempt import KeptAttempt
    from .slots import AttemptSlots
    from .watchdog import Watchdog

_PR_SET_CHILD_SUBREAPER = 36
_KEY = f"{KEY_VARIABLE}=".encode()


def become_subreaper() -> None:
    """Orphans of the attempts become the keeper's children instead of init's."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


class Orphans:
    """Children of the keeper that lead no attempt: some attempt's tree started them."""

    def __init__(self, watchdog: Watchdog, slots: AttemptSlots) -> None:
        self._watchdog = watchdog
        self._slots = slots
        self._children = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY)
        self._keys: dict[int, str] = {}

    def find(self, leaders: Container[int]) -> dict[int, str | None]:
        """Each orphan with its attempt's key; "" when it has none, None when it is not known yet."""
        orphans = [pid for pid in self._pids() if pid not in leaders and pid != self._watchdog.pid]
        return {pid: self._key(pid) for pid in orphans} if orphans else {}

    def reaped(self, pid: int) -> None:
        self._keys.pop(pid, None)

    def _pids(self) -> list[int]:
        text = part = os.pread(self._children, 4096, 0)
        while len(part) > 2048:  # the kernel fills a page before it gives less
            part = os.pread(self._children, 4096, len(text))
            text += part
        return [int(pid) for pid in text.split()]

    def _key(self, pid: int) -> str | None:
        key = self._keys.get(pid)
        if key is None and (key := self._marked(pid) or attempt_key(pid)):
            self._keys[pid] = key  # an orphan keeps its pid until the keeper reaps it
        return key

    def _marked(self, pid: int) -> str:
        number = self._slots.mark.number_of(pid)
        return "" if number is None else self._slots.key_of(number)


def attempt_key(pid: int) -> str | None:
    """The attempt a process belongs to by its environment; None while that is empty, as during exec.

    A process can write anything there: what cannot be a key is not taken for one.
    """
    key = key_in_environment(pid)
    return key if key is None or is_key(key) else ""


def key_in_environment(pid: int) -> str | None:
    """The unchecked key in a process's environment."""
    environment = files.read(f"/proc/{pid}/environ")
    if not environment:
        return None
    for variable in environment.split(b"\0"):
        if variable.startswith(_KEY):
            return variable[len(_KEY) :].decode("utf-8", "replace")
    return ""


def send(attempt: KeptAttempt, orphans: list[int], *signums: int) -> None:
    """Send signals to everything that belongs to the attempt."""
    for signum in signums:
        send_group(attempt.pid, signum)
    if signal.SIGKILL in signums and attempt.folders and cgroup.kill(attempt.folders):
        return
    signal_each(lambda: _outside_group(attempt, orphans), *signums)


def kill_cgroups(folders: list[str], left: set[int]) -> None:
    if not cgroup.kill(folders):
        signal_each(lambda: left & members(folders), signal.SIGKILL)


def send_group(pid: int, signum: int) -> bool:
    """Signal a process group; False when it is empty."""
    try:
        os.killpg(pid, signum)
    except ProcessLookupError:
        return False
    except PermissionError:  # a process in it changed its user: alive, and not ours to signal
        return True
    return True


def send_one(pid: int, signum: int) -> None:
    """Signal a child of the keeper, whose pid is not reused until the keeper reaps it."""
    with contextlib.suppress(PermissionError):
        os.kill(pid, signum)


def _outside_group(attempt: KeptAttempt, orphans: list[int]) -> set[int]:
    found = descendants([attempt.pid, *orphans]) | members(attempt.folders)
    return {pid for pid in found if _group(pid) not in (attempt.pid, None)}


def members(folders: list[str]) -> set[int]:
    """The processes inside; empty where that is unknown: they are signalled again later."""
    try:
        return cgroup.members(folders)
    except OSError:
        return set()


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None


def descendants(roots: list[int]) -> set[int]:
    """These processes and all their living descendants."""
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += _children(pid)
    return found


def _children(pid: int) -> list[int]:
    try:
        with os.scandir(f"/proc/{pid}/task") as threads:
            paths = [f"{thread.path}/children" for thread in threads]
    except OSError:  # it ended while we looked
        return []
    return [int(child) for path in paths for child in files.read(path).split()]


class ProcessTable:
    """The attempts by the pid of their leader while that is alive, and those whose tree is dying."""

    def __init__(self, watchdog: Watchdog, slots: AttemptSlots) -> None:
        self.watchdog = watchdog
        self.slots = slots
        self.leaders: dict[int, KeptAttempt] = {}  # until the leader is reaped
        self.ending: list[KeptAttempt] = []  # the leader is gone, some of its tree may not be
        self.orphans = Orphans(watchdog, slots)

    def signal(self, attempt: KeptAttempt, *signums: int) -> None:
        """Send signals, in this order, to everything that belongs to a running attempt."""
        orphans = self.orphans.find(self.leaders)
        send(attempt, [pid for pid, key in orphans.items() if key == attempt.key], *signums)
