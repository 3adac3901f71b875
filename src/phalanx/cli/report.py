"""`phalanx report`: what users, queues or jobs were granted, used and cost."""

from __future__ import annotations

import csv
import sys
from typing import Annotated, Literal

import typer
from msgspec import structs

from phalanx.api.schema.usage import ROWS_MAX, ReportBy, ReportReply, ReportRow
from phalanx.cli.instants import read_since
from phalanx.cli.output import Table, emit, note
from phalanx.cli.session import session
from phalanx.cli.usage_table import percent
from phalanx.clock import SystemClock
from phalanx.core.model.amounts import describe_bytes, plural

Form = Literal["table", "wide", "json", "yaml", "name", "csv"]


def report(
    ctx: typer.Context,
    by: Annotated[ReportBy, typer.Option(help="What each row is about.")] = "user",
    user: Annotated[str | None, typer.Option("-u", "--user", help="Only jobs of this user.")] = None,
    queue: Annotated[str | None, typer.Option("-q", "--queue", help="Only jobs of this queue.")] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="From then on: 7d or 12h ago, or a date such as 2026-11-01."),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Before then, written as --since.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=ROWS_MAX, help="Maximum number of rows; the rest are summed up.")
    ] = 1000,
    output: Annotated[
        Form | None, typer.Option("-o", "--output", help="Output format.", show_default="table")
    ] = None,
) -> None:
    """Report what users, queues or jobs were granted, used and cost.

    Counted are jobs that ended in the given time, and those that have not ended if the time reaches to now.
    """
    here = session(ctx)
    now = SystemClock().now()
    reply = here.client().report(
        by,
        user=user,
        queue=queue,
        since=read_time("--since", since, now),
        until=read_time("--until", until, now),
        limit=limit,
    )
    if output == "csv":
        _write_csv(reply)
        return
    chosen = here.output(output)
    emit(reply, chosen, [row.key for row in reply.rows], lambda wide: _table(reply, wide))
    if reply.others is not None and chosen in {"table", "wide"}:
        note(f"{plural(reply.others.jobs, 'job')} in the row `others`: --limit shows more rows")


def read_time(option: str, text: str | None, now: float) -> float | None:
    """As people write it; None for none."""
    return None if text is None else read_since(text, now, option)


def _rows(reply: ReportReply) -> list[ReportRow]:
    return [*reply.rows, *([] if reply.others is None else [reply.others]), reply.total]


def _table(reply: ReportReply, wide: bool) -> Table:
    of_jobs = ("NAME", "USER", "QUEUE", "STATUS") if reply.by == "job" else ()
    more = ("READ", "WRITTEN", "ATTEMPTS", *(("LONG ID",) if of_jobs else ())) if wide else ()
    table = Table(
        *(reply.by.upper(), *(of_jobs or ("JOBS",)), "TASKS", "CORE-HOURS", "USED", "CPU", "MEMORY"),
        *("GPU-HOURS", "GPU USE", "GPU IDLE", "COST", *more),
        narrows={"NAME": 10, "USER": 6, "QUEUE": 7},
        spare=("JOBS", "QUEUE", "USED", "GPU IDLE", "MEMORY", "USER", "STATUS", "GPU USE"),
    )
    for row in _rows(reply):
        used = row.usage
        table.add(
            row.number or row.key,
            *((row.name, row.user, row.queue, row.status) if of_jobs else (row.jobs,)),
            used.tasks,
            f"{used.core_hours:.2f}",
            f"{used.core_hours_used:.2f}",
            percent(used.cpu_efficiency),
            percent(used.memory_share),
            f"{used.device_hours:.2f}",
            percent(used.device_use),
            _idle(used.device_hours, used.device_use, used.device_hours_idle),
            f"{used.cost:.2f}",
            *(
                (describe_bytes(used.read_bytes), describe_bytes(used.written_bytes), used.attempts)
                if wide
                else ()
            ),
            *((row.key,) if wide and of_jobs else ()),
        )
    return table


def _idle(hours: float, use: float | None, idle: float) -> str | None:
    """Nothing is known of devices that were granted and not measured."""
    return None if hours and use is None else f"{idle:.2f}"


def _write_csv(reply: ReportReply) -> None:
    """Every number as it is, a row for each key; sums are left to who reads it."""
    rows = [*reply.rows, *([] if reply.others is None else [reply.others])]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    plain = ["name", "user", "queue", "status"] if reply.by == "job" else []
    writer.writerow([reply.by, *plain, "jobs", *reply.total.usage.__struct_fields__])
    for row in rows:
        texts = [_safe(getattr(row, name)) for name in plain]
        numbers = ["" if value is None else value for value in structs.astuple(row.usage)]
        writer.writerow([_safe(row.key), *texts, row.jobs, *numbers])


def _safe(text: str) -> str:
    """A spreadsheet takes what begins so for a formula, and names are chosen by users."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
