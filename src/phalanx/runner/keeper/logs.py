"""The logs of running attempts: when to look at them, and what to cut out of one that outgrew its limit.

A new log is not looked at before it could have reached its limit. One that is being written to is looked at every few
milliseconds; one that has not grown since the last look costs nothing until the kernel reports that it is written to
again (inotify). What was seen is noted (`log_times.py`), so that it is known later when each part was written.

The middle of a log that grew too large is given back to the filesystem: the first quarter of the limit is kept, since
a task says there what it is, and the newest half. Punching a hole keeps every offset where it was, so readers that
follow the log are not disturbed; they see a gap (`runner/logs.py`). Between two looks a log may outgrow its limit by
what is written in that time.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import struct

from . import system
from .log_times import GrowthTimes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .attempt import KeptAttempt

GROWTH_BYTES_PER_S = 8 << 30  # no task writes faster than memory is copied
_KEEP_SIZE_AND_PUNCH = 0x01 | 0x02
_BLOCK = 4096
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.ENODEV)
LOOK_S, FAST_LOOK_S = 0.003, 0.001
UNBOUNDED_LOOK_S = 0.02  # when a log without a limit is looked at first
FAST_BYTES = 2 << 20  # a log that grew by so much between two looks is looked at sooner
_IN_MODIFY, _IN_ONESHOT = 0x2, 0x80000000
_EVENT = struct.Struct("iIII")
_READ_BYTES = 64 << 10


class Trimmer:
    """Keeps logs within their limit, until a filesystem cannot."""

    def __init__(self) -> None:
        self.supported = True
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)

    def trim_at_end(self, attempt: KeptAttempt) -> None:
        """Like trim, but skips the logs of an attempt too short to have filled them."""
        lived_s = (attempt.ended_at or 0.0) - attempt.started_at
        if attempt.log_max_bytes and self.supported and not 0 <= lived_s < fills_in_s(attempt):
            self.trim(attempt)

    def trim(self, attempt: KeptAttempt) -> tuple[int, ...]:
        """Punch a hole into a log that is too large; returns the sizes of its logs."""
        return tuple([self._trim_file(attempt, path) for path in attempt.logs])

    def _trim_file(self, attempt: KeptAttempt, path: str) -> int:
        try:
            size = os.lstat(path).st_size
        except OSError:
            return 0
        if size <= attempt.log_max_bytes or not attempt.log_max_bytes or not self.supported:
            return size
        begin, end = hole(size, attempt.log_max_bytes)
        emptied = (attempt.punched or {}).get(path, 0)
        if begin < emptied <= size:
            begin = emptied
        if begin < end and self._punch(path, begin, end):
            attempt.punched = {**(attempt.punched or {}), path: end}
        return size

    def _punch(self, path: str, begin: int, end: int) -> bool:
        try:
            fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            done: bool = self._libc.fallocate(fd, _KEEP_SIZE_AND_PUNCH, begin, end - begin) == 0
            if not done and ctypes.get_errno() in _UNSUPPORTED:
                self.supported = False
            return done
        finally:
            os.close(fd)


def fills_in_s(attempt: KeptAttempt) -> float:
    """How long an attempt takes at least to reach the limit of a log."""
    return attempt.log_max_bytes / GROWTH_BYTES_PER_S


def hole(size: int, size_max: int) -> tuple[int, int]:
    """The range of a log that is emptied, in whole blocks so that no reader meets stray zeros."""
    begin = -(-(size_max // 4) // _BLOCK) * _BLOCK
    end = (size - size_max // 2) // _BLOCK * _BLOCK
    return begin, end


class _Logs:
    """The logs of one running attempt."""

    __slots__ = ("attempt", "due_at", "sizes", "times", "watches")

    def __init__(self, attempt: KeptAttempt, due_at: float) -> None:
        self.attempt = attempt
        self.due_at = due_at  # when it is looked at first
        self.sizes: tuple[int, ...] = (0,) * len(attempt.logs)
        self.times: GrowthTimes | None = None  # once it has written something
        self.watches: list[int] = []

    def grew(self, sizes: tuple[int, ...]) -> None:
        self.sizes = sizes
        if self.times is None:
            self.times = GrowthTimes(self.attempt.out, len(sizes) > 1)
        self.times.grew(sizes, system.wall())


class LogWatch:
    """Decides when to look next, and looks."""

    def __init__(self, trimmer: Trimmer) -> None:
        self._trimmer = trimmer
        self._new: dict[str, _Logs] = {}  # cannot be full yet
        self._written: dict[str, _Logs] = {}  # being written to, or looked at for the first time
        self._quiet: dict[str, _Logs] = {}
        self._watched: dict[int, str] = {}  # the kernel's number of a watch → the attempt's key
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self._libc.inotify_init1(
            os.O_NONBLOCK | os.O_CLOEXEC
        )  # -1: then nothing ever counts as quiet
        self.next_at = float("inf")

    @property
    def supported(self) -> bool:
        return self._trimmer.supported

    def started(self, attempt: KeptAttempt, at: float) -> None:
        fills_s = (
            fills_in_s(attempt) if attempt.log_max_bytes and self._trimmer.supported else UNBOUNDED_LOOK_S
        )
        due_at = at + max(FAST_LOOK_S, fills_s)
        self._new[attempt.key] = _Logs(attempt, due_at)
        self.next_at = min(self.next_at, due_at)

    def ended(self, attempt: KeptAttempt) -> None:
        key = attempt.key
        if self._new.pop(key, None) is not None:
            return
        logs = self._written.pop(key, None)
        if logs is None and (logs := self._quiet.pop(key, None)) is not None:
            self._unwatch(logs)
        if logs is not None and (sizes := self._trimmer.trim(attempt)) != logs.sizes:
            logs.grew(sizes)

    def look(self, at: float) -> None:
        """Trim what is too large, and find which logs are quiet now."""
        pause_s = LOOK_S
        for key in [key for key, logs in self._new.items() if logs.due_at <= at]:
            self._written[key] = self._new.pop(key)
        for key, logs in [*self._written.items()]:
            before, sizes = logs.sizes, self._trimmer.trim(logs.attempt)
            if sizes != before:
                logs.grew(sizes)
            elif self._watch(logs):
                self._quiet[key] = self._written.pop(key)
            if sum(sizes) - sum(before) > FAST_BYTES:
                pause_s = FAST_LOOK_S
        self.next_at = min(
            at + pause_s if self._written else float("inf"),
            min((logs.due_at for logs in self._new.values()), default=float("inf")),
        )

    def hear(self, at: float) -> None:
        """Some logs that were quiet are written to again."""
        with contextlib.suppress(BlockingIOError):
            events = os.read(self.fd, _READ_BYTES)
            for offset in range(0, len(events), _EVENT.size):  # no names: only files are watched
                key = self._watched.get(_EVENT.unpack_from(events, offset)[0])
                if key in self._quiet:
                    self._wake(key, at)

    def _wake(self, key: str, at: float) -> None:
        logs = self._written[key] = self._quiet.pop(key)
        self._unwatch(logs)
        self.next_at = min(self.next_at, at + FAST_LOOK_S)

    def _watch(self, logs: _Logs) -> bool:
        """Ask the kernel to report writes to its logs; False if it cannot, or if one has just happened."""
        paths = logs.attempt.logs
        for path in paths:
            watch = self._libc.inotify_add_watch(self.fd, os.fsencode(path), _IN_MODIFY | _IN_ONESHOT)
            if watch >= 0:
                logs.watches.append(watch)
                self._watched[watch] = logs.attempt.key
        if len(logs.watches) == len(paths) and self._trimmer.trim(logs.attempt) == logs.sizes:
            return True
        self._unwatch(logs)
        return False

    def _unwatch(self, logs: _Logs) -> None:
        for watch in logs.watches:
            self._libc.inotify_rm_watch(self.fd, watch)
            self._watched.pop(watch, None)
        logs.watches.clear()
