"""One part of the cluster as a child process: started by a fork, its words kept in a file.

The parent imports everything before it forks, so children start at once and share its memory. When a child
is started again, and how it is stopped, is `supervisor.py`'s business.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

LOG_BYTES_MAX = 16 << 20
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Child:
    """A name, the work it does, and its process while it has one."""

    def __init__(self, name: str, log: Path, work: Callable[[], int], lock: int) -> None:
        self.name = name
        self.log = log
        self.pid: int | None = None
        self._work = work
        self._lock = lock  # the parent's alone: a child must not hold the state folder

    def start(self) -> None:
        _make_room(self.log)
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _become(parent, self.log, self._work, self._lock)

    def reap(self) -> int | None:
        """The exit code, once, if it has ended: −N for signal N."""
        if self.pid is None:
            return None
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            return None
        self.pid = None
        return os.waitstatus_to_exitcode(status)

    def send(self, number: signal.Signals) -> None:
        """A signal. It cannot reach a stranger: the pid is ours until we have reaped it."""
        if self.pid is not None:
            os.kill(self.pid, number)

    def last_words(self) -> str:
        """The end of its log, for an error message."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - 2000))
                lines = file.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return ""
        return "\n".join(lines[-5:])


def _become(parent: int, log: Path, work: Callable[[], int], lock: int) -> None:
    """The child's life. It never returns into the parent's code."""
    code = 1
    try:
        _settle(parent, log, lock)
        code = work()
    finally:
        if sys.exc_info()[0] is not None:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _settle(parent: int, log: Path, lock: int) -> None:
    # If the supervisor is killed, so are we, as in a crash: tasks go on, and the next start takes them over.
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    os.setpgid(0, 0)  # Ctrl-C is for the supervisor, which stops us in order.
    os.close(lock)
    redirect(log)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


@contextmanager
def no_threads() -> Iterator[None]:
    """For imports before a fork: numpy's BLAS starts threads when it is loaded, and threads do not survive.

    Only C's copy of the environment is changed, for a moment, so that no task inherits it.
    """
    _libc.setenv(b"OPENBLAS_NUM_THREADS", b"1", 1)
    try:
        yield
    finally:
        _libc.unsetenv(b"OPENBLAS_NUM_THREADS")


def redirect(log: Path) -> None:
    """Standard output and error into a file, standard input from nowhere."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    into = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(nothing, 0)
    os.dup2(into, 1)
    os.dup2(into, 2)
    os.close(nothing)
    os.close(into)


def _make_room(log: Path) -> None:
    if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
        log.replace(log.with_suffix(".log.1"))
