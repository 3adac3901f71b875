"""`phalanx gang`: jobs whose tasks start together, and the phase of each."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import typer

from phalanx.cli.job import IdArgument, job_lines
from phalanx.cli.labels import label
from phalanx.cli.members import member_table, placed
from phalanx.cli.output import OutputOption, Table, emit
from phalanx.cli.pages import collected
from phalanx.cli.ps import JobListing
from phalanx.cli.session import session
from phalanx.cli.status_words import LIVE

MEMBERS_SHOWN = 1000


def gangs(
    ctx: typer.Context,
    every: Annotated[bool, typer.Option("-a", "--all", help="Include ended gangs.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of jobs to look at.")] = 1000,
    output: OutputOption = None,
) -> None:
    """List gangs, the newest first, with the phase of each."""
    here = session(ctx)
    listing = JobListing(statuses=() if every else LIVE)
    found = islice(listing.jobs(here.client()), limit)
    items = [job for job in found if job.gang is not None]
    headings = ("ID", "NAME", "PHASE", "PLACED/MEMBERS", "NEEDED", "QUEUE", "PRIORITY", "RESTARTS")
    table = Table(*headings, narrows={"NAME": 10, "QUEUE": 8}, spare=("PRIORITY", "NEEDED"))
    for job in items:
        assert job.gang is not None
        used = None if job.restart_limit is None else f"{job.restarts}/{job.restart_limit}"
        table.add(
            label(job), job.name, job.gang.phase, placed(job), job.gang.needed, job.queue, job.priority, used
        )
    emit(items, here.output(output), [label(job) for job in items], lambda _wide: table)


def show(ctx: typer.Context, id: IdArgument, output: OutputOption = None) -> None:
    """Show a gang with all its members: rank, node or nominated node, and message."""
    here = session(ctx)
    client = here.client()
    job = client.job(id)
    tasks, _ = collected(lambda **page: client.tasks(job.id, **page), MEMBERS_SHOWN)
    table = member_table(tasks)
    lines = [
        *job_lines(job, None),
        "",
        *table.lines(),
    ]
    emit({"job": job, "tasks": tasks}, here.output(output), [label(job)], lambda _wide: lines)
