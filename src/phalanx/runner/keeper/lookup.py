"""Finds the keepers of a state folder, and the watchdogs of its keepers, among the processes of this account.

Tasks can write to the folder and take any lock in it, so a lock alone says nothing: who holds it is looked at. That a
keeper found here is not a task that looks like one is for the caller to see (`past.Survivors`).
"""

from __future__ import annotations

import os
import select
import signal

from . import clock, files
from .cgroup import signal_each

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

WATCHDOG = "phalanx-watchdog of "  # and the folder: all of its command line, if it fits there
WAIT_S_MAX, PAUSE_S = 5.0, 0.005
LOOKS, BETWEEN_LOOKS_S = 3, 0.005  # where one may miss a keeper that is just being started, or starts a task
_PROGRAM = b"/keeper/__main__.py"


def keepers(state_dir: str, lock: str, held: int | None = None) -> set[int]:
    """The other processes that run the keeper's program for this folder and have its lock file open.

    With a lock that we hold: who has another file open that is the lock, or was. Who has only the same one open tried
    to lock it, in vain.
    """
    path = f"{state_dir}/{lock}"
    ours = () if held is None else _file(held)
    others = (pid for pid in _ours() if pid != os.getpid() and is_keeper(pid, state_dir))
    return {pid for pid in others if _has_open(pid, path, ours)}


def is_keeper(pid: int, state_dir: str) -> bool:
    """Whether a process runs the keeper's program for this folder, by its command line: the one way to tell.

    Whose account it is, and whether it is a task that looks like a keeper, is for the caller to see.
    """
    folder = os.path.realpath(state_dir)
    words = files.read(f"/proc/{pid}/cmdline").split(b"\0")
    places = [number for number, word in enumerate(words[:-1]) if (b"/" + word).endswith(_PROGRAM)]
    return any(os.path.realpath(os.fsdecode(words[number + 1])) == folder for number in places)


def end_watchdogs(state_dir: str) -> set[int]:
    """Kill those of earlier keepers, so that none meets what is started next; those that did not end."""
    deadline = clock.since_boot() + WAIT_S_MAX
    while (left := _watchdogs(state_dir)) and clock.since_boot() < deadline:
        signal_each(lambda: _watchdogs(state_dir), signal.SIGKILL)
        select.select([], [], [], PAUSE_S)
    return left


def descends_from(pid: int, ancestor: int) -> bool:
    """Whether a process has this one above it; so it is said of one that is gone, too."""
    seen: set[int] = set()
    while pid > 1 and pid not in seen:
        seen.add(pid)
        if pid == ancestor:
            return True
        stat = files.read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        if not stat:
            return True
        pid = int(stat[1])
    return False


def _watchdogs(state_dir: str) -> set[int]:
    return {pid for pid in _ours() if is_watchdog(pid, state_dir)}


def is_watchdog(pid: int, state_dir: str) -> bool:
    """Whether it shows the title of this folder's, or as much of it as it had room for and has the folder open."""
    title = os.fsencode(WATCHDOG + state_dir)
    shown = files.read(f"/proc/{pid}/cmdline").rstrip(b"\0")
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
    """Whether it has a file open, and not ours, that has this name or had it: it may have been removed or renamed."""
    try:
        return any(name.startswith(path) and _file(entry) != ours for entry, name in _open_files(pid).items())
    except OSError:  # it is gone, or has just closed it
        return False


def _file(path: str | int) -> tuple[int, ...]:
    found = os.stat(path)  # noqa: PTH116 (the keeper imports no pathlib)
    return found.st_dev, found.st_ino


def _open_files(pid: int) -> dict[str, str]:
    """The names of its open files, by where they can be reached."""
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            return {entry.path: os.readlink(entry.path) for entry in entries}  # noqa: PTH115
    except OSError:
        return {}
