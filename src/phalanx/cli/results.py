"""`phalanx results`: parameters, outcome, usage and result of each task of a job, as a table, CSV or JSON.

Of a job whose failed tasks were retried, each task is shown once, with its newest outcome; a retry that is named by its
own number is shown alone. A table leaves out columns
that would be empty, and on a terminal the parameters that are the same everywhere; CSV and JSON have everything.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
import typer
from msgspec import Struct

from phalanx.api.schema.jobs import JobView, TaskView
from phalanx.cli.job import IdArgument, id_of
from phalanx.cli.job_names import shown_id
from phalanx.cli.labels import label
from phalanx.cli.output import CONTROL, Table, clean, emit, no_formula, note
from phalanx.cli.pages import collected
from phalanx.cli.ps import Status
from phalanx.cli.session import session
from phalanx.cli.shell_exits import shell_code
from phalanx.cli.usage_table import percent
from phalanx.client.client import Client
from phalanx.core.model.amounts import describe_bytes, describe_seconds
from phalanx.errors import BadRequest, Forbidden, NotFound, Unavailable

COLUMNS_MAX = 40
SPARE = ("MEMORY", "GPU", "TIME", "EXIT")
OWN = (
    *("task", "status", "exit_code", "seconds", "index", "attempts", "reason"),
    *("memory_peak_bytes", "cpu_s", "gpu_use", "gpu_memory_peak_bytes"),
)
Format = Literal["table", "csv", "json", "yaml", "wide", "name"]


class ResultRow(Struct):
    """One task: what it was given, how it ended, what it used, and its result."""

    id: str
    index: int | None
    status: str
    exit_code: int | None
    seconds: float | None  # that its last attempt ran
    result: Any
    number: str = ""  # such as 17.3
    params: dict[str, str] = {}
    attempts: int = 0
    reason: str = ""
    memory_peak_bytes: int | None = None
    cpu_s: float | None = None
    gpu_use: float | None = None  # mean utilisation of its devices, 1 is all of it
    gpu_memory_peak_bytes: int | None = None


def results(
    ctx: typer.Context,
    id: IdArgument,
    limit: Annotated[
        int, typer.Option(min=1, help="Maximum number of tasks, the first as they are sorted.")
    ] = 100_000,
    retries: Annotated[
        bool | None,
        typer.Option(
            "--with-retries/--without-retries",
            help="Show all tasks of the first job, each with its newest outcome.",
            show_default="with, unless ID is the number of a retry",
        ),
    ] = None,
    status: Annotated[
        list[Status] | None,
        typer.Option("-s", "--status", case_sensitive=False, help="Only tasks with this status; repeatable."),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Sort by a parameter, a key of the results, or a column; -COLUMN reverses."
        ),
    ] = None,
    output: Annotated[Format, typer.Option("-o", "--output", help="Output format.")] = "table",
) -> None:
    """Show the results of a job: parameters, outcome, usage, and what its tasks wrote to $PHALANX_RESULT.

    If all results are JSON objects, each of their keys is a column.
    """
    client = session(ctx).client()
    called, more, wanted = id, False, {each.value for each in status or []}
    id = id_of(client, id)
    # The limit is of the rows that are shown: which ones are the first is known only when all have been read.
    most = limit if sort is None and not wanted else sys.maxsize
    if "." in id:
        shown_id(client, called)
        tasks = [client.task(id)]
    else:
        job = client.job(id)
        is_alone = _is_retry_by_number(job, id) if retries is None else not retries
        shown_id(client, called, retries=0 if is_alone else len(_first(client, job).retries))
        tasks, more = (
            collected(partial(client.tasks, job.id), most) if is_alone else _newest(client, job, most)
        )
    _refuse_hidden(client, tasks)
    rows = [_row(_with_result(client, task)) for task in tasks if not wanted or task.status in wanted]
    rows = rows if sort is None else _sorted(rows, sort)
    rows, more = rows[:limit], more or len(rows) > limit
    if output == "csv":
        typer.echo(_csv(rows), nl=False)
    else:
        emit(rows, output, [label(row) for row in rows], lambda _wide: _table(rows))
        if output in {"table", "wide"} and (same := _same(rows)):
            note(f"the same for all of them: {' '.join(f'{name}={rows[0].params[name]}' for name in same)}")
    if more:
        note(f"showing {limit} tasks; use --limit for more")


def _is_retry_by_number(job: JobView, asked: str) -> bool:
    """Whether a retry was asked for by its own number or id; a name is that of the first job, too."""
    if not job.repeats or not (asked == str(job.number) or job.id.startswith(asked.lower())):
        return False
    note(f"{label(job)} is a retry and has the tasks that ran again; --with-retries shows all")
    return True


def _newest(client: Client, job: JobView, limit: int) -> tuple[list[TaskView], bool]:
    """The tasks of a job, each as the last job has it that repeats it."""
    first = _first(client, job)
    tasks, more = collected(partial(client.tasks, first.id), limit)
    found = {task.index: task for task in tasks}
    for retry in first.retries:
        try:
            again, _ = collected(partial(client.tasks, retry), limit)
        except NotFound:
            note(f"{retry}, a retry of {label(first)}, is no longer kept: the outcomes before it are shown")
            continue
        if again and again[0].index is None:  # a gang, or a single task: repeated as a whole
            tasks = again
        else:
            found |= {task.index: task for task in again if task.index in found}
    return [task if task.index is None else found[task.index] for task in tasks], more


def _first(client: Client, job: JobView) -> JobView:
    """The job whose tasks this one repeats; itself if it repeats none, or that is no longer kept."""
    try:
        return client.job(job.repeats) if job.repeats else job
    except NotFound:
        return job


def _refuse_hidden(client: Client, tasks: list[TaskView]) -> None:
    """Lists hide the results of other users' jobs; where there are none, ask for one, and say if it is hidden."""
    if not tasks or any(task.result is not None or task.result_bytes for task in tasks):
        return
    try:
        client.result(tasks[0].id)
    except Forbidden as error:
        error.detail = f"results are for the owner of a job and for operators: {error.detail}"
        raise
    except (NotFound, Unavailable):
        return  # there is none, or none yet


def _with_result(client: Client, task: TaskView) -> TaskView:
    """The task with its result, also with one that lists do not have because it is large."""
    if not task.result_bytes or task.result is not None:
        return task
    try:
        return msgspec.structs.replace(task, result=client.result(task.id))
    except (NotFound, Unavailable) as error:
        note(f"{label(task)}: {error}")
        return task


def _row(task: TaskView) -> ResultRow:
    seconds = None
    if task.started_at is not None and task.ended_at is not None:
        seconds = round(task.ended_at - task.started_at, 3)
    used = task.usage
    has_devices = used is not None and used.device_use is not None
    return ResultRow(
        task.id,
        task.index,
        task.status,
        task.exit_code,
        seconds,
        task.result,
        task.number,
        task.params,
        task.attempt,
        task.reason,
        None if used is None else used.memory_peak_bytes,
        None if used is None else round(used.cpu_s, 3),
        None if used is None or used.device_use is None else round(used.device_use, 4),
        used.device_memory_peak_bytes if used is not None and has_devices else None,
    )


def _keys(rows: list[ResultRow]) -> list[str] | None:
    """The keys of all results, in the order in which they first occur; None if some have none, or if they are many."""
    given = [row.result for row in rows if row.result is not None]
    if not given or not all(isinstance(each, dict) for each in given):
        return None
    keys = list(dict.fromkeys(key for each in given for key in each))
    return keys if len(keys) <= COLUMNS_MAX else None


def _names(rows: list[ResultRow]) -> list[str]:
    """The parameters of all rows."""
    return list(dict.fromkeys(name for row in rows for name in row.params))


def _same(rows: list[ResultRow]) -> list[str]:
    """The parameters that have one value in all of several rows, if others have not."""
    names = _names(rows) if len(rows) > 1 else []
    same = [name for name in names if len({row.params.get(name) for row in rows}) == 1]
    return same if len(same) < len(names) else []


def _sorted(rows: list[ResultRow], column: str) -> list[ResultRow]:
    """By one column: numbers before texts, and rows without a value last."""
    name, keys = column.removeprefix("-"), _keys(rows) or []
    columns = [*_names(rows), *keys, *OWN]
    if rows and name not in columns and name.lower() not in _AS_SHOWN:
        raise BadRequest(f"--sort: {name!r} is not a column here", hint=f"columns are {', '.join(columns)}")
    own = _AS_SHOWN.get(name.lower(), name)

    def value(row: ResultRow) -> Any:
        if name in row.params:
            return row.params[name]
        if name in keys:
            return (row.result or {}).get(name)
        return (row.index, row.id) if own == "task" else getattr(row, own, None)

    with_value = [row for row in rows if value(row) is not None]
    without = [row for row in rows if value(row) is None]
    return sorted(with_value, key=lambda row: _order(value(row)), reverse=column.startswith("-")) + without


_AS_SHOWN = {"exit": "exit_code", "time": "seconds", "memory": "memory_peak_bytes", "gpu": "gpu_use"}


def _order(value: Any) -> tuple[int, float, str]:
    """Numbers by their value, also those that are written as text, then all others as text."""
    try:
        return 0, float(value), ""
    except (TypeError, ValueError):
        return 1, 0.0, str(value)


def _cells(row: ResultRow, keys: list[str] | None) -> list[str]:
    """The result in cells, one for each key."""
    if keys is None:
        return [_word(row.result)]
    return [_word((row.result or {}).get(key)) for key in keys]


def _word(value: Any) -> str:
    """A value of JSON as one would write it in a cell: text without quotes, nothing for null."""
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _table(rows: list[ResultRow]) -> Table:
    keys, names = _keys(rows), _names(rows)
    same = _same(rows)  # what is the same everywhere tells nothing of a task
    names = [name for name in names if name not in same]
    columns = [(title, cells) for title, cells in _measured(rows) if any(cells)]
    has_results = any(row.result is not None for row in rows)
    heads = [] if not has_results else ["RESULT"] if keys is None else [*map(clean, keys)]
    narrows = dict.fromkeys((*reversed(heads), *map(clean, names)), 8)
    table = Table(
        "TASK",
        *map(clean, names),
        "STATUS",
        *(title for title, _ in columns),
        *heads,
        narrows=narrows,
        spare=SPARE,
    )
    for number, row in enumerate(rows):
        given = [row.params.get(name, "") for name in names]
        ends = [cells[number] for _, cells in columns]
        table.add(label(row), *given, row.status, *ends, *(_cells(row, keys) if heads else []))
    return table


def _measured(rows: list[ResultRow]) -> Iterator[tuple[str, list[str]]]:
    """Columns about the outcome, in few characters."""
    codes = (shell_code(row.exit_code, row.reason) for row in rows)
    yield "EXIT", ["" if code is None else str(code) for code in codes]
    yield "TIME", ["" if row.seconds is None else describe_seconds(row.seconds) for row in rows]
    yield "MEMORY", [describe_bytes(row.memory_peak_bytes) if row.memory_peak_bytes else "" for row in rows]
    yield "GPU", [percent(row.gpu_use) or "" for row in rows]


def _csv(rows: list[ResultRow]) -> str:
    """As a spreadsheet or pandas reads it; what a terminal would obey is left out."""
    keys, names = _keys(rows), _names(rows)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    heads = ["result"] if keys is None else keys
    taken = {*OWN, *heads}
    writer.writerow(
        map(no_formula, [*OWN, *(f"param.{name}" if name in taken else name for name in names), *heads])
    )
    writer.writerows(
        [
            *(
                label(row),
                row.status,
                shell_code(row.exit_code, row.reason),
                row.seconds,
                row.index,
                row.attempts,
                row.reason,
            ),
            *(row.memory_peak_bytes, row.cpu_s, row.gpu_use, row.gpu_memory_peak_bytes),
            *(no_formula(row.params.get(name, "")) for name in names),
            *map(no_formula, _cells(row, keys)),
        ]
        for row in rows
    )
    return CONTROL.sub("", out.getvalue())
