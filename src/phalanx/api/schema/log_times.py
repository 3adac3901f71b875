"""Logs of tasks: when they were written, as it is asked and answered, and the mark of a gap in one."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from phalanx.api.schema.queries import REVISION_MAX
from phalanx.core.model.log_times import LogRow

__all__ = ["LogRow", "LogTimesQuery", "LogTimesView", "attempt_mark", "gap_mark"]


class LogTimesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """`after`: only rows later than this time, for a reader who has the others."""

    attempt: Annotated[int, Meta(ge=1, le=REVISION_MAX)] | None = None
    after: float = 0.0


class LogTimesView(Struct):
    """When the logs of an attempt grew. A byte was written by the time of the first row with a larger size, and at most
    a second before it (of two logs, 50 ms). `now` is the time of the answer by the clock of the node.
    """

    attempt: int  # 0: there was none yet
    node: str
    now: float
    split_output: bool  # there are two logs
    is_live: bool = False  # more may be written
    rows: list[LogRow] = []


def gap_mark(missing: int) -> bytes:
    """The line that stands for `missing` bytes."""
    return b"\n--- %d bytes of this log were not kept: it grew past runner.log_max_bytes ---\n" % missing


def attempt_mark(number: int, node: str | None) -> bytes:
    """The line before what another attempt of a followed task writes; without its node if that is not known."""
    return f"--- attempt {number}{f' on {node}' if node else ''} ---\n".encode()
