"""`phalanx ps`: jobs, or the tasks of one job, in a list, once or live.

A live list on a terminal is drawn again when the coordinator says that something changed; into a pipe go the
changes themselves, one a line. The live half is in `live.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from phalanx.api.schema.jobs import JobView, StatusWord, TaskView
from phalanx.cli.completion import job_ids
from phalanx.cli.members import placed, standing
from phalanx.cli.output import OutputOption, Table, emit, moment, note, span
from phalanx.cli.pages import collected
from phalanx.cli.session import session
from phalanx.clock import SystemClock

if TYPE_CHECKING:
    from phalanx.client.client import Client

SCREEN_ROWS = 100
LIVE: tuple[StatusWord, ...] = ("Running", "Assigned", "Pending")
# Typer takes several choices only from an Enum.
Status = Enum("Status", [(word, word) for word in get_args(StatusWord)])  # type: ignore[misc]


class JobListing:
    """Which jobs or tasks to show."""

    def __init__(
        self,
        job: str | None,
        statuses: list[StatusWord],
        queue: str | None,
        name: str | None,
        selector: str | None = None,
    ) -> None:
        self.job = job
        self.statuses: Sequence[StatusWord | None] = statuses or [None]
        self.queue = queue
        self.name = name
        self.selector = selector

    def read(self, client: Client, limit: int) -> tuple[list[JobView] | list[TaskView], bool]:
        """The newest `limit` of them, and whether there are more."""
        return self.read_jobs(client, limit) if self.job is None else self._tasks(client, self.job, limit)

    def read_jobs(self, client: Client, limit: int) -> tuple[list[JobView], bool]:
        """The same of jobs only."""
        found: list[JobView] = []
        more = False
        for status in self.statuses:
            ask = partial(
                client.jobs, status=status, queue=self.queue, name=self.name, selector=self.selector
            )
            jobs, left = collected(ask, limit)
            found, more = found + jobs, more or left
        # Ids grow with time, so the newest of several lists are those with the greatest ids.
        return sorted(found, key=lambda job: job.id, reverse=True)[:limit], more or len(found) > limit

    def _tasks(self, client: Client, job: str, limit: int) -> tuple[list[TaskView], bool]:
        found: list[TaskView] = []
        more = False
        for status in self.statuses:
            tasks, left = collected(partial(client.tasks, job, status=status, selector=self.selector), limit)
            found, more = found + tasks, more or left
        return found[:limit], more or len(found) > limit


def ps(  # noqa: PLR0913, PLR0917 - its options
    ctx: typer.Context,
    every: Annotated[bool, typer.Option("-a", "--all", help="Include ended jobs.")] = False,
    status: Annotated[
        list[Status] | None, typer.Option(case_sensitive=False, help="Only jobs with this status.")
    ] = None,
    queue: Annotated[str | None, typer.Option("-q", "--queue", help="Only jobs of this queue.")] = None,
    name: Annotated[str | None, typer.Option("-n", "--name", help="Only jobs with this name.")] = None,
    selector: Annotated[
        str | None,
        typer.Option(
            "-l", "--selector", metavar="K=V,...", help="Only jobs with these tags: K=V, K!=V, K or !K."
        ),
    ] = None,
    tasks: Annotated[
        str | None, typer.Option(metavar="JOB", help="The tasks of one job.", autocompletion=job_ids)
    ] = None,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Keep running and show changes.")] = False,
    limit: Annotated[
        int | None,
        typer.Option(min=0, help="Maximum number of rows; 0 = all.", show_default="100 on a terminal"),
    ] = None,
    output: OutputOption = None,
) -> None:
    """List jobs, the newest first.

    Pending and running ones; with --all also ended ones.
    """
    here = session(ctx)
    chosen = here.output(output)
    most = _most(limit)
    statuses = [each.value for each in status or []] or ([] if every or tasks else list(LIVE))
    listing = JobListing(tasks, statuses, queue, name, selector)
    if watch:
        from phalanx.cli.live import follow

        follow(here, tasks, chosen, lambda client: table_of(listing.read(client, most)[0], chosen == "wide"))
        return
    items, more = listing.read(here.client(), most)
    emit(items, chosen, [item.id for item in items], lambda wide: table_of(items, wide))
    if more:
        note(f"there are more than these {most}: --limit 0 lists all")


def _most(limit: int | None) -> int:
    """How many to list: a screen gets what it can use, a file or a pipe everything."""
    if limit is None:
        return SCREEN_ROWS if sys.stdout.isatty() else sys.maxsize
    return limit or sys.maxsize


def table_of(items: list[JobView] | list[TaskView], wide: bool) -> Table:
    """Jobs or tasks as a table."""
    now = SystemClock().now()
    table = Table()
    for item in items:
        row = _job_row(item, now, wide) if isinstance(item, JobView) else _task_row(item, now, wide)
        table.headings = tuple(row)
        table.add(*row.values())
    if not items:
        table.headings = ("ID", "NAME", "STATUS")
    return table


def _job_row(job: JobView, now: float, wide: bool) -> dict[str, object]:
    row: dict[str, object] = {
        "ID": job.id,
        "NAME": job.name,
        "STATUS": job.status,
        "TASKS": _tasks_in_short(job),
        "QUEUE": job.queue,
        "TIME": span(job.started_at, job.ended_at or now),
        "COMMAND": " ".join(job.command),
    }
    if wide:
        asked = job.request
        row |= {
            "PRIORITY": job.priority,
            "REASON": job.reason,
            "PHASE": job.gang.phase if job.gang is not None else None,
            "PLACED": placed(job) if job.gang is not None else None,
            "EXIT": job.exit_code,
            "CORES": asked.cores,
            "GPUS": asked.gpus,
            "TARGET": asked.target,
            "USER": job.user,
            "SUBMITTED": moment(job.submitted_at),
        }
    return row


def _task_row(task: TaskView, now: float, wide: bool) -> dict[str, object]:
    row: dict[str, object] = {
        "ID": task.id,
        "STATUS": standing(task),
        "NODE": task.node if task.nominated_node is None else f"({task.nominated_node})",
        "GPUS": ",".join(map(str, task.devices)),
        "ATTEMPT": task.attempt,
        "EXIT": task.exit_code,
        "TIME": span(task.started_at, task.ended_at or now),
        "REASON": task.reason,
    }
    if wide:
        row |= {
            "GROUP": task.group,
            "RANK": task.rank,
            "TARGET": task.target,
            "STARTED": moment(task.started_at),
            "MESSAGE": task.message,
        }
    return row


def _tasks_in_short(job: JobView) -> str:
    """`3/10` have ended."""
    counts = job.counts
    ended = counts.completed + counts.failed + counts.cancelled + job.finished
    return f"{ended}/{job.tasks}" + (f" ({counts.failed} failed)" if counts.failed else "")
