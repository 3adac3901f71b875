"""`phalanx wait`, and the progress that `submit --wait` shows: wait until jobs have ended, exit with their code.

`submit --wait` and `run` end the same way. While it waits for an array, progress
goes to standard error: a bar on a terminal, a line now and then in a log.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Literal, Self

import typer

from phalanx.api.schema.jobs import JobView, TaskView
from phalanx.cli.completion import job_ids
from phalanx.cli.job import id_of
from phalanx.cli.labels import Numbered, label
from phalanx.cli.output import OutputOption, clean, emit, note, span
from phalanx.cli.session import TimeoutOption, deadline, session
from phalanx.cli.shell_exits import shell_code
from phalanx.clock import Deadline
from phalanx.errors import PhalanxError
from phalanx.settings import Output

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from phalanx.client.client import Client

View = JobView | TaskView
ENDED = frozenset({"Completed", "Failed", "Cancelled"})
BAR_PACE_S = 0.5
LINE_PACE_S = 10.0
QUIET_PACE_S = 60.0
NAMES_TOLD = 5


class TimedOut(PhalanxError):
    """The time of --timeout is over; the work goes on."""

    exit_code = 124


def wait(
    ctx: typer.Context,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", autocompletion=job_ids)],
    timeout: TimeoutOption = None,
    exit_with: Annotated[
        Literal["code", "outcome"],
        typer.Option("--exit-code", help="Exit with the task's own code, or 0 and 1 for good and bad."),
    ] = "code",
    output: OutputOption = None,
) -> int:
    """Wait until jobs or tasks have ended.

    Exits with the code of the first job or task that failed, or 0.
    """
    here = session(ctx)
    views = await_all(here.client(), ids, deadline(timeout))
    tell_end(views, here.output(output))
    code = exit_code(views)
    return code if exit_with == "code" else min(code, 1)


def await_all(client: Client, ids: Sequence[str], until: Deadline) -> list[View]:
    """Each of `ids` as it ended, or TimedOut."""
    with Progress() as progress:
        return [_await(client, each, until, progress) for each in ids]


def await_submitted(client: Client, jobs: Sequence[Numbered], until: Deadline) -> list[View]:
    """The same of what was just submitted. Ctrl-C ends only the waiting, and that is said."""
    try:
        return await_all(client, [each.id for each in jobs], until)
    except KeyboardInterrupt:
        tell_goes_on([label(each) for each in jobs], "phalanx cancel", "phalanx wait")
        raise


def tell_goes_on(names: Sequence[str], cancel: str, wait: str) -> None:
    """After Ctrl-C: what was submitted is not cancelled by it."""
    told = " ".join(names[:NAMES_TOLD]) + (" …" if len(names) > NAMES_TOLD else "")
    note(f"{told} not cancelled: `{wait} {told}` waits again, `{cancel} {told}` cancels")


def _await(client: Client, id: str, until: Deadline, progress: Progress) -> View:
    id = id_of(client, id)  # its name may be given again while we wait
    view = client.wait(id, timeout=0, must_end=False)
    while view.status not in ENDED:
        progress.show(view)
        if until.is_over:
            verb = "logs" if view.status == "Running" else "why"
            what = "shows what it writes" if view.status == "Running" else "says why"
            raise TimedOut(
                f"{label(view)} is still {view.status}", hint=f"`phalanx {verb} {label(view)}` {what}"
            )
        view = client.wait(id, timeout=until.left_s(progress.pace_s(view)), must_end=False)
    progress.show(view)
    return view


def exit_code(views: Sequence[View]) -> int:
    """The exit code: 0, or the code of the first that did not complete."""
    return next((_shell_code(view) for view in views if view.status != "Completed"), 0)


def _shell_code(view: View) -> int:
    """A task ended by signal N has −N, which shells write 128+N; lost ones have −1, which is no signal."""
    return shell_code(view.exit_code, view.reason) or 1


def tell_end(views: Sequence[View], output: Output) -> None:
    """One struct as it is, several as a list; people get a line for each."""
    value = views[0] if len(views) == 1 else list(views)
    if output in {"json", "yaml"}:
        emit(value, output, [], lambda _wide: [])
        return
    for view in views:
        ran = "" if view.started_at is None else f" after {span(view.started_at, view.ended_at)}"
        note(f"{label(view)} {view.status}{_because(view)}{ran}")


def _because(view: View) -> str:
    parts = [view.reason if view.status != "Completed" else ""]
    if (code := shell_code(view.exit_code, view.reason)) is not None:
        parts.append(f"exit code {code}")
    said = ", ".join(part for part in parts if part)
    return f" ({said})" if said else ""


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
        elif (line := f"{label(view)}: {_words(view)}") != self._last:
            self._last = line
            note(line)

    def _draw(self, view: JobView) -> None:
        bar = self._bar = self._bar or _new_bar()
        if view.id not in self._rows:
            self._rows[view.id] = bar.add_task(clean(view.name or label(view)), total=view.tasks, words="")
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
