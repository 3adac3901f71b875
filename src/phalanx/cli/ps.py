"""`phalanx ps`: jobs and tasks in a list, once or live.

A live list on a terminal is drawn again when the coordinator says that something changed; into a pipe go the
changes themselves, one a line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from phalanx.api.schema import JobView, StatusWord, TaskView, WatchEvent
from phalanx.cli.completion import job_ids
from phalanx.cli.output import OutputOption, emit, note
from phalanx.cli.session import Session, session
from phalanx.cli.table import Table
from phalanx.cli.text import clean, moment, span
from phalanx.clock import SystemClock
from phalanx.config import Output

if TYPE_CHECKING:
    from phalanx.api.client import Client

LIVE: tuple[StatusWord, ...] = ("Running", "Assigned", "Pending")
PAGE_MAX = 1000


class Choice:
    """Which jobs or tasks to list."""

    def __init__(self, statuses: list[StatusWord], queue: str | None, name: str | None, limit: int) -> None:
        self.statuses = statuses
        self.queue = queue
        self.name = name
        self.limit = limit


def ps(
    ctx: typer.Context,
    every: Annotated[bool, typer.Option("-a", "--all", help="Those that have ended, too.")] = False,
    status: Annotated[list[StatusWord] | None, typer.Option(case_sensitive=False, help="Only these.")] = None,
    queue: Annotated[str | None, typer.Option("-q", "--queue", help="Only of this queue.")] = None,
    name: Annotated[str | None, typer.Option("-n", "--name", help="Only of this name.")] = None,
    tasks: Annotated[
        str | None, typer.Option(metavar="JOB", help="The tasks of one job.", autocompletion=job_ids)
    ] = None,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Stay and show what changes.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 100,
    output: OutputOption = None,
) -> None:
    """List jobs, the newest first: those that wait or run, with --all every one."""
    here = session(ctx)
    choice = Choice(status or ([] if every or tasks else list(LIVE)), queue, name, limit)
    chosen = here.output(output)
    if not watch:
        _list(here.client(), choice, tasks, chosen)
    elif chosen in {"table", "wide"} and sys.stdout.isatty():
        from phalanx.cli.live import redraw

        redraw(here, tasks, lambda client: _drawn(client, choice, tasks, chosen == "wide"))
    else:
        _stream(here, tasks, chosen)


def _list(client: Client, choice: Choice, job: str | None, output: Output) -> None:
    if job is not None:
        tasks = _tasks(client, choice, job)
        emit(tasks, output, [task.id for task in tasks], lambda wide: _task_table(tasks, wide))
    else:
        jobs = _jobs(client, choice)
        emit(jobs, output, [each.id for each in jobs], lambda wide: _job_table(jobs, wide))


def _drawn(client: Client, choice: Choice, job: str | None, wide: bool) -> Table:
    if job is not None:
        return _task_table(_tasks(client, choice, job), wide)
    return _job_table(_jobs(client, choice), wide)


def _jobs(client: Client, choice: Choice) -> list[JobView]:
    """Ids grow with time, so the newest of several lists are those with the greatest ids."""
    found: list[JobView] = []
    for status in choice.statuses or [None]:
        found += _pages(choice.limit, lambda cursor, size, status=status: client.jobs(
            status=status, queue=choice.queue, name=choice.name, cursor=cursor, limit=size
        ))
    return _newest(found, choice.limit)
