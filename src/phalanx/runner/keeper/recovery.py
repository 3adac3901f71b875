"""Recovery after a keeper's death: what it ran is ended for good, and reported.

No process waited for those processes, so their exit codes are lost and they cannot be taken over. They are killed,
whole trees of them, and reported as ended for an unknown reason; recorded exits are reported as they were. The journal
may be damaged, forged or gone: processes that carry the folder's mark, have the folder in their environment or are in
one of the node's cgroups are found without it.
"""

from __future__ import annotations

import json
import os
import select
import signal

from . import cgroup, journal, system
from .attempt import KeptAttempt, is_key
from .cgroup import folders_beside
from .spawn import KEEPER_VARIABLE
from .system import signal_each
from .tree import key_in_environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from .journal import JournalContents
    from .tree import Mark

WAIT_S_MAX = 5.0


class Alive(Exception):
    """Processes of an earlier keeper that did not end when they were killed."""


def settle(path: str, boot: str, mark: Mark) -> tuple[JournalContents, list[KeptAttempt]]:
    """Kill what an earlier keeper left running; returns the journal's contents, and all its attempts, ended.

    Processes that can be identified without the journal die first: the journal may be anything. Only pids depend on
    the boot: in another one they belong to others. Raises Alive if one does not end, OSError if none can be looked
    for.
    """
    keys_found = _kill_all(Survivors(journal.JournalContents(), mark))
    past = journal.read(path)
    keys_found |= _kill_all(Survivors(past, mark, knows_pids=past.boot == boot))
    killed = {key for key in keys_found if is_key(key)}
    for text in sorted(keys_found - killed):
        past.skip("the key in a process's environment", text.encode())
    return past, over(past, killed, system.wall())


def over(past: JournalContents, killed: set[str], now: float) -> list[KeptAttempt]:
    """Every recorded attempt, as it ended; those that were killed may be missing in the journal."""
    for key in sorted(killed):  # its keeper may have died before it could record it
        past.attempts.setdefault(key, [0, (0, 0), now, [], None])
    return [_attempt(key, record, now) for key, record in past.attempts.items()]


def boot_id() -> str:
    return system.read("/proc/sys/kernel/random/boot_id").decode().strip()


def _attempt(key: str, record: list[Any], now: float) -> KeptAttempt:
    pid, ticks, started_at, cgroups, recorded = record
    attempt = KeptAttempt(key, {"out": "", "err": "", "cgroups": cgroups})
    attempt.pid, attempt.born, attempt.started_at = pid, tuple(ticks), started_at
    if recorded is not None:
        attempt.exit = json.dumps(recorded)
    else:
        attempt.reason, attempt.ended_at = "unknown", now
        attempt.close(oom=False)
    return attempt


class Survivors:
    """The living processes of a keeper's attempts: those its journal names, and all others that can be identified."""

    def __init__(
        self, past: JournalContents, mark: Mark, spared: Collection[int] = (), knows_pids: bool = True
    ) -> None:
        running = [record for record in past.attempts.values() if record[4] is None]
        self._spared = {os.getpid(), *spared}
        self._mark = mark
        self._variable = os.fsencode(f"{KEEPER_VARIABLE}={mark.state_dir}")
        leaders = [record for record in running if record[0] > 1] if knows_pids else []
        self._sessions = {record[0] for record in leaders if _same_leader(record[0], record[1])}
        folders = {folder for folder in past.cgroups if cgroup.is_of_a_node(folder)}
        self._cgroups = [*(folders | folders_beside(folders) | cgroup.attempts_in(mark.bases))]

    def find(self) -> set[int]:
        """All of them; raises OSError where that is unknown."""
        found = self.in_cgroups()
        with os.scandir("/proc") as entries:
            found |= {int(entry.name) for entry in entries if entry.name.isdigit() and self.shows(entry.name)}
        return found - self._spared

    def in_cgroups(self) -> set[int]:
        return {pid for pid in cgroup.members(self._cgroups) if _is_alive(_stat(pid))} - self._spared

    def kill_cgroups(self) -> None:
        cgroup.kill(self._cgroups, self._spared)

    def kill(self) -> None:
        """Kill those that exist now; processes forked meanwhile are found the next time."""
        self.kill_cgroups()
        self.signal(signal.SIGKILL)

    def signal(self, *signums: int) -> None:
        signal_each(self.find, *signums)

    def shows(self, pid: int | str) -> bool:
        """Whether a living process is one of them by its session, mark or environment."""
        stat = _stat(pid)
        if not _is_alive(stat):
            return False
        if int(stat[3]) in self._sessions or self._mark.number_of(pid) is not None:
            return True
        return self._variable in system.read(f"/proc/{pid}/environ").split(b"\0")


def _same_leader(pid: int, ticks: list[int]) -> bool:
    """Whether the session `pid` is still the attempt's: a leader with that pid was born when it was.

    Where no such process is left, its pid cannot have been reused while its session has members.
    """
    stat = _stat(pid)
    return not stat or ticks[0] <= int(stat[19]) <= ticks[1]


def _stat(pid: int | str) -> list[str]:
    """/proc/PID/stat from the state on: [0] state, [3] session, [19] start in clock ticks since boot."""
    return system.read_surely(f"/proc/{pid}/stat").rpartition(b")")[2].decode().split()


def _is_alive(stat: list[str]) -> bool:
    return bool(stat) and stat[0] not in "ZX"


def _kill_all(survivors: Survivors) -> set[str]:
    """Kill them until none is left; returns the keys in their environments."""
    deadline = system.since_boot() + WAIT_S_MAX
    keys: set[str] = set()
    while pids := survivors.find():
        if system.since_boot() >= deadline:
            raise Alive(f"processes of an earlier keeper were killed and did not end: {sorted(pids)[:20]}")
        keys |= {key for pid in pids if (key := key_in_environment(pid))}
        handles = _handles(pids)
        survivors.kill()
        _wait_for(handles, deadline)
    return keys


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
        poll.poll(max(0.0, deadline - system.since_boot()) * 1000)
        os.close(handle)
