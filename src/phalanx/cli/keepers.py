"""Keepers that are left when a supervisor was killed: found by their command lines, and told to stop what they run.

Only those of runners that `phalanx up` started and that have no runner now; others are their own runner's business.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import ExitStack, suppress
from pathlib import Path

from phalanx.cli.owner import END_WITHIN_S, Owner
from phalanx.cli.shape import remembered
from phalanx.runner import stopping
from phalanx.runner.keeper import lookup


def left_in(folder: Path) -> list[int]:
    """The keepers, and their watchdogs, of the runners of a cluster whose supervisor is gone."""
    runners = folder / "runners"
    own = {os.path.realpath(runners / name) for name in remembered(folder).names if _is_alone(runners / name)}
    pids = [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()] if own else []
    return [pid for pid in pids if _keeps(pid, own)]


def stop(folder: Path, pids: list[int]) -> list[int]:
    """Tell them to stop their tasks and to end; those that have not within the time."""
    own = {os.path.realpath(each) for each in (folder / "runners").iterdir()}
    with ExitStack() as held:
        told: dict[int, int] = {}
        for pid in pids:
            with suppress(OSError):
                handle = os.pidfd_open(pid)
                held.callback(os.close, handle)
                if _keeps(pid, own):  # asked while the pidfd is open: it is about this process
                    signal.pidfd_send_signal(handle, signal.SIGTERM)
                    told[handle] = pid
        return _still_there(told)


def _still_there(told: dict[int, int]) -> list[int]:
    waiting = select.poll()
    for handle in told:
        waiting.register(handle, select.POLLIN)
    for _ in range(len(told)):
        for handle, _ in waiting.poll(END_WITHIN_S * 1000):
            waiting.unregister(handle)
            told.pop(handle, None)
        if not told:
            break
    return sorted(told.values())


def _is_alone(folder: Path) -> bool:
    runner = stopping.runner_of(folder)
    return runner is None or not Owner(runner.pid, runner.started).is_alive


def _keeps(pid: int, folders: set[str]) -> bool:
    with suppress(OSError):
        is_ours = Path("/proc", str(pid)).stat().st_uid == os.geteuid()
        return is_ours and any(lookup.is_keeper(pid, folder) for folder in folders)
    return False
