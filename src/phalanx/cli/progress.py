"""Progress of an array while one waits for it: a bar for a person, a line now and then for a log.

It goes to standard error and is only for jobs of several tasks. rich draws the bar, imported when needed.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

from phalanx.api.schema.jobs import JobView, TaskView
from phalanx.cli.output import note
from phalanx.cli.text import clean

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

BAR_PACE_S = 0.5
LINE_PACE_S = 10.0
QUIET_PACE_S = 60.0


class Progress:
    """Shows how far each job is. Used as a context, so that the bar is taken away in any case."""

    def __init__(self) -> None:
        self._is_watched = sys.stderr.isatty()
        self._bar: Bar | None = None
        self._rows: dict[str, TaskID] = {}
        self._last = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def pace_s(self, view: JobView | TaskView) -> float:
        """How long to wait before looking again."""
        if not _is_array(view):
            return QUIET_PACE_S
        return BAR_PACE_S if self._is_watched else LINE_PACE_S

    def show(self, view: JobView | TaskView) -> None:
        """Tell how far this job is; the same line is not said twice."""
        if not isinstance(view, JobView) or not _is_array(view):
            return
        if self._is_watched:
            self._draw(view)
        elif (line := f"{view.id}: {_words(view)}") != self._last:
            self._last = line
            note(line)

    def _draw(self, view: JobView) -> None:
        bar = self._bar = self._bar or _new_bar()
        if view.id not in self._rows:
            self._rows[view.id] = bar.add_task(clean(view.name or view.id), total=view.tasks, words="")
        bar.update(self._rows[view.id], completed=_ended(view), words=_words(view))


def _new_bar() -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    bar = Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[words]}", markup=False),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )
    bar.start()
    return bar


def _is_array(view: JobView | TaskView) -> bool:
    return isinstance(view, JobView) and view.tasks > 1


def _ended(job: JobView) -> int:
    """Those that run no longer, even if they would run again if the whole job started anew."""
    counts = job.counts
    return counts.completed + counts.failed + counts.cancelled + job.finished


def _words(job: JobView) -> str:
    counts = job.counts
    words = [f"{_ended(job)} of {job.tasks} ended"]
    words += [
        f"{count} {word}"
        for count, word in (
            (counts.running - job.finished, "running"),
            (counts.failed, "failed"),
            (counts.cancelled, "cancelled"),
        )
        if count
    ]
    return ", ".join(words)
