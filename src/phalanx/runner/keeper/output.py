"""Output of attempts: it comes through pipes, which the keeper reads, into their logs, which the keeper writes.

So /dev/stdout and /dev/stderr of a task are what they are on a terminal and in a container: what opens them once more
(`> /dev/stderr`, `tee /dev/stderr`) writes behind what is there. If they were the logs themselves, it would empty them.
With one log, both streams are one pipe: the order is that of the writes.

The pipe of a new attempt is not listened to at once: most attempts end before, and one read at their end has all that
they wrote. After each read a pipe rests for a moment, so that a task that writes line by line does not wake the keeper
for each line, and one that writes without end leaves it time for the others. One that was found full is made larger.
Pipes of attempts that last are shared with the watchdog, which reads them if the keeper dies.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import select
import stat
from collections import deque

from . import log
from .programs import EXHAUSTED, SpawnRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .attempt import KeptAttempt
    from .watchdog import Watchdog

YOUNG_S = 0.02  # before it is listened to
SHARED_AFTER_S = 0.25  # before it is shared
REST_S = 0.003
PACE_BYTES_PER_S = 512 << 20  # of all pipes together, so that copying takes a fraction of a core
PIECE_BYTES = 1 << 20  # of one pipe at a time, and what a large one holds
_USUAL_BYTES = 64 << 10  # what a pipe holds when it is made
_ENDED_READS_MAX = 4  # no process of it is left, but one that escaped may write on
_LISTEN = select.EPOLLIN | select.EPOLLONESHOT
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEVER = float("inf")


def open_outputs(attempt: KeptAttempt) -> list[int]:
    """Make a pipe for each of its logs; the write ends, which are for the task."""
    writers: list[int] = []
    try:
        for _ in attempt.logs:
            reader, writer = os.pipe2(os.O_CLOEXEC)
            attempt.outputs.append(reader)
            writers.append(writer)
            os.set_blocking(reader, False)
            if attempt.account is not None:  # it may open them once more, by /dev/stdout
                os.fchown(writer, attempt.account.uid, attempt.account.gid)
    except OSError as error:
        for fd in writers:
            os.close(fd)
        close_outputs(attempt)
        code = "exhausted" if error.errno in EXHAUSTED else "spawn_failed"
        raise SpawnRefused(code, f"cannot make the pipes of its output: {error.strerror}") from None
    return writers


def close_outputs(attempt: KeptAttempt) -> None:
    for fd in attempt.outputs:
        if fd >= 0:
            os.close(fd)
    attempt.outputs.clear()


class OutputReader:
    """Reads the pipes of running attempts, and writes their logs."""

    def __init__(self, poll: select.epoll, watchdog: Watchdog, wrote: Callable[[str], None]) -> None:
        self._poll = poll
        self._watchdog = watchdog
        self._wrote = wrote  # is told the key of an attempt whose log grew
        self._writer = LogWriter()
        self._young: deque[tuple[float, KeptAttempt]] = deque()
        self._listened: dict[int, tuple[KeptAttempt, int]] = {}  # descriptor → whose, and which of its logs
        self._resting: list[int] = []
        self._rested_at = _NEVER
        self._unshared: dict[str, int] = {}  # log → descriptor
        self._share_at = _NEVER

    @property
    def next_at(self) -> float:
        """When something is due."""
        while self._young and not self._young[0][1].outputs:  # it has ended
            self._young.popleft()
        young_at = self._young[0][0] if self._young else _NEVER
        return min(young_at, self._rested_at, self._share_at)

    def started(self, attempt: KeptAttempt, at: float) -> None:
        self._young.append((at + YOUNG_S, attempt))

    def due(self, at: float) -> None:
        """Listen to what is old enough, and to what has rested."""
        while self._young and self._young[0][0] <= at:
            attempt = self._young.popleft()[1]
            for index, fd in enumerate(attempt.outputs):
                self._listened[fd] = attempt, index
                self._poll.register(fd, _LISTEN)
                self._share_at = min(self._share_at, at + SHARED_AFTER_S)
                self._unshared[attempt.logs[index]] = fd
        if self._rested_at <= at:
            for fd in self._resting:
                if fd in self._listened:
                    self._poll.modify(fd, _LISTEN)
            self._resting.clear()
            self._rested_at = _NEVER
        if self._share_at <= at:
            self._watchdog.share(self._unshared)
            self._unshared = {}
            self._share_at = _NEVER

    def hear(self, fd: int, at: float) -> None:
        """There is something to be read, or its last writer is gone."""
        if fd not in self._listened:
            return
        attempt, index = self._listened[fd]
        size = self._take(attempt, index, fd)
        if size == 0:
            self._forget(attempt, index, fd)
            os.close(fd)
            attempt.outputs[index] = -1
            return
        if size == _USUAL_BYTES:
            _enlarge(fd)
        if not self._resting:
            self._rested_at = at + REST_S
        self._rested_at += (size or 0) / PACE_BYTES_PER_S
        self._resting.append(fd)

    def ended(self, attempt: KeptAttempt) -> None:
        """Nothing of it runs any more: take what is left in its pipes."""
        for index, fd in enumerate(attempt.outputs):
            if fd >= 0:
                for _ in range(_ENDED_READS_MAX):
                    if not self._take(attempt, index, fd):
                        break
                self._forget(attempt, index, fd)
        close_outputs(attempt)

    def _take(self, attempt: KeptAttempt, index: int, fd: int) -> int | None:
        """Move what there is now into its log: how much; 0 if nobody can write to it any more, None if it is empty."""
        size = self._writer.take(fd, attempt.logs[index])
        if size:
            self._wrote(attempt.key)
        return size

    def _forget(self, attempt: KeptAttempt, index: int, fd: int) -> None:
        if self._listened.pop(fd, None) is None:
            return
        self._poll.unregister(fd)  # closing it is not enough where it is shared
        path = attempt.logs[index]
        self._writer.forget(path)
        if self._unshared.pop(path, None) is None:
            self._watchdog.unshare(path)


class LogWriter:
    """Moves what is in a pipe to the end of a log."""

    def __init__(self) -> None:
        self._room = memoryview(mmap.mmap(-1, PIECE_BYTES))  # takes memory when it is used
        self._lost: dict[str, tuple[int, bytes]] = {}  # by log: how many bytes could not be written, and why

    def take(self, fd: int, path: str) -> int | None:
        """How many bytes were in the pipe; 0 if nobody can write to it any more, None if there is nothing now."""
        try:
            size = os.readv(fd, [self._room])
        except BlockingIOError:
            return None
        if size:
            self._write(path, self._room[:size])
        return size

    def forget(self, path: str) -> None:
        self._lost.pop(path, None)

    def _write(self, path: str, rest: memoryview) -> None:
        """Without room the task goes on: what it wrote is missing in its log, which says so when there is room."""
        try:
            file = _open(path)
            try:
                if (lost := self._lost.get(path)) is not None:
                    os.write(file, b"\n[phalanx: %d bytes of output are missing here: %s]\n" % lost)
                    del self._lost[path]
                while rest:
                    rest = rest[os.write(file, rest) :]
            finally:
                os.close(file)
        except OSError as error:
            why = error.strerror or str(error)
            self._lost[path] = self._lost.get(path, (0, b""))[0] + len(rest), why.encode()
            log.write("output", f"cannot write {path}: {why}")


def _open(path: str) -> int:
    """Open a log, which its task may have removed or replaced; raises OSError."""
    file = os.open(path, _FLAGS, 0o600)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(f"{path} is not a regular file")
    return file


def _enlarge(fd: int) -> None:
    try:
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIECE_BYTES)
    except OSError:  # more than the account may have in all
        return
