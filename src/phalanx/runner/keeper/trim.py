"""Bounds on disk use: the middle of a log that grew too large is given back to the filesystem.

The first quarter of the allowance is kept, since that is where a task says what it is, and the newest half.
Punching a hole keeps every offset where it was, so readers that follow the log are not disturbed; they see
a gap (`runner/logs.py`). Between two looks (`logwatch.py`) a log may outgrow its allowance by what is written in that
time.
"""

from __future__ import annotations

import ctypes
import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .attempt import KeptAttempt

GROWTH_BYTES_PER_S = 8 << 30  # no task writes faster than memory is copied
_KEEP_SIZE_AND_PUNCH = 0x01 | 0x02
_BLOCK = 4096
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.ENODEV)


class Trimmer:
    """Keeps logs within their allowance, until a filesystem says it cannot."""

    def __init__(self) -> None:
        self.supported = True
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)

    def trim_at_end(self, attempt: KeptAttempt) -> None:
        """Like trim, but without a look at the logs of one that cannot have filled them in its short life."""
        lived_s = (attempt.ended_at or 0.0) - attempt.started_at
        if not 0 <= lived_s < fills_in_s(attempt):
            self.trim(attempt)

    def trim(self, attempt: KeptAttempt) -> tuple[int, int]:
        """Give back the middle of a log that is too large; the sizes of both."""
        if not attempt.log_max_bytes or not self.supported:
            return 0, 0
        return self._trim_file(attempt, attempt.out), self._trim_file(attempt, attempt.err)

    def _trim_file(self, attempt: KeptAttempt, path: str) -> int:
        try:
            size = os.lstat(path).st_size
        except OSError:
            return 0
        if size <= attempt.log_max_bytes:
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
    """How long an attempt takes at least to fill the allowance of a log."""
    return attempt.log_max_bytes / GROWTH_BYTES_PER_S


def hole(size: int, size_max: int) -> tuple[int, int]:
    """From where to where a log is emptied, in whole blocks so that no reader meets stray zeros."""
    begin = -(-(size_max // 4) // _BLOCK) * _BLOCK
    end = (size - size_max // 2) // _BLOCK * _BLOCK
    return begin, end
