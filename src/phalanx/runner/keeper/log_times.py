"""When the logs of an attempt grew: rows of a time and their sizes then, in a file beside them.

A row says that all bytes before these sizes were written by then, and those after the row before at most `every_s`
earlier. What was written last is not in it: the file's own time says when that was. So a log that was written at once
has no rows, and costs nothing. The file is bounded: when it is full, every second row of its older part is dropped.

    time: float64   size of standard output: uint64   size of standard error: uint64, ONE_LOG if there is no such log
"""

from __future__ import annotations

import contextlib
import os
import struct

ROW = struct.Struct("<dQQ")
ONE_LOG = (1 << 64) - 1
ROWS_MAX = 1 << 17  # a day and a half of a log that grows all the time
KEPT_WHOLE = ROWS_MAX // 4  # of the newest rows none is dropped
EVERY_S = 1.0
SPLIT_EVERY_S = 0.04  # two logs are shown as one by their times
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class GrowthTimes:
    """The rows of one running attempt."""

    __slots__ = ("_begun_at", "_every_s", "_last", "_path")

    def __init__(self, out: str, is_split: bool) -> None:
        self._path = times_path(out)
        self._every_s = SPLIT_EVERY_S if is_split else EVERY_S
        self._begun_at = 0.0
        self._last: tuple[float, tuple[int, ...]] | None = None  # seen, and not written yet

    def grew(self, sizes: tuple[int, ...], at: float) -> None:
        """The logs have these sizes now. What was seen before is written when it is old enough."""
        if self._last is not None and not 0.0 <= at - self._begun_at < self._every_s:
            with contextlib.suppress(OSError):  # no room, or a task has put something else there
                self._write(*self._last)
            self._last = None
        if self._last is None:
            self._begun_at = at
        self._last = at, sizes

    def _write(self, at: float, sizes: tuple[int, ...]) -> None:
        fd = os.open(self._path, _FLAGS, 0o600)
        try:
            size = os.fstat(fd).st_size
            if size % ROW.size:  # the machine stopped while a row was written
                os.ftruncate(fd, size - size % ROW.size)
            os.write(fd, ROW.pack(at, sizes[0], sizes[1] if len(sizes) > 1 else ONE_LOG))
            if size >= (ROWS_MAX - 1) * ROW.size:
                self._thin(fd)
        finally:
            os.close(fd)

    def _thin(self, fd: int) -> None:
        """Drop every second row of all but the newest."""
        rows = os.pread(fd, ROWS_MAX * ROW.size, 0)
        begin = (len(rows) // ROW.size - KEPT_WHOLE) * ROW.size
        kept = [rows[at : at + ROW.size] for at in range(0, begin, 2 * ROW.size)]
        other = f"{self._path}.new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(other)  # noqa: PTH108 (the keeper imports no pathlib)
        new = os.open(other, _FLAGS | os.O_EXCL, 0o600)
        try:
            os.write(new, b"".join(kept) + rows[begin:])
        finally:
            os.close(new)
        os.replace(other, self._path)  # noqa: PTH105


def times_path(out: str) -> str:
    """Where the rows of the attempt are whose first log is `out`."""
    return f"{out.removesuffix('.stdout')}.times"
