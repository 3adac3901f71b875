"""One runner for each state folder: it holds the lock of the folder for as long as it lives, and another one refuses.

Tasks can write to the folder and take any lock in it, so a lock alone proves nothing: its holder is examined, and a
runner whose lock file was removed or replaced is found by its open files. A task can never be taken for one, as it
carries the marks of the folder's keeper, or descends from it. `stopping.py` has the files of a runner that stops.
"""

from __future__ import annotations

import fcntl
import os
import select
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from phalanx.errors import Conflict
from phalanx.runner.keeper import lookup, service, system
from phalanx.runner.keeper.journal import JournalContents
from phalanx.runner.keeper.recovery import Survivors
from phalanx.runner.keeper.tree import Mark

LOCK = "runner.lock"
KEEPERS = "keepers"  # the folder of all keepers but the first
DESCRIPTOR = 200  # a runner's lock has this descriptor, so that examining a process costs one system call
TRIES, PAUSE_S = 50, 0.02  # an earlier runner may just be ending


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Be the runner of this folder. Raises Conflict if there is one, before anything is changed."""
    lock = _take(folder)
    try:
        yield
    finally:
        os.close(lock)


def runners(folder: Path) -> list[int]:
    """The living runners of a folder, the oldest first: one, or none."""
    path = _path(folder)
    found = [pid for pid in _pids() if _leads_to(pid, DESCRIPTOR, path) and _may_be(pid, folder)]
    tasks = Tasks(folder) if found else ()
    return sorted((pid for pid in found if pid not in tasks), key=started)


def is_runner(folder: Path, pid: int) -> bool:
    """Whether this process is the runner of a folder."""
    is_one = _leads_to(pid, DESCRIPTOR, _path(folder)) and _may_be(pid, folder)
    return is_one and pid not in Tasks(folder)


def started(pid: int) -> int:
    """When a process began, in clock ticks after boot; 0 if it is gone."""
    fields = _stat(pid)
    return int(fields[19]) if fields else 0


def keeper_folder(folder: Path, number: int) -> Path:
    """The folder of a runner's keeper: of the first one, the runner's own."""
    return folder / KEEPERS / str(number) if number else folder


def keeper_folders(folder: Path) -> list[int]:
    """The numbers of the keepers that have folders of their own."""
    with suppress(OSError):
        return sorted(int(each.name) for each in (folder / KEEPERS).iterdir() if each.name.isdecimal())
    return []


class Tasks:
    """The processes of a folder's tasks, as far as recognisable: `pid in tasks`. A dead one counts as one."""

    def __init__(self, folder: Path) -> None:
        numbers = (0, *keeper_folders(folder))
        reals = [os.path.realpath(keeper_folder(folder, number)) for number in numbers]
        self._survivors = [Survivors(JournalContents(), Mark(real)) for real in reals if os.path.isdir(real)]  # noqa: PTH112
        # And tasks that look like one.
        self.keepers = {pid for real in reals for pid in lookup.keepers(real, service.LOCK)}

    def __contains__(self, pid: int) -> bool:
        return any(survivors.shows(pid) for survivors in self._survivors) or any(
            lookup.descends_from(pid, keeper) for keeper in self.keepers - {pid}
        )


def _take(folder: Path) -> int:
    """Take the lock, held until it is closed. What a task holds is set aside."""
    path = _path(folder)
    others: list[int] = []
    for _ in range(TRIES):
        lock = _try_lock(path)
        others = [pid for pid in runners(folder) if pid != os.getpid()]
        if lock is not None and not others:
            return lock
        if lock is not None:
            os.close(lock)
        elif not others:
            holders, tasks = _who_have(path), Tasks(folder)
            others = [pid for pid in holders if pid not in tasks]
            if holders and not others:
                system.set_aside(path, unless=lambda _: False)
                continue
        select.select([], [], [], PAUSE_S)
    raise Conflict(
        _refusal(folder, others),
        hint="`phalanx runner stop` with its --name and --state stops it, `phalanx down` if it is `up`'s;"
        " another --name or --state starts one beside it",
    )


def _refusal(folder: Path, others: list[int]) -> str:
    if not others:
        return f"{folder} has a runner already: its lock is held by a process of another container or account"
    fields = _stat(others[0])
    frozen = "; it is stopped (SIGSTOP) and goes on with SIGCONT" if fields and fields[0] in "Tt" else ""
    return f"{folder} has a runner already: process {others[0]}{frozen}"


def _try_lock(path: str) -> int | None:
    """The lock, on the descriptor of a runner; None if another process holds it. Raises OSError."""
    lock = system.open_own(path, os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return fcntl.fcntl(lock, fcntl.F_DUPFD_CLOEXEC, DESCRIPTOR)
    except BlockingIOError:
        return None
    finally:
        os.close(lock)


def _who_have(path: str) -> set[int]:
    """All processes that have the lock file open, under any descriptor."""
    found = set()
    for pid in _pids():
        with suppress(OSError, ValueError), os.scandir(f"/proc/{pid}/fd") as entries:
            if any(_leads_to(pid, int(entry.name), path) for entry in entries):
                found.add(pid)
    return found - {os.getpid()}


def _leads_to(pid: int, descriptor: int, path: str) -> bool:
    """Whether that descriptor is a file that has this name, or had it before it was removed or set aside."""
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/fd/{descriptor}").startswith(path)  # noqa: PTH115
    return False


def _may_be(pid: int, folder: Path) -> bool:
    """Whether its account is the folder's or root's: no other process can be the runner, nor gets a signal."""
    with suppress(OSError):
        return Path("/proc", str(pid)).stat().st_uid in {folder.stat().st_uid, 0}
    return False


def _pids() -> Iterable[int]:
    with os.scandir("/proc") as entries:
        return [int(entry.name) for entry in entries if entry.name.isdigit()]


def _stat(pid: int) -> list[str]:
    """/proc/PID/stat from the state on: [0] state, [19] start."""
    return system.read(f"/proc/{pid}/stat").rpartition(b")")[2].decode().split()


def _path(folder: Path) -> str:
    return f"{os.path.realpath(folder)}/{LOCK}"
