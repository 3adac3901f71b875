"""What the keeper uses of its system: the clocks, small files, signals to processes, and its own standing among them.

The clocks are read here and nowhere else in the keeper. Small files of /proc and /sys are read whole, and one that
cannot be read is empty. The keeper's own files are in its state folder, which tasks can write to: something else under
the name of a file of ours is set aside, so that nothing in the folder can block us (a FIFO), lead us elsewhere (a
link) or keep us from starting (a folder).
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import stat
import sys
import time
from functools import partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

ASIDE = ".set-aside"
RENAMED = "{} is not a regular file, and was set aside\n"
renamed: list[str] = []  # what was set aside so far, to be logged again when there is a log
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
NICENESS = -10
_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PR_SET_CHILD_SUBREAPER = 36


def wall() -> float:
    """Seconds since 1970, for people and reports."""
    return time.time()


# Seconds since boot, including the machine's sleep: a lease must not outlive one. Read ten times for every task.
since_boot = partial(time.clock_gettime, time.CLOCK_BOOTTIME)


def tick() -> int:
    """Now, as /proc/PID/stat counts the start of a process: saves reading that file for each attempt."""
    return int(since_boot() * _TICKS_PER_SECOND)


def read(path: str, bytes_max: int = 16 << 20) -> bytes:
    """The file's content, or that much of it; empty when it cannot be read, because its process is gone."""
    try:
        return _read(path, bytes_max)
    except OSError:
        return b""


def read_surely(path: str, bytes_max: int = 16 << 20) -> bytes:
    """The same, but raises OSError where only descriptors or memory are lacking, so the process may exist."""
    try:
        return _read(path, bytes_max)
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise
        return b""


def _read(path: str, bytes_max: int) -> bytes:
    fd = os.open(path, os.O_RDONLY | _SAFE)
    parts: list[bytes] = []
    size = 0
    try:
        while size < bytes_max and (part := os.read(fd, 65536)):
            parts.append(part)
            size += len(part)
    finally:
        os.close(fd)
    return b"".join(parts)


def open_own(path: str, flags: int) -> int:
    """Open a file of ours, created if needed; raises OSError."""
    set_aside(path, unless=stat.S_ISREG)
    fd = os.open(path, flags | os.O_CREAT | _SAFE, 0o600)
    if stat.S_ISFIFO(os.fstat(fd).st_mode):  # it was created just now
        os.close(fd)
        raise OSError(f"{path} is a FIFO")
    return fd


def set_aside(path: str, unless: Callable[[int], bool]) -> None:
    """Rename what is there, unless it is of the right kind or a device, which no task can make; raises OSError."""
    try:
        mode = os.lstat(path).st_mode
        if unless(mode) or is_device(mode):
            return
    except FileNotFoundError:
        return
    if path not in renamed:  # tasks can do it again and again
        renamed.append(path)
        sys.stderr.write(RENAMED.format(path))
    try:
        os.rename(path, path + ASIDE)  # noqa: PTH104 (the keeper imports no pathlib)
    except OSError:  # that name is taken by something that cannot be replaced
        os.rename(path, f"{path}{ASIDE}.{tick()}")  # noqa: PTH104


def is_device(mode: int) -> bool:
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def write(path: str, text: bytes) -> None:
    """Write to a control file; raises OSError, also where it is a FIFO that would block."""
    fd = os.open(path, os.O_WRONLY | _SAFE)
    try:
        os.write(fd, text)
    finally:
        os.close(fd)


def parent(path: str) -> str:
    return path.rpartition("/")[0]


def signal_each(find: Callable[[], set[int]], *signums: int) -> None:
    """Signal the processes found, and no other that got one's pid meanwhile.

    A handle is opened for each, then they are looked for again: a process found twice is the one of the handle.
    """
    handles = {pid: fd for pid in find() if (fd := _open_process(pid)) is not None}
    again = find() if handles else set()
    for pid, fd in handles.items():
        for signum in signums if pid in again else ():
            _send_by_handle(pid, fd, signum)
        if fd >= 0:
            os.close(fd)


def _open_process(pid: int) -> int | None:
    """A handle on the process: None when it is gone, -1 where the kernel (before 5.3) has no handles."""
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        return -1 if error.errno == errno.ENOSYS else None


def _send_by_handle(pid: int, fd: int, signum: int) -> None:
    try:
        if fd >= 0:
            signal.pidfd_send_signal(fd, signum)
        else:
            os.kill(pid, signum)
    except OSError:  # it is gone, or not ours to signal
        pass


def become_subreaper() -> None:
    """Orphans of the attempts become the keeper's children instead of init's."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def go_first() -> None:
    """Raise our own scheduling priority, as far as allowed; processes started from now on do not have it.

    What the keeper and its watchdog bound (logs, leases, time limits) must not wait behind the tasks they bound.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError:
        try:
            os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
            os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
        except OSError:
            return  # an ordinary account may not; its logs may outgrow their limit by more while the node is busy


def go_behind() -> None:
    """Take the raised priority back, for a moment."""
    try:
        os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
    except OSError:
        return


def allow_many_files() -> None:
    """Raise our own limit of open files as far as allowed. What is started from now on would have it, too."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
