"""Finds the keepers of a state folder, and the watchdogs of its keepers, among the processes of this account.

Tasks can write to the folder and take any lock in it, so a lock alone proves nothing: its holder is examined. The
caller checks that a keeper found here is not a task that looks like one (`recovery.Survivors`).
"""

from __future__ import annotations

import os
import select
import signal

from . import system
from .system import signal_each

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

WATCHDOG = "phalanx-watchdog of "  # and the folder: all of its command line, if it fits there
WAIT_S_MAX, PAUSE_S = 5.0, 0.005
LOOKS, BETWEEN_LOOKS_S = 3, 0.005  # one look may miss a keeper that is just starting, or starts a task
_PROGRAM = b"/keeper/__main__.py"


def keepers(state_dir: str, lock: str, held: int | None = None) -> set[int]:
    """The other processes that run the keeper's program for this folder and have its lock file open.

    With a lock that we hold: processes that have another file open that is the lock, or was. A process that has only
    the same one open tried to lock it, in vain.
    """
    path = f"{state_dir}/{lock}"
    ours = () if held is None else _file(held)
    others = (pid for pid in _ours() if pid != os.getpid() and is_keeper(pid, state_dir))
    return {pid for pid in others if _has_open(pid, path, ours)}


def is_keeper(pid: int, state_dir: str) -> bool:
    """Whether a process runs the keeper's program for this folder, by its command line: the only evidence.

    The caller checks the account, and whether it is a task that looks like a keeper.
    """
    folder = os.path.realpath(state_dir)
    words = system.read(f"/proc/{pid}/cmdline").split(b"\0")
    places = [number for number, word in enumerate(words[:-1]) if (b"/" + word).endswith(_PROGRAM)]
    return any(os.path.realpath(os.fsdecode(words[number + 1])) == folder for number in places)


def end_watchdogs(state_dir: str) -> set[int]:
    """Kill the watchdogs of earlier keepers, before anything is started; returns those that did not end."""
    deadline = system.since_boot() + WAIT_S_MAX
    while (left := _watchdogs(state_dir)) and system.since_boot() < deadline:
        signal_each(lambda: _watchdogs(state_dir), signal.SIGKILL)
        select.select([], [], [], PAUSE_S)
    return left


def descends_from(pid: int, ancestor: int) -> bool:
    """Whether `ancestor` is above this process; True also if the process is gone."""
    seen: set[int] = set()
    while pid > 1 and pid not in seen:
        seen.add(pid)
        if pid == ancestor:
            return True
        stat = system.read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        if not stat:
            return True
        pid = int(stat[1])
    return False


def _watchdogs(state_dir: str) -> set[int]:
    return {pid for pid in _ours() if is_watchdog(pid, state_dir)}


def is_watchdog(pid: int, state_dir: str) -> bool:
    """Whether it shows the title of this folder's watchdog, or the part that fits, and has the folder open."""
    title = os.fsencode(WATCHDOG + state_dir)
    shown = system.read(f"/proc/{pid}/cmdline").rstrip(b"\0")
    if len(shown) < len(WATCHDOG) or not title.startswith(shown):
        return False
    return shown == title or state_dir in _open_files(pid).values()


def _ours() -> Iterator[int]:
    with os.scandir("/proc") as entries:
        for entry in entries:
            try:
                if entry.name.isdigit() and entry.stat().st_uid == os.geteuid():
                    yield int(entry.name)
            except OSError:  # it is gone
                continue


def _has_open(pid: int, path: str, ours: tuple[int, ...]) -> bool:
    """Whether it has a file open, other than ours, that has this name or had it before a removal or rename."""
    try:
        return any(name.startswith(path) and _file(entry) != ours for entry, name in _open_files(pid).items())
    except OSError:  # it is gone, or has just closed it
        return False


def _file(path: str | int) -> tuple[int, ...]:
    found = os.stat(path)  # noqa: PTH116 (the keeper imports no pathlib)
    return found.st_dev, found.st_ino


def _open_files(pid: int) -> dict[str, str]:
    """The names of its open files, by their path in /proc."""
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            return {entry.path: os.readlink(entry.path) for entry in entries}  # noqa: PTH115
    except OSError:
        return {}
