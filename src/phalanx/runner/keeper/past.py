"""After a keeper's own death: what its journal says ran is ended for good, and told.

Nobody waited for those processes, so their exit codes are lost and they cannot be taken over. They are
killed, whole trees of them, and reported as ended for an unknown reason; exits that were written down are
reported as they were.
"""

from __future__ import annotations

import os
import select
import signal
import time

from . import cgroup
from .attempt import Attempt, unknown_exit
from .spawn import KEEPER_VARIABLE
from .tree import read_environment, signal_each

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .journal import Past

WAIT_S_MAX = 5.0


def settle(past: Past, boot: str, mark: str) -> list[Attempt]:
    """Kill what an earlier keeper left running; every attempt of it, ended."""
    if past.boot == boot:
        running = [told for told in past.attempts.values() if told[4] is None]
        _kill_all(_Survivors(running, mark))
    now = time.time()
    return [_attempt(key, told, now) for key, told in past.attempts.items()]


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def _attempt(key: str, told: list[Any], now: float) -> Attempt:
    pid, ticks, started_at, cgroups, exit = told
    options = {"out": "", "err": "", "cgroups": cgroups}
    attempt = Attempt(key, options)
    attempt.pid, attempt.born, attempt.started_at = pid, tuple(ticks), started_at or now
    attempt.exit = exit or unknown_exit(started_at or now, now)
    return attempt


class _Survivors:
    """The living processes of the attempts an earlier keeper ran."""

    def __init__(self, running: list[list[Any]], mark: str) -> None:
        self._mark = f"{KEEPER_VARIABLE}={mark}".encode()
        self._sessions = {told[0] for told in running if _same_leader(told[0], told[1])}
        self._cgroups = [folder for told in running for folder in told[3]]

    def find(self) -> set[int]:
        found = cgroup.members(self._cgroups)
        for name in os.listdir("/proc"):
            if name.isdigit() and self._is_one(int(name)):
                found.add(int(name))
        return found - {os.getpid()}

    def _is_one(self, pid: int) -> bool:
        stat = _stat(pid)
        if not stat or stat[0] in "ZX":
            return False
        return int(stat[3]) in self._sessions or self._mark in read_environment(pid).split(b"\0")


def _same_leader(pid: int, ticks: list[int]) -> bool:
    """Whether the session `pid` is still the attempt's: a leader of that number was born when it was.

    Where no such process is left, its number cannot have been given away while its session has members.
    """
    stat = _stat(pid) if pid else []
    return pid > 0 and (not stat or ticks[0] <= int(stat[19]) <= ticks[1])


def _stat(pid: int) -> list[str]:
    """/proc/PID/stat from the state on: [0] state, [3] session, [19] start in clock ticks since boot."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def _kill_all(survivors: _Survivors) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while (pids := survivors.find()) and time.monotonic() < deadline:
        handles = _handles(pids)
        signal_each(survivors.find, signal.SIGKILL)
        _wait_for(handles, deadline)


def _handles(pids: set[int]) -> list[int]:
    handles = []
    for pid in pids:
        try:
            handles.append(os.pidfd_open(pid))
        except OSError:
            continue
    return handles


def _wait_for(handles: list[int], deadline: float) -> None:
    for handle in handles:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        os.close(handle)
