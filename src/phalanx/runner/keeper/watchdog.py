"""The watchdog: it ends what a keeper runs when the lease is over and the keeper did not do it.

It is a process beside the keeper, forked by it and in its own session, so that it outlives the keeper. They share a
page of memory with the end of the lease (in seconds since boot), and a socket that closes with the keeper; by it the
watchdog gets the pipes of output (`shared_output.py`). Three things can happen:

    the lease ends, and the keeper is frozen    what it ran is killed a moment after the keeper would have done so
    the keeper died                             what it ran gets SIGTERM at the lease's end, SIGKILL after the grace
    the keeper shut down in order               nothing is left to do

A keeper that comes after a dead one ends what that one ran itself (`recovery.py`), and then kills the watchdog of the
dead one, before it starts anything: no file in the folder, which tasks can write to, can switch a watchdog off. The
keeper's processes are found as `recovery.py` does: by the journal, and without it.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import select
import signal
import socket

from . import journal, log, lookup, system
from .recovery import Survivors
from .shared_output import SharedOutput, send_shared, send_unshared
from .table import FENCE_GRACE_S
from .tree import SLOT_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from .tree import Mark

LATE_S_MAX = 0.5  # how much later than the keeper would have; half the grace where that is less
NO_LEASE_S = 10.0  # how long a keeper may be dead that never had a lease
RESTART_S = 1.0  # from one start to the next, if it dies at once
LOOK_S = 1.0  # how often it looks at the lease
READY_S_MAX = 1.0
STUCK_S = 5.0  # a watchdog that has not finished one step of its killing by then hangs
AGAIN_S = 30.0  # how often it looks for more while the lease stays over
PAUSE_S_MIN, PAUSE_S_MAX = 0.02, 1.0  # between two rounds of killing
HALF_BORN = (
    SLOT_MAX  # a slot that no attempt gets: until a watchdog shows its title it is recognised by this mark
)
_FOREVER = float("inf")
_LEASE_UNTIL, _GRACE_S, _KILL_AT, _KILLED_AT, _KILLING, _LEFT = range(6)  # the numbers in the page


class Watchdog:
    """The keeper's side: the page, and the process that reads it."""

    def __init__(self, mark: Mark) -> None:
        self.pid = 0
        self._mark = mark
        self._page = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("d")
        self._page[_LEASE_UNTIL] = self._page[_KILL_AT] = _FOREVER
        self._page[_GRACE_S] = FENCE_GRACE_S
        self._alive: socket.socket | None = None
        self._outputs: dict[str, int] = {}  # what is shared with it
        self._started_at = -RESTART_S
        self._ended_at = 0.0  # when a stuck one was killed

    def ensure(self) -> None:
        """Start it, unless it runs. If that fails, or it dies at once, it is tried again a moment later."""
        if self.wait_s() != 0.0:
            return
        if self.pid:
            self._end_stuck()
            return
        self._started_at = system.since_boot()
        try:
            self._start()
        except OSError as error:
            log.write("no watchdog", f"cannot start the watchdog: {error}")

    def _start(self) -> None:
        self._let_go()
        self._alive, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            self._mark.put_on(HALF_BORN)
            try:
                self.pid = os.fork()
                if not self.pid:
                    _become_watchdog(self._page, theirs, self._mark)
            finally:
                self._mark.take_off()
        self._alive.settimeout(READY_S_MAX)
        with contextlib.suppress(OSError):
            self._alive.recv(1)  # it is running
            send_shared(self._alive, self._outputs)

    def share(self, outputs: dict[str, int]) -> None:
        """From now on it can read these pipes of output, by the logs that they are for, when the keeper is dead."""
        self._outputs.update(outputs)
        with contextlib.suppress(OSError):  # it was stopped, or is dead: the next one gets them
            if self._alive is not None:
                send_shared(self._alive, outputs)

    def unshare(self, path: str) -> None:
        with contextlib.suppress(OSError):
            if self._outputs.pop(path, None) is not None and self._alive is not None:
                send_unshared(self._alive, path)

    def _let_go(self) -> None:
        if self._alive is not None:
            self._alive.close()

    def wait_s(self) -> float | None:
        """How long to wait before it is started, or checked because it kills; None if it runs and does not."""
        if not self.pid:
            return max(0.0, self._started_at + RESTART_S - system.since_boot())
        if not (killing_since := self._page[_KILLING]):
            return None
        if self._is_stopped():
            return 0.0
        return max(0.0, max(killing_since, self._ended_at) + STUCK_S - system.since_boot())

    def _is_stopped(self) -> bool:
        """Whether it was stopped by SIGSTOP. That wakes us, as a child's end does."""
        return system.read(f"/proc/{self.pid}/stat").rpartition(b")")[2].split()[:1] == [b"T"]

    def _end_stuck(self) -> None:
        """It hangs, and nothing starts while it kills. Another is started when this one is reaped."""
        log.write(
            "stuck", "the watchdog was stopped or hangs while it kills; it is killed, and started again"
        )
        self._ended_at = system.since_boot()
        os.kill(self.pid, signal.SIGKILL)  # our child: its pid is not reused until it is reaped

    def reaped(self, pid: int) -> None:
        """A child of the keeper has ended. If it was the watchdog, another is started."""
        if pid == self.pid:
            log.write("watchdog", "the watchdog died and is started again")
            self.pid = 0
            self._page[_KILLING] = 0.0  # it may have died before it could clear it
            self._let_go()

    def renew(self, until: float, grace_s: float) -> None:
        """The lease runs until this instant, and by the end of the grace after it the keeper has killed everything."""
        self._page[_LEASE_UNTIL], self._page[_GRACE_S] = until, grace_s
        self._page[_KILL_AT] = until + grace_s + min(LATE_S_MAX, grace_s / 2)

    def is_killing(self) -> bool:
        """Whether it is killing now, and might kill a process that starts."""
        return self._page[_KILLING] != 0.0

    def has_killed(self, tick: int) -> bool:
        """Whether it killed everything that had been started by then."""
        return self._page[_KILLED_AT] >= tick

    def dismiss(self) -> None:
        """Nothing runs and nothing will: it ends with the keeper."""
        self._page[_LEFT] = 1.0


def _become_watchdog(page: memoryview[float], their_end: socket.socket, mark: Mark) -> NoReturn:
    """In the new process: close all that is the keeper's, and watch until there is no more to do."""
    code = 1
    try:
        keeper = os.getppid()
        system.go_first()
        signal.set_wakeup_fd(-1)
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(signum, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        os.chdir("/")
        alive = os.dup2(their_end.fileno(), 3, inheritable=False)
        os.closerange(4, os.sysconf("SC_OPEN_MAX"))  # locks and sockets of the keeper must end with it
        with contextlib.suppress(OSError):
            os.open(
                mark.state_dir, os.O_RDONLY | os.O_DIRECTORY
            )  # it is recognised by this where its title is cut
        _set_title(os.fsencode(lookup.WATCHDOG + mark.state_dir))
        mark.take_off()
        os.write(alive, b"1")
        system.allow_many_files()
        _Watch(page, mark, keeper).run(socket.socket(fileno=alive))
        code = 0
    except BaseException as error:
        log.write("failed", f"the watchdog failed: {error!r}")
    finally:
        os._exit(code)


class _Watch:
    """The watchdog's own process."""

    def __init__(self, page: memoryview[float], mark: Mark, keeper: int) -> None:
        self._page = page
        self._mark = mark
        self._keeper = keeper
        self._output = SharedOutput()
        self._acted_at = 0.0  # the end of lease that was handled; any other one is a renewed lease
        self._next_at = 0.0  # when to look again, while that lease stays over
        self._pause_s = PAUSE_S_MIN
        self._is_first = True  # the next round of killing is the first for this lease

    def run(self, alive: socket.socket) -> None:
        poll = select.poll()
        poll.register(alive, select.POLLIN)
        is_alive = True
        while is_alive:
            if poll.poll(1000 * min(LOOK_S, max(0.0, self._due_at() - system.since_boot()))):
                is_alive = self._output.receive(alive)
            if is_alive and system.since_boot() >= self._due_at():
                self._kill_for_the_frozen()
        while (
            os.getppid() == self._keeper
        ):  # until all its descriptors are closed, it looks like its own successor
            _pause(PAUSE_S_MIN)
        if not self._page[_LEFT]:
            self._end_for_the_dead()

    def _due_at(self) -> float:
        """What was done at the end of one lease delays nothing at the end of the next."""
        kill_at = self._page[_KILL_AT]
        return max(kill_at, self._next_at) if kill_at == self._acted_at else kill_at

    def _kill_for_the_frozen(self) -> None:
        """The keeper lives, and may resume at any time: it starts nothing while `is_killing`."""
        self._page[_KILLING] = system.since_boot()
        try:
            kill_at = self._page[_KILL_AT]
            if system.since_boot() < kill_at:
                return  # the lease was renewed
            if kill_at != self._acted_at:
                self._acted_at, self._pause_s, self._is_first = kill_at, PAUSE_S_MIN, True
            if found := self._try_kill():
                log.write(
                    "killed", "watchdog: the lease is over and the keeper did not act: killed what was left"
                )
            self._next_at = system.since_boot() + self._next_pause_s(found)
        finally:
            self._page[_KILLING] = 0.0

    def _end_for_the_dead(self) -> None:
        lease_until = lease_end_of_the_dead(self._page[_LEASE_UNTIL], system.since_boot())
        left_s = max(0.0, lease_until - system.since_boot())
        log.write("died", f"watchdog: the keeper died; what it ran is ended in {left_s:.1f} s")
        self._wait_until(lease_until)
        self._ask()
        self._wait_until(lease_until + self._page[_GRACE_S])
        self._is_first = True
        while self._try_kill():
            self._output.read_for(self._next_pause_s(True))
        self._output.read_for(0.0)

    def _next_pause_s(self, found: bool) -> float:
        """Longer and longer pauses, if some process does not die."""
        pause_s = self._pause_s
        self._pause_s = min(PAUSE_S_MAX, 2 * pause_s) if found else PAUSE_S_MIN
        return pause_s if found else AGAIN_S

    def _wait_until(self, instant: float) -> None:
        while (left_s := instant - system.since_boot()) > 0:
            self._output.read_for(min(LOOK_S, left_s))

    def _ask(self) -> None:
        """Send SIGTERM to all, once; if that fails, they are killed after the grace as all others are."""
        try:
            self._survivors(self._journal()).signal(signal.SIGTERM, signal.SIGCONT)
        except OSError as error:
            log.write("ask", f"watchdog: cannot send SIGTERM to what is left: {error}")

    def _try_kill(self) -> bool:
        """Kill all that are left; False if none is. True also where that is unknown: look again."""
        try:
            return self._kill()
        except OSError as error:
            log.write("kill", f"watchdog: cannot look for what is left: {error}")
            return True

    def _kill(self) -> bool:
        """One round, the slowest last: cgroups are few, processes may be many, the journal may be anything.

        If the first round finds any process it skips the journal, which the next one reads a moment later.
        """
        shown = self._survivors(journal.JournalContents())
        is_first, self._is_first = self._is_first, False
        found = bool(shown.in_cgroups())
        if found:
            self._begin_step()
            shown.kill_cgroups()
        if is_first and self._kill_found(shown):
            return True
        return self._kill_found(self._survivors(self._journal())) or found

    def _kill_found(self, survivors: Survivors) -> bool:
        if not survivors.find():
            return False
        self._begin_step()
        survivors.kill()
        return True

    def _begin_step(self) -> None:
        """Record for a living keeper that everything started by now is killed, and that we are not stuck."""
        self._page[_KILLED_AT] = system.tick()
        if self._page[_KILLING]:
            self._page[_KILLING] = system.since_boot()

    def _journal(self) -> journal.JournalContents:
        return journal.read(f"{self._mark.state_dir}/{journal.NAME}")

    def _survivors(self, past: journal.JournalContents) -> Survivors:
        return Survivors(past, self._mark, spared={self._keeper, os.getpid()})


def lease_end_of_the_dead(lease_until: float, now: float) -> float:
    """When the tasks of a keeper that died now are ended: with its lease, or soon if it never had one."""
    return lease_until if lease_until < _FOREVER else now + NO_LEASE_S


def _pause(seconds: float) -> None:
    select.select([], [], [], seconds)


def _set_title(title: bytes) -> None:
    """Show in `ps` what this process is, instead of the keeper's command line."""
    words = system.read("/proc/self/stat").rpartition(b")")[2].split()
    begin, end = int(words[45]), int(words[46])  # where the kernel finds the command line
    if 0 < begin < end:
        text = title[: end - begin - 1]
        ctypes.memmove(begin, text + bytes(end - begin - len(text)), end - begin)
