"""What is left when a supervisor was killed: keepers, which are asked to stop their tasks, and watchdogs of dead ones.

Only those of runners that `phalanx up` started and that have no runner now; others are their own runner's business. A
watchdog is left alone: it ends with its keeper, or, where that died, ends what that ran when the lease is over.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import ExitStack, suppress
from pathlib import Path

from msgspec import Struct

from phalanx.cli.shape import remembered
from phalanx.cli.state import END_WITHIN_S
from phalanx.clock import Deadline
from phalanx.endpoint import ProcessOwner
from phalanx.runner import stopping
from phalanx.runner.keeper import lookup


class Left(Struct, frozen=True):
    """The pids of the keepers, and of the watchdogs whose keeper died."""

    keepers: list[int]
    watchdogs: list[int]

    @property
    def is_nothing(self) -> bool:
        return not (self.keepers or self.watchdogs)


def left_in(folder: Path) -> Left:
    """What is left of the runners of a cluster whose supervisor is gone."""
    runners = folder / "runners"
    own = [runners / name for name in remembered(folder).names if _is_alone(runners / name)]
    pids = [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()] if own else []
    pids = [pid for pid in pids if _is_ours(pid)]
    keepers: list[int] = []
    watchdogs: list[int] = []
    for each in own:
        found = [pid for pid in pids if lookup.is_keeper(pid, str(each))]
        keepers += found
        watchdogs += [] if found else [pid for pid in pids if lookup.is_watchdog(pid, os.path.realpath(each))]
    return Left(sorted(keepers), sorted(watchdogs))


def stop(folder: Path, left: Left) -> Left:
    """Tell the keepers to stop their tasks and to end, and wait for all; those that have not ended within the time."""
    own = [each for each in (folder / "runners").iterdir() if each.is_dir()]
    with ExitStack() as held:
        waiting: dict[int, int] = {}
        for pid in (*left.keepers, *left.watchdogs):
            with suppress(OSError):
                handle = os.pidfd_open(pid)
                held.callback(os.close, handle)
                # Asked while the pidfd is open: it is about this process.
                if _is_ours(pid) and any(lookup.is_keeper(pid, str(each)) for each in own):
                    signal.pidfd_send_signal(handle, signal.SIGTERM)
                    waiting[handle] = pid
                elif any(lookup.is_watchdog(pid, os.path.realpath(each)) for each in own):
                    waiting[handle] = pid
        rest = _still_there(waiting)
    return Left([pid for pid in left.keepers if pid in rest], [pid for pid in left.watchdogs if pid in rest])


def _still_there(waiting: dict[int, int]) -> set[int]:
    """The pids of those that have not ended when the time is over, one for all of them."""
    until, poll = Deadline(END_WITHIN_S), select.poll()
    for handle in waiting:
        poll.register(handle, select.POLLIN)
    while waiting and not until.is_over:
        for handle, _ in poll.poll(until.left_s(END_WITHIN_S) * 1000):
            poll.unregister(handle)
            del waiting[handle]
    return set(waiting.values())


def _is_alone(folder: Path) -> bool:
    runner = stopping.runner_of(folder)
    return runner is None or not ProcessOwner(runner.pid, runner.started).is_alive


def _is_ours(pid: int) -> bool:
    with suppress(OSError):
        return Path("/proc", str(pid)).stat().st_uid == os.geteuid()
    return False
