"""`phalanx results`: what the tasks of a job gave as their results, as a table, CSV or JSON."""

from __future__ import annotations

import csv
import io
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
import typer
from msgspec import Struct

from phalanx.api.schema.jobs import TaskView
from phalanx.cli.job import IdArgument, id_of
from phalanx.cli.labels import label
from phalanx.cli.output import CONTROL, Table, clean, emit, note
from phalanx.cli.pages import collected
from phalanx.cli.session import session
from phalanx.client.client import Client
from phalanx.core.model.amounts import describe_seconds
from phalanx.errors import Forbidden, NotFound, Unavailable

COLUMNS_MAX = 40
Format = Literal["table", "csv", "json"]


class ResultRow(Struct):
    """One task and its result."""

    id: str
    index: int | None
    status: str
    exit_code: int | None
    seconds: float | None  # that its last attempt ran
    result: Any
    number: str = ""  # such as 17.3


def results(
    ctx: typer.Context,
    id: IdArgument,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of tasks.")] = 100_000,
    output: Annotated[Format, typer.Option("-o", "--output", help="Output format.")] = "table",
) -> None:
    """Show the results of a job: what its tasks wrote to the file named in PHALANX_RESULT.

    If all results are JSON objects, each of their keys is a column.
    """
    client = session(ctx).client()
    id, more = id_of(client, id), False
    if "." in id:
        tasks = [client.task(id)]
    else:
        tasks, more = collected(partial(client.tasks, id), limit)
    _refuse_hidden(client, tasks)
    rows = [_row(_with_result(client, task)) for task in tasks]
    if output == "csv":
        typer.echo(_csv(rows), nl=False)
    else:
        emit(rows, output, [label(row) for row in rows], lambda _wide: _table(rows))
    if more:
        note(f"showing {limit} tasks; use --limit for more")


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
    return ResultRow(task.id, task.index, task.status, task.exit_code, seconds, task.result, task.number)


def _keys(rows: list[ResultRow]) -> list[str] | None:
    """The keys of all results, in the order in which they first occur; None if some have none, or if they are many."""
    given = [row.result for row in rows if row.result is not None]
    if not given or not all(isinstance(each, dict) for each in given):
        return None
    keys = list(dict.fromkeys(key for each in given for key in each))
    return keys if len(keys) <= COLUMNS_MAX else None


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
    keys = _keys(rows)
    table = Table("TASK", "STATUS", "EXIT", "TIME", *(["RESULT"] if keys is None else map(clean, keys)))
    for row in rows:
        took = None if row.seconds is None else describe_seconds(row.seconds)
        table.add(label(row), row.status, row.exit_code, took, *_cells(row, keys))
    return table


def _csv(rows: list[ResultRow]) -> str:
    """As a spreadsheet or pandas reads it; what a terminal would obey is left out."""
    keys = _keys(rows)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["task", "status", "exit_code", "seconds", *(["result"] if keys is None else keys)])
    writer.writerows([label(row), row.status, row.exit_code, row.seconds, *_cells(row, keys)] for row in rows)
    return CONTROL.sub("", out.getvalue())
