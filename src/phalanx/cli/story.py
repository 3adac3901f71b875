"""`phalanx story`: everything that happened to a job, a task or a node, in order."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from phalanx.api.schema.jobs import StoryLine
from phalanx.cli.instants import read_since
from phalanx.cli.job import IdArgument
from phalanx.cli.output import OutputOption, Table, emit, moment, note
from phalanx.cli.pages import newest
from phalanx.cli.session import session
from phalanx.clock import SystemClock
from phalanx.errors import NotFound

if TYPE_CHECKING:
    from phalanx.client.client import Client


def story(
    ctx: typer.Context,
    id: IdArgument,
    limit: Annotated[
        int, typer.Option("--limit", "--tail", "-n", min=1, help="Maximum number of lines, the newest.")
    ] = 1000,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only what happened since: 10m, 2h, yesterday, 2026-11-18T09:00."),
    ] = None,
    output: OutputOption = None,
) -> None:
    """Show the full event history of a job, task or node."""
    here = session(ctx)
    at = None if since is None else read_since(since, SystemClock().now())
    lines, more = _lines(here.client(), id, limit, at)
    emit(lines, here.output(output), [line.event for line in lines], lambda wide: _table(lines, wide))
    if more:
        note(f"the newest {limit} lines; older ones are left out: --limit {limit * 10} shows more of them")
    elif since is not None and not lines:
        note(f"nothing happened since {since}; without --since all is shown")


def _lines(client: Client, id: str, limit: int, since: float | None) -> tuple[list[StoryLine], bool]:
    """Of the job or task with this id, or else of the node with this name."""
    try:
        return newest(partial(client.story, id), limit, since)
    except NotFound as error:
        try:
            return newest(partial(client.story, id, of="nodes"), limit, since)
        except NotFound:
            raise error from None


def _table(lines: list[StoryLine], wide: bool) -> Table:
    several = len({line.task for line in lines if line.task}) > 1
    who = ("TASK",) if several or wide else ()
    more = ("NODE", "EPOCH", "CAUSE") if wide else ()
    table = Table("TIME", *who, "EVENT", "WHAT HAPPENED", *more, narrows={"WHAT HAPPENED": 24, "TIME": 10})
    for line in lines:
        cells = (line.node, line.epoch, line.cause) if wide else ()
        task = (line.number or line.task,) if who else ()
        table.add(moment(line.at), *task, line.event, line.text, *cells)
    return table
