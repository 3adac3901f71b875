"""Which attempt a follower of a log reads, and what it does after it: wait, read the next one, or end. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from phalanx.api.schema.jobs import TaskView
from phalanx.api.schema.log_times import attempt_mark, gap_mark
from phalanx.client.calls import FINAL
from phalanx.errors import NotFound, Unavailable

if TYPE_CHECKING:
    from phalanx.client.log_calls import LogPiece

PACE_FIRST_S, PACE_MAX_S = 0.2, 5.0
AWAY_PACE_S = 2.0  # after which a node that is not connected is asked again
Next = Literal["read", "end"] | float  # or so many seconds to wait for the task


class FollowedLog:
    """One stream of a task, over all attempts that come. Between two of them a line says so."""

    def __init__(self, offset: int | None, lines: int | None) -> None:
        self._number = 0  # of the attempt that is read
        self._offset, self._lines = offset, lines
        self._is_line_whole = True
        self._marks: list[bytes] = []  # to be shown before what comes next
        self._error: NotFound | Unavailable | None = None
        self._has_waited = False  # for a node that is not connected
        self._pace_s = PACE_FIRST_S

    def place(self) -> dict[str, Any]:
        """Where to read now."""
        return {"attempt": self._number or None, "offset": self._offset, "lines": self._lines}

    def shown(self, piece: LogPiece) -> Iterator[bytes]:
        yield from self.marks()
        self._number = piece.attempt or self._number
        self._offset, self._lines, self._pace_s = piece.offset + len(piece.data), None, PACE_FIRST_S
        if piece.gap:
            yield gap_mark(piece.gap)
        if piece.data:
            yield piece.data
            self._is_line_whole = piece.data.endswith(b"\n")

    def marks(self) -> Iterator[bytes]:
        """What is to be said of attempts that have come, once."""
        told, self._marks = self._marks, []
        yield from told

    def broke(self, error: NotFound | Unavailable) -> None:
        """The log could not be read, or not to its end. Of a task that nothing was read of, that is the answer."""
        if not self._number:
            raise error
        self._error = error

    def after(self, task: TaskView) -> Next:
        """What to do when nothing more is to be read of this attempt."""
        if task.attempt > self._number > 0:
            self._number, self._offset, self._error = self._number + 1, None, None
            self._mark(task.node if task.attempt == self._number else None)
            return "read"
        if isinstance(self._error, Unavailable) and task.status != "Pending":
            return self._of_its_node(self._error, task)
        if task.status in FINAL:
            return "end"
        pace_s, self._pace_s = self._pace_s, min(PACE_MAX_S, 1.5 * self._pace_s)
        return pace_s

    def _of_its_node(self, error: Unavailable, task: TaskView) -> Next:
        """A node that is not connected may come back: then the log is read on where it broke."""
        if not task.unreachable and not self._has_waited:
            raise error
        self._has_waited = not self._has_waited
        if self._has_waited:
            return AWAY_PACE_S
        self._error = None
        return "read"

    def _mark(self, node: str | None) -> None:
        self._marks.append((b"" if self._is_line_whole else b"\n") + attempt_mark(self._number, node))
        self._is_line_whole = True
