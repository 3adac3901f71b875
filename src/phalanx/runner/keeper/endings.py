"""From the end of an attempt's first process to the report that nothing is left of it: exit, OOM, tail of stderr.

The runner gives an attempt's devices to the next one as soon as it receives `ended`, so the remaining tree is killed
and waited for first. The usual case, a tree that is gone with its leader, costs three system calls.
"""

from __future__ import annotations

import os
import signal

from . import clock, tree
from .cgroup import members, oom_kills

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .attempt import KeptAttempt
    from .logs import Trimmer
    from .table import KeeperTable
    from .tree import ProcessTable

STDERR_TAIL_BYTES = 2048
SETTLE_S = 0.02  # not all members of a dying tree are the keeper's children: it looks again after this
DOUBT_S_MAX = 0.2


class KeeperEndings:
    """Reaps children and finds which attempts are over."""

    def __init__(
        self,
        table: KeeperTable,
        processes: ProcessTable,
        trimmer: Trimmer,
        ended: Callable[[KeptAttempt], None],
    ) -> None:
        self._table = table
        self._processes = processes
        self._trimmer = trimmer
        self._ended = ended

    def reap(self) -> None:
        """Reap every child that ended: leaders of attempts, and orphans."""
        while (pid := _ended_child()) is not None:
            attempt = self._processes.leaders.pop(pid, None)
            if attempt is None:
                os.waitpid(pid, 0)
                self._processes.orphans.reaped(pid)
                self._processes.watchdog.reaped(pid)
            else:
                # Until it is reaped its pid is not reused: that is the moment to signal the group by it.
                tree.send_group(pid, signal.SIGKILL)
                _note(attempt, os.waitpid(pid, 0)[1])
                if attempt.signal == signal.SIGKILL and self._was_fenced(attempt):
                    attempt.reason = "fenced"
                self._table.leader_ended(attempt)
                self._processes.ending.append(attempt)

    def _was_fenced(self, attempt: KeptAttempt) -> bool:
        """Whether the watchdog killed it, at the end of a lease during which this process was stopped."""
        unasked = attempt.reason is None and attempt.kill_at is None
        return unasked and self._processes.watchdog.has_killed(attempt.born[1])

    def settle(self) -> None:
        """Report the attempts of which nothing is left, and kill what is left of the others."""
        ending, self._processes.ending = self._processes.ending, []
        orphans = self._processes.orphans.find(self._processes.leaders)
        if orphans:
            self._kill_strays(orphans)
        for attempt in ending:
            if self._is_gone(attempt, orphans):
                self._finish(attempt)
            else:
                self._processes.ending.append(attempt)

    def _kill_strays(self, orphans: dict[int, str | None]) -> None:
        """Kill the orphans of attempts that are over; also unknown ones, when nothing runs that could own them."""
        for pid, key in orphans.items():
            if not self._processes.leaders or (key and key not in self._table.running):
                tree.send_one(pid, signal.SIGKILL)

    def _is_gone(self, attempt: KeptAttempt, orphans: dict[int, str | None]) -> bool:
        leaders = self._processes.leaders
        # The pid may lead a newer attempt by now; that can only be when the old group is gone.
        if attempt.pid not in leaders and tree.send_group(attempt.pid, 0):
            return False
        try:
            left = members(attempt.cgroups) if attempt.cgroups else None
        except OSError:  # unknown for now
            return False
        if left:
            tree.kill_cgroups(attempt.cgroups, left)
            return False
        if attempt.slot_folder and not (slot := self._processes.slots[attempt.slot]).is_empty():
            slot.kill()
            return False
        if not orphans:
            return True
        keys = orphans.values()
        if attempt.key in keys:
            return False
        if attempt.folders:
            return True
        # A process in the middle of an exec shows no environment yet, and unknown ones were killed just now: look
        # again.
        in_doubt = None in keys or ("" in keys and not leaders)
        if in_doubt and attempt.doubted_at is None:
            attempt.doubted_at = clock.since_boot()
        return not in_doubt or clock.since_boot() - (attempt.doubted_at or 0.0) > DOUBT_S_MAX

    def _finish(self, attempt: KeptAttempt) -> None:
        self._trimmer.trim_at_end(attempt)
        oom = bool(attempt.cgroups) and oom_kills(attempt.cgroups) > attempt.oom_kills_before
        attempt.close(oom, "" if attempt.code == 0 else _tail(attempt.err))
        self._processes.slots.give_back(attempt)
        self._ended(attempt)


def _ended_child() -> int | None:
    """A child that has ended and waits to be reaped."""
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return found.si_pid if found is not None else None


def _note(attempt: KeptAttempt, status: int) -> None:
    attempt.ended_at = clock.wall()
    if os.WIFSIGNALED(status):
        attempt.signal = os.WTERMSIG(status)
    else:
        attempt.code = os.WEXITSTATUS(status)


def _tail(path: str) -> str:
    """The last bytes of a log as text; empty when it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        size = os.fstat(fd).st_size
        return os.pread(fd, STDERR_TAIL_BYTES, max(0, size - STDERR_TAIL_BYTES)).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(fd)
