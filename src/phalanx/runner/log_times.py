"""When the logs of an attempt grew: the keeper's rows, and the files' own times for what was written last."""

from __future__ import annotations

import os
from pathlib import Path

from phalanx.core.model.log_times import TIMES, LogRow, pack_rows, read_rows
from phalanx.core.model.orders import AttemptKey
from phalanx.runner.keeper.log_times import ROW, ROWS_MAX
from phalanx.runner.log_files import STREAMS, log_path, open_file

NEW_S = 1.0  # a log that was written so recently needs no rows in the place for files: its copy has that time


def read_times(root: Path, key: AttemptKey) -> list[LogRow] | None:
    """The rows, the last of which is of what was written last; None if the attempt has no log."""
    out, err = [_about(root, key, stream) for stream in STREAMS]
    if out is None:
        return None
    last = LogRow(out[0], out[1]) if err is None else LogRow(max(out[0], err[0]), out[1], err[1])
    noted = [row for row in _noted(root, key) if row.stdout <= last.stdout and row.at <= last.at]
    return [*noted, last]


def times_to_keep(root: Path, key: AttemptKey, now: float) -> bytes:
    """What is copied with the logs; empty if they were written just now, all at once."""
    rows = read_times(root, key)
    if rows is None or (len(rows) == 1 and 0 <= now - rows[0].at < NEW_S):
        return b""
    return pack_rows(rows)


def _about(root: Path, key: AttemptKey, stream: str) -> tuple[float, int] | None:
    """When a log was written to last, and its size."""
    try:
        fd = open_file(log_path(root, *key, stream))
    except OSError:
        return None
    try:
        about = os.fstat(fd)
        return about.st_mtime, about.st_size
    finally:
        os.close(fd)


def _noted(root: Path, key: AttemptKey) -> list[LogRow]:
    try:
        fd = open_file(log_path(root, *key, TIMES))
    except OSError:
        return []
    try:
        return read_rows(os.pread(fd, (ROWS_MAX + 1) * ROW.size, 0))
    finally:
        os.close(fd)
