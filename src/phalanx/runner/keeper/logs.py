"""The logs of running attempts: when to look at them, and what to cut out of one that outgrew its limit.

A new log is not looked at before it could have reached its limit. One that is being written to is looked at every few
milliseconds; one that has not grown since the last look costs nothing until the keeper writes to it again
(`output.py`). What was seen is noted (`log_times.py`), so that it is known later when each part was written.

The middle of a log that grew too large is given back to the filesystem: the first quarter of the limit is kept, since
a task says there what it is, and the newest half. Punching a hole keeps every offset where it was, so readers that
follow the log are not disturbed; they see a gap (`runner/logs.py`). Between two looks a log may outgrow its limit by
what is written in that time. Of an attached attempt nothing is cut that its reader has not had; `table.py` stops the
attempt until it has.
"""

from __future__ import annotations

import ctypes
import errno
import os

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
# Of an attached attempt this much is kept that its reader has had: it may be on its way to a client that comes back.
KEPT_BEHIND_BYTES = 16 << 20
UNBOUNDED_LOOK_S = 0.02  # when a log without a limit is looked at first
FAST_BYTES = 2 << 20  # a log that grew by so much between two looks is looked at sooner


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
        sizes = tuple([self._trim_file(attempt, path) for path in attempt.logs])
        # Nothing is cut from a log without a limit, so such an attempt waits for no reader.
        attempt.sizes = sizes if attempt.log_max_bytes and self.supported else ()
        return sizes

    def _trim_file(self, attempt: KeptAttempt, path: str) -> int:
        try:
            size = os.lstat(path).st_size
        except OSError:
            return 0
        if size <= attempt.log_max_bytes or not attempt.log_max_bytes or not self.supported:
            return size
        begin, end = hole(size, attempt.log_max_bytes)
        if (
            attempt.readers is not None
            and (reader := attempt.readers[attempt.logs.index(path)]).until is not None
        ):
            end = min(end, (reader.at - KEPT_BEHIND_BYTES) // _BLOCK * _BLOCK)
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

    __slots__ = ("attempt", "due_at", "sizes", "times")

    def __init__(self, attempt: KeptAttempt, due_at: float) -> None:
        self.attempt = attempt
        self.due_at = due_at  # when it is looked at first
        self.sizes: tuple[int, ...] = (0,) * len(attempt.logs)
        self.times: GrowthTimes | None = None  # once it has written something

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
        self.next_at = float("inf")
        self.grown: list[KeptAttempt] = []  # attached ones, as the last look found them

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
        logs = self._written.pop(key, None) or self._quiet.pop(key, None)
        if logs is not None and (sizes := self._trimmer.trim(attempt)) != logs.sizes:
            logs.grew(sizes)

    def look(self, at: float) -> None:
        """Trim what is too large, and find which logs are quiet now."""
        pause_s = LOOK_S
        self.grown = []
        for key in [key for key, logs in self._new.items() if logs.due_at <= at]:
            self._written[key] = self._new.pop(key)
        for key, logs in [*self._written.items()]:
            before, sizes = logs.sizes, self._trimmer.trim(logs.attempt)
            if logs.attempt.readers is not None:
                self.grown.append(logs.attempt)
            if sizes != before:
                logs.grew(sizes)
            else:
                self._quiet[key] = self._written.pop(key)
            if sum(sizes) - sum(before) > FAST_BYTES:
                pause_s = FAST_LOOK_S
        self.next_at = min(
            at + pause_s if self._written else float("inf"),
            min((logs.due_at for logs in self._new.values()), default=float("inf")),
        )

    def wrote(self, key: str, at: float) -> None:
        """A log of this attempt was written to: if it was quiet, it is looked at soon."""
        if (logs := self._quiet.pop(key, None)) is not None:
            self._written[key] = logs
            self.next_at = min(self.next_at, at + FAST_LOOK_S)
