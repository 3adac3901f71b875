"""How a reader of a log is told that a part of it was not kept."""

from __future__ import annotations


def gap_mark(missing: int) -> bytes:
    """The line that stands for `missing` bytes."""
    return b"\n--- %d bytes of this log were not kept: it grew past runner.log_max_bytes ---\n" % missing
