"""When the logs of an attempt grew, as it travels and as it is kept: rows of a time and the sizes of its logs then.

The keeper writes them (`runner/keeper/log_times.py` says what a row means). The last row is of what was written last.
"""

from __future__ import annotations

import struct

from msgspec import Struct

ROW = struct.Struct("<dQQ")
ONE_LOG = (1 << 64) - 1  # as the size of standard error: there is no such log
TIMES = "times"  # the stream that is asked for, and its path in the place for files


class LogRow(Struct, frozen=True, array_like=True):
    """At this time the logs had these sizes; `stderr` is None where both streams are in one log."""

    at: float
    stdout: int
    stderr: int | None = None


def pack_rows(rows: list[LogRow]) -> bytes:
    return b"".join(
        ROW.pack(row.at, row.stdout, ONE_LOG if row.stderr is None else row.stderr) for row in rows
    )


def read_rows(data: bytes) -> list[LogRow]:
    """The rows in order; one that goes back in time or size, as a task can make it, is left out."""
    found: list[LogRow] = []
    whole = len(data) - len(data) % ROW.size
    for at, stdout, stderr in ROW.iter_unpack(data[:whole]):
        row = LogRow(at, stdout, None if stderr == ONE_LOG else stderr)
        if not found or _goes_on(found[-1], row):
            found.append(row)
    return found


def _goes_on(before: LogRow, row: LogRow) -> bool:
    return before.at <= row.at and before.stdout <= row.stdout and (before.stderr or 0) <= (row.stderr or 0)
