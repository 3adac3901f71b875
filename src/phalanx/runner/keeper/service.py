"""The keeper as a service: one for each state folder, detached from its starter, listening on its socket.

The process that is started recovers, opens the socket and leaves a child behind; when it exits with 0, a keeper can be
connected to. It writes to stderr why it could not.
"""

from __future__ import annotations

import fcntl
import gc
import os
import select
import sys

from . import cgroup, journal, log, lookup, recovery, system
from .link import SocketListener
from .lookup import BETWEEN_LOOKS_S, LOOKS
from .loop import ALONE_S, KeeperLoop
from .table import KeeperTable
from .tree import Mark
from .watchdog import Watchdog

LOCK = "keeper.lock"
COLLECT_AFTER = 20_000  # objects: hardly anything here is in a cycle
WITHDRAW_S_MAX = 0.5  # how long one that is starting takes to see that it has to withdraw, with a margin


def main(arguments: list[str]) -> int:
    bases = [word.removeprefix(cgroup.OPTION) for word in arguments if word.startswith(cgroup.OPTION)]
    arguments = [word for word in arguments if not word.startswith(cgroup.OPTION)]
    if len(arguments) not in (1, 2):
        sys.stderr.write(
            f"usage: python -I -S keeper/__main__.py STATE_DIR [SECONDS_ALONE] [{cgroup.OPTION}FOLDER ...]\n"
        )
        return 2
    alone_s = float(arguments[1]) if arguments[1:] else ALONE_S
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # a socket leaked by the starter would stay open for weeks
    state_dir = os.path.realpath(arguments[0])
    mark = Mark(state_dir, bases)
    lock = _lock(state_dir, mark)
    if lock is None:
        return 0  # another keeper has this folder, which is enough
    boot = recovery.boot_id()
    try:
        past, attempts = recovery.settle(f"{state_dir}/{journal.NAME}", boot, mark)
    except (recovery.Alive, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if left := lookup.end_watchdogs(state_dir):
        sys.stderr.write(f"watchdogs of an earlier keeper were killed and did not end: {sorted(left)[:20]}\n")
        return 1
    listener = SocketListener(state_dir)
    if os.fork():
        os._exit(0)
    _detach(state_dir)
    try:
        listener.sign()
        for path in [*system.renamed]:
            sys.stderr.write(system.RENAMED.format(path))
        for line in past.unreadable:
            sys.stderr.write(f"{journal.NAME}: skipped, it cannot be read: {line}\n")
        system.become_subreaper()
        watchdog = Watchdog(mark)
        watchdog.ensure()
        system.go_first()
        written = journal.Journal(f"{state_dir}/{journal.NAME}")
        written.begin(boot, attempts, past.stopped)
        gc.freeze()
        gc.set_threshold(COLLECT_AFTER)
        KeeperLoop(
            listener, KeeperTable(attempts, past.stopped), written, watchdog, boot, mark, alone_s
        ).run()
        watchdog.dismiss()
    finally:
        listener.close()
        os.close(lock)
    return 0


def _lock(state_dir: str, mark: Mark) -> int | None:
    """The folder's lock, as long as it is open; None if a living keeper has it, or is about to.

    A task can take the lock as well, or remove its file: a keeper is recognised by having the file open. Of several
    that start at once the one continues whose lock has the name; all others withdraw.
    """
    path = f"{state_dir}/{LOCK}"
    lock = _try_lock(path)
    if lock is None:
        if _keepers(state_dir, mark):
            return None
        system.set_aside(path, unless=lambda _: False)
        lock = _try_lock(path)
    if lock is None or not _is_alone(state_dir, mark, path, lock):
        return None
    return lock


def _is_alone(state_dir: str, mark: Mark, path: str, lock: int) -> bool:
    """Whether we may continue with our lock: no other process has one that had the name before, or took it from ours.

    A process whose lock has lost the name withdraws at once, and the one that took the name waits for that.
    """
    deadline = system.since_boot() + WITHDRAW_S_MAX
    while others := _keepers(state_dir, mark, lock):
        while others & lookup.keepers(state_dir, LOCK, lock):
            if not _has_name(lock, path) or system.since_boot() >= deadline:
                return False
            select.select([], [], [], BETWEEN_LOOKS_S)
    return True


def _has_name(lock: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), os.lstat(path))
    except OSError:
        return False


def _keepers(state_dir: str, mark: Mark, held: int | None = None) -> set[int]:
    """The living keepers of the folder, and those being started, other than by the lock that we hold.

    One look is not enough. A keeper that continues as its own child may be missed while it does so, and one that
    starts a task carries the mark of the task meanwhile.
    """
    for look in range(LOOKS):
        if look:
            select.select([], [], [], BETWEEN_LOOKS_S)
        if found := lookup.keepers(state_dir, LOCK, held):
            found -= recovery.Survivors(journal.read(f"{state_dir}/{journal.NAME}"), mark).find()
        if found:
            return found
    return set()


def _try_lock(path: str) -> int | None:
    lock = system.open_own(path, os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def _detach(state_dir: str) -> None:
    """Leave the starter's session, folder and descriptors; later errors go to the keeper's log."""
    os.setsid()
    os.chdir("/")
    null = os.open("/dev/null", os.O_RDWR)
    for target in (0, 1):
        os.dup2(null, target)
    log.begin(state_dir)
