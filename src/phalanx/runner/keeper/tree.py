"""All processes of an attempt: how they are recognised, signalled, and known to be gone.

The leader starts its own session, so most of its tree is one process group. Processes that escaped with setsid are
found by parentage; and since the keeper is a subreaper, an escaped process whose parents are gone becomes the keeper's
child, recognised by its mark or by the key in its environment. Without a cgroup, a process that escaped, cleared its
environment *and* removed the mark cannot be assigned, and is killed when no attempt is left.

The mark is an unusual resource limit, inherited through fork and exec. A process can leave a session, clear its
environment and outlive its parent, but to get rid of a soft limit it has to ask for that. RLIMIT_RTTIME is used
because nothing else uses it so: it bounds how long a real-time process may run without a pause, in microseconds, and
ours is more than 100,000 years. The number holds the state folder of the keeper (40 bits) and its slot (20 bits).

The runner gives an attempt's devices to the next one as soon as it receives `ended`, so what is left of a tree when
its leader has ended is killed and waited for first. The usual case, a tree that is gone with its leader, costs three
system calls.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal

from . import cgroup, entry, system
from .attempt import is_key
from .spawn import KEY_VARIABLE
from .system import signal_each

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from .attempt import KeptAttempt
    from .cgroup import AttemptSlots
    from .files import LeftFiles
    from .logs import Trimmer
    from .table import KeeperTable
    from .watchdog import Watchdog

_OURS = 1 << 62
_SLOT_BITS = 20
SLOT_MAX = (1 << _SLOT_BITS) - 1
STDERR_TAIL_BYTES = 2048
SETTLE_S = 0.02  # not all members of a dying tree are the keeper's children: it looks again after this
DOUBT_S_MAX = 0.2
_LINE = b"Max realtime timeout"
_KEY = f"{KEY_VARIABLE}=".encode()


class Mark:
    """The mark of one keeper: made of its folder, so that the next keeper of the folder has the same."""

    def __init__(self, state_dir: str, bases: Sequence[str] = ()) -> None:
        self.state_dir = state_dir
        self.bases = (
            bases  # the node's folders for cgroups, from its runner: all processes in them are of this keeper
        )
        found = os.stat(state_dir)  # noqa: PTH116 (the keeper imports no pathlib)
        self._high = _OURS >> _SLOT_BITS | (found.st_ino ^ found.st_dev << 28) & (1 << 40) - 1
        self._usual = resource.getrlimit(resource.RLIMIT_RTTIME)
        self._allowed = self._usual[1] == resource.RLIM_INFINITY

    def put_on(self, number: int) -> None:
        """From now on our children get the mark of this slot."""
        if self._allowed and number <= SLOT_MAX:
            value = self._high << _SLOT_BITS | number
            resource.setrlimit(resource.RLIMIT_RTTIME, (value, self._usual[1]))

    def take_off(self) -> None:
        resource.setrlimit(resource.RLIMIT_RTTIME, self._usual)

    def number_of(self, pid: int | str) -> int | None:
        """The slot whose mark a process carries; None if it has none of this folder's."""
        for line in system.read(f"/proc/{pid}/limits").splitlines():
            if line.startswith(_LINE):
                soft = line[len(_LINE) :].split()[0]
                value = int(soft) if soft.isdigit() else 0
                return value & SLOT_MAX if value >> _SLOT_BITS == self._high else None
        return None


class Orphans:
    """Children of the keeper that lead no attempt: some attempt's tree started them."""

    def __init__(self, watchdog: Watchdog, slots: AttemptSlots) -> None:
        self._watchdog = watchdog
        self._slots = slots
        self._children = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY)
        self._keys: dict[int, str] = {}

    def find(self, leaders: Container[int]) -> dict[int, str | None]:
        """Each orphan with its attempt's key; "" when it has none, None when it is not known yet."""
        orphans = [pid for pid in self._pids() if pid not in leaders and pid != self._watchdog.pid]
        return {pid: self._key(pid) for pid in orphans} if orphans else {}

    def reaped(self, pid: int) -> str | None:
        """It is gone; the key of its attempt, if that was found out."""
        return self._keys.pop(pid, None)

    def _pids(self) -> list[int]:
        text = part = os.pread(self._children, 4096, 0)
        while len(part) > 2048:  # the kernel fills a page before it gives less
            part = os.pread(self._children, 4096, len(text))
            text += part
        return [int(pid) for pid in text.split()]

    def _key(self, pid: int) -> str | None:
        key = self._keys.get(pid)
        if key is None and (key := self._marked(pid) or attempt_key(pid)):
            self._keys[pid] = key  # an orphan keeps its pid until the keeper reaps it
        return key

    def _marked(self, pid: int) -> str:
        number = self._slots.mark.number_of(pid)
        return "" if number is None else self._slots.key_of(number)


def attempt_key(pid: int) -> str | None:
    """The attempt a process belongs to by its environment; None while that is empty, as during exec.

    A process can write anything there: what cannot be a key is not taken for one.
    """
    key = key_in_environment(pid)
    return key if key is None or is_key(key) else ""


def key_in_environment(pid: int) -> str | None:
    """The unchecked key in a process's environment."""
    environment = system.read(f"/proc/{pid}/environ")
    if not environment:
        return None
    for variable in environment.split(b"\0"):
        if variable.startswith(_KEY):
            return variable[len(_KEY) :].decode("utf-8", "replace")
    return ""


def send(attempt: KeptAttempt, orphans: list[int], *signums: int) -> None:
    """Send signals to everything that belongs to the attempt."""
    for signum in signums:
        send_group(attempt.pid, signum)
    if signal.SIGKILL in signums and attempt.folders and cgroup.kill(attempt.folders):
        return
    signal_each(lambda: _outside_group(attempt, orphans), *signums)


def kill_cgroups(folders: list[str], left: set[int]) -> None:
    if not cgroup.kill(folders):
        signal_each(lambda: left & cgroup.known_members(folders), signal.SIGKILL)


def send_group(pid: int, signum: int) -> bool:
    """Signal a process group; False when it is empty."""
    try:
        os.killpg(pid, signum)
    except ProcessLookupError:
        return False
    except PermissionError:  # a process in it changed its user: alive, and not ours to signal
        return True
    return True


def send_one(pid: int, signum: int) -> None:
    """Signal a child of the keeper, whose pid is not reused until the keeper reaps it."""
    with contextlib.suppress(PermissionError):
        os.kill(pid, signum)


def _outside_group(attempt: KeptAttempt, orphans: list[int]) -> set[int]:
    found = descendants([attempt.pid, *orphans]) | cgroup.known_members(attempt.folders)
    return {pid for pid in found if _group(pid) not in (attempt.pid, None)}


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None


def descendants(roots: list[int]) -> set[int]:
    """These processes and all their living descendants."""
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += _children(pid)
    return found


def _children(pid: int) -> list[int]:
    try:
        with os.scandir(f"/proc/{pid}/task") as threads:
            paths = [f"{thread.path}/children" for thread in threads]
    except OSError:  # it ended while we looked
        return []
    return [int(child) for path in paths for child in system.read(path).split()]


class ProcessTable:
    """The attempts by the pid of their leader while that is alive, and those whose tree is dying."""

    def __init__(self, watchdog: Watchdog, slots: AttemptSlots) -> None:
        self.watchdog = watchdog
        self.slots = slots
        self.leaders: dict[int, KeptAttempt] = {}  # until the leader is reaped
        self.ending: list[KeptAttempt] = []  # the leader is gone, some of its tree may not be
        self.orphans = Orphans(watchdog, slots)

    def signal(self, attempt: KeptAttempt, *signums: int) -> None:
        """Send signals, in this order, to everything that belongs to a running attempt."""
        orphans = self.orphans.find(self.leaders)
        send(attempt, [pid for pid, key in orphans.items() if key == attempt.key], *signums)


class KeeperEndings:
    """Reaps children and finds which attempts are over."""

    def __init__(
        self,
        table: KeeperTable,
        processes: ProcessTable,
        trimmer: Trimmer,
        files: LeftFiles,
        over: Callable[[KeptAttempt], None],
        ended: Callable[[KeptAttempt], None],
    ) -> None:
        self._table = table
        self._processes = processes
        self._trimmer = trimmer
        self._files = files
        self._over = over  # nothing of it is left: takes what it wrote last
        self._ended = ended  # its exit is known

    def reap(self) -> None:
        """Reap every child that ended: leaders of attempts, and orphans."""
        while (pid := _ended_child()) is not None:
            attempt = self._processes.leaders.pop(pid, None)
            if attempt is None:
                _, _, used = os.wait4(pid, 0)
                if (owner := self._owner(self._processes.orphans.reaped(pid))) is not None:
                    _count(owner, used)
                self._processes.watchdog.reaped(pid)
            else:
                # Until it is reaped its pid is not reused: that is the moment to signal the group by it.
                send_group(pid, signal.SIGKILL)
                _, status, used = os.wait4(pid, 0)
                _note(attempt, status)
                _count(attempt, used)
                if attempt.signal == signal.SIGKILL and self._was_fenced(attempt):
                    attempt.reason = "fenced"
                self._table.leader_ended(attempt)
                self._processes.ending.append(attempt)

    def _owner(self, key: str | None) -> KeptAttempt | None:
        """The attempt of an orphan, while its end is not final."""
        attempt = None if key is None else self._table.attempts.get(key)
        return attempt if attempt is not None and attempt.exit is None else None

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
                send_one(pid, signal.SIGKILL)

    def _is_gone(self, attempt: KeptAttempt, orphans: dict[int, str | None]) -> bool:
        leaders = self._processes.leaders
        # The pid may lead a newer attempt by now; that can only be when the old group is gone.
        if attempt.pid not in leaders and send_group(attempt.pid, 0):
            return False
        try:
            is_left = bool(attempt.cgroups) and not entry.is_deserted(attempt.cgroups)
            left = cgroup.members(attempt.cgroups) if is_left else None
        except OSError:  # unknown for now
            return False
        if left:
            kill_cgroups(attempt.cgroups, left)
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
            attempt.doubted_at = system.since_boot()
        return not in_doubt or system.since_boot() - (attempt.doubted_at or 0.0) > DOUBT_S_MAX

    def _finish(self, attempt: KeptAttempt) -> None:
        self._over(attempt)
        self._trimmer.trim_at_end(attempt)
        kills = refused = 0
        if attempt.cgroups:
            kills, refused = entry.counted_since(attempt.counted_before, attempt.cgroups)
        tail = "" if attempt.code == 0 else _tail(attempt.err)
        attempt.files = self._files.left(attempt)
        attempt.close(kills > 0, tail, refused)
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
    attempt.ended_at = system.wall()
    if os.WIFSIGNALED(status):
        attempt.signal = os.WTERMSIG(status)
    else:
        attempt.code = os.WEXITSTATUS(status)


def _count(attempt: KeptAttempt, used: resource.struct_rusage) -> None:
    """A process of it was reaped: what that and the children it had waited for used."""
    sums = attempt.used
    sums[0] = round(sums[0] + used.ru_utime + used.ru_stime, 6)
    sums[1] = max(sums[1], used.ru_maxrss * 1024)
    sums[2] += used.ru_inblock * 512  # as /proc/PID/io counts: what came from and went to storage
    sums[3] += used.ru_oublock * 512


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
