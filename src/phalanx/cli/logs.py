"""`phalanx logs`: what a task wrote, in its order, or what all tasks of a job wrote, each line behind its task."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct, structs

from phalanx.api.schema.log_times import LogTimesView
from phalanx.cli.attached import write_whole
from phalanx.cli.completion import job_ids
from phalanx.cli.instants import read_since
from phalanx.cli.job_logs import JobLogs
from phalanx.cli.job_names import shown_id
from phalanx.cli.labels import label
from phalanx.cli.option_form import with_options
from phalanx.cli.output import note
from phalanx.cli.session import session
from phalanx.cli.task_log import ORDER_OF_TWO, LogOptions, TaskLog
from phalanx.clock import SystemClock
from phalanx.core.model.patterns import LinePattern, Unreadable
from phalanx.errors import BadRequest, NotFound

if TYPE_CHECKING:
    from phalanx.client.client import Client

SCREEN_LINES = 1000
STAGES_TOLD = 8  # in a message
SCREEN_LINES_EACH = 20  # of each task of a job


class LogsForm(Struct, kw_only=True):
    """Each field is an option of `logs`."""

    follow: Annotated[
        bool,
        typer.Option("-f", "--follow", help="Follow the output until the task ends, over all its attempts."),
    ] = False
    tail: Annotated[
        int | None,
        typer.Option("-n", "--tail", min=0, help="Show only the last lines, of each task; 0 = all."),
    ] = None
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only what was written since: 10m, 2h, 9:00, 2026-11-18T09:00."),
    ] = None
    timestamps: Annotated[
        bool, typer.Option("--timestamps", help="Show when each line was written, to the second.")
    ] = False
    grep: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Only lines that match this regular expression.")
    ] = None
    stdout: Annotated[
        bool, typer.Option("--stdout", help="Only standard output; with one log for both, that log.")
    ] = False
    stderr: Annotated[
        bool, typer.Option("--stderr", help="Only standard error, of a job with --split-output.")
    ] = False
    attempt: Annotated[
        int | None, typer.Option(min=1, help="Attempt number, wherever it ran; by default the newest.")
    ] = None

    def log_options(self) -> LogOptions:
        if self.stdout and self.stderr:
            raise BadRequest("--stdout and --stderr: give one of them, or none for both")
        if self.since is not None:
            read_since(self.since, SystemClock().now())  # once, before anything is shown
        return LogOptions(
            stream="stderr" if self.stderr else "stdout" if self.stdout else None,
            lines=self.tail or None,
            follow=self.follow,
            since=self.since,
            timestamps=self.timestamps,
            pattern=None if self.grep is None else _pattern(self.grep),
        )


@with_options(LogsForm)
def logs(
    ctx: typer.Context,
    options: LogsForm,
    id: Annotated[str, typer.Argument(metavar="ID", autocompletion=job_ids)],
) -> None:
    """Show the output of a task, in the order in which it was written, or of all tasks of a job.

    Lines of several tasks begin with the index of their task (`3| `), of a gang with rank and node (`3@n2| `). With
    -f it goes on when a task is tried again, and says so. A job with --split-output has two logs; they are shown as
    one by their times, in which lines less than 50 ms apart may change places. On a terminal, the last 1000 lines,
    of each of several tasks 20, unless --tail says otherwise.
    """
    shown, attempt, client = options.log_options(), options.attempt, session(ctx).client()
    is_cut = options.tail is None and options.since is None and not options.grep and sys.stdout.isatty()
    called, id = id, shown_id(client, id)
    try:
        try:
            found = client.log_times(id, attempt=attempt)
        except NotFound as error:
            id = _only_stage(client, id, error)
            found = client.log_times(id, attempt=attempt)
    except BadRequest as error:
        if error.reason != "IsArray":
            raise
        of_each = _cut(shown, SCREEN_LINES_EACH if is_cut else None)
        _write(JobLogs(client, id, attempt, of_each).lines())
        return
    if found.split_output and shown.stream is None and _may_have_two(found):
        note(ORDER_OF_TWO)
    log = TaskLog(client, id, _cut(shown, SCREEN_LINES if is_cut else None), _say, called)
    _write(log.all_attempts() if options.follow and attempt is None else log.attempt(attempt, found))


def _only_stage(client: Client, id: str, error: NotFound) -> str:
    """The only stage of a workflow; if it has several, the error says how to name one."""
    if error.reason != "IsWorkflow":
        raise error
    flow = client.workflow_view(id)
    if len(flow.stages) != 1:
        names = " ".join(stage.name for stage in flow.stages[:STAGES_TOLD])
        more = " …" if len(flow.stages) > STAGES_TOLD else ""
        error.detail = f"{label(flow)} is a workflow, whose stages have a log each: {names}{more}"
        first = next(
            (stage.name for stage in flow.stages if stage.started_at is not None), flow.stages[0].name
        )
        error.hint = f"phalanx logs {label(flow)}:{first}"
        raise error
    return f"{flow.id}:{flow.stages[0].name}"


def _may_have_two(found: LogTimesView) -> bool:
    """Whether there are lines of two logs to bring into an order, as far as is known."""
    return found.is_live or not found.rows or bool(found.rows[-1].stdout and found.rows[-1].stderr)


def _cut(options: LogOptions, lines: int | None) -> LogOptions:
    """A file or a pipe gets everything, a screen what it can use."""
    if lines is None:
        return options
    told = Event()

    def tell_once() -> None:
        if not told.is_set():
            told.set()
            note(f"the last {lines} lines; --tail 0 shows all")

    return structs.replace(options, lines=lines, on_cut=tell_once)


def _pattern(text: str) -> LinePattern:
    try:
        return LinePattern(text)
    except Unreadable as error:
        raise BadRequest(
            f"--grep: {text[:80]!r} is not a regular expression of RE2: {error}",
            hint="RE2 has no backreferences (\\1) and no lookaround ((?=…), (?<!…))",
        ) from None


def _say(text: str) -> None:
    sys.stdout.buffer.flush()
    note(text)


def _write(pieces: Iterator[bytes]) -> None:
    for piece in pieces:
        write_whole(sys.stdout.buffer, piece)
