"""`phalanx usage`: what a job or task uses, live or in sum."""

from __future__ import annotations

import sys
from threading import Event
from typing import Annotated

import msgspec
import typer

from phalanx.api.schema.usage import TASKS_MAX, UsageReply
from phalanx.cli.job import IdArgument, id_of
from phalanx.cli.labels import label
from phalanx.cli.output import OutputOption, Table, clean_lines, emit, json_text, note
from phalanx.cli.session import session
from phalanx.cli.usage_table import task_lines, tasks_table, totals_line
from phalanx.client.calls import FINAL
from phalanx.settings import Output

PAUSE_S_MIN = 1.0


def usage(
    ctx: typer.Context,
    id: IdArgument,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Keep running until it ends.")] = False,
    limit: Annotated[
        int, typer.Option(min=1, max=TASKS_MAX, help="Maximum number of tasks of an array or a gang.")
    ] = 100,
    output: OutputOption = None,
) -> None:
    """Show what a job or task uses: processors, memory, I/O and GPUs, against what it asked for.

    Of running tasks with curves of the time so far, of ended ones in sum.
    """
    here = session(ctx)
    client = here.client()
    chosen = here.output(output)
    id = id_of(client, id)
    reply = client.usage(id, limit=limit)
    if not watch:
        emit(reply, chosen, [label(task) for task in reply.tasks], lambda wide: _drawn(reply, wide))
        if reply.next_cursor is not None and chosen in {"table", "wide"}:
            note(f"there are more than these {limit} tasks: --limit shows up to {TASKS_MAX}")
        return
    never = Event()
    while True:
        _show(reply, chosen)
        if reply.status in FINAL:
            return
        never.wait(max(PAUSE_S_MIN, reply.interval_s or 0.0))
        reply = client.usage(id, limit=limit)


def _drawn(reply: UsageReply, wide: bool = False) -> Table | list[str]:
    if len(reply.tasks) == 1:
        return list(task_lines(reply.tasks[0], _can_draw()))
    table = tasks_table(reply)
    if sys.stdout.isatty():
        table.show(wide)
        return [totals_line(reply.totals)]
    return [*table.lines(), totals_line(reply.totals)]


def _show(reply: UsageReply, output: Output) -> None:
    """One state of several: a document a line, or lines that replace those before on a terminal."""
    if output in {"json", "yaml"}:
        sys.stdout.write(json_text(msgspec.json.encode(reply)) + "\n")
        sys.stdout.flush()
        return
    if sys.stdout.isatty():
        sys.stdout.write("\x1b[H\x1b[2J")
    drawn = _drawn(reply, output == "wide")
    for line in drawn if isinstance(drawn, list) else ():
        sys.stdout.write(f"{clean_lines(line)}\n")
    sys.stdout.write("" if sys.stdout.isatty() else "\n")
    sys.stdout.flush()


def _can_draw() -> bool:
    """Whether blocks can be written where this goes."""
    try:
        "▁█".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
