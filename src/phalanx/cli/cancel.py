"""`phalanx cancel`: jobs, tasks and workflows by name, or all jobs that fit at once.

Many at once are listed first and counted; on a terminal the user is asked, a script has to say `--yes`. VPSs are left
out of many: the end of one removes its files, and whoever clears the queue does not think of them.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from phalanx.api.schema.jobs import CancelReply, JobView
from phalanx.cli.completion import job_ids
from phalanx.cli.job import each_of
from phalanx.cli.labels import label
from phalanx.cli.output import OutputOption, emit, note
from phalanx.cli.ps import JobListing, NameOption, QueueOption, UserOption
from phalanx.cli.session import session
from phalanx.cli.status_words import LIVE
from phalanx.core.model.amounts import plural
from phalanx.errors import BadRequest, NotFound

if TYPE_CHECKING:
    from phalanx.client.client import Client

TOLD_MAX = 5


def cancel(
    ctx: typer.Context,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", autocompletion=job_ids)] = None,
    every: Annotated[bool, typer.Option("--all", help="All my jobs that have not ended.")] = False,
    name: NameOption = None,
    user: UserOption = None,
    queue: QueueOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output: OutputOption = None,
) -> int:
    """Cancel jobs, tasks or workflows, waiting or running.

    With --all, --name, --user or --queue all jobs that fit and have not ended: mine, unless --user says whose.
    VPSs are left out; `phalanx vps stop` ends them.
    """
    here = session(ctx)
    client, many = here.client(), every or any((name, user, queue))
    if bool(ids) == many:
        raise BadRequest("give jobs, or one of --all, --name, --user, --queue", hint="phalanx cancel 17")
    if pattern := next((id for id in ids or [] if "*" in id), None):
        raise typer.BadParameter(
            f"{pattern} is a pattern: phalanx cancel --name '{pattern}'", param_hint="ID"
        )
    if many:
        listing = JobListing(statuses=LIVE, name=name, user=user, mine=user is None, queue=queue)
        ids = _agreed(client, listing, yes)
    found, code = each_of(lambda id: _cancelled(client, id), ids or [])
    replies, lines = [reply for reply, _ in found], [_line(reply, noun) for reply, noun in found]
    if many:
        lines.append(f"{plural(len(replies), 'job')} cancelled")
    emit(replies, here.output(output), [label(each) for each in replies], lambda _wide: lines)
    return code


def _cancelled(client: Client, id: str) -> tuple[CancelReply, str]:
    """Cancel what an id names, and what was cancelled of it: tasks of a job, or stages of a workflow."""
    try:
        return client.cancel(id), "task"
    except NotFound as error:
        if error.reason != "IsWorkflow":
            raise
    return client.cancel_workflow(id), "stage"


def _agreed(client: Client, listing: JobListing, yes: bool) -> list[str]:
    """The ids of the jobs that fit, if the user means them."""
    fitting = [job for job in listing.jobs(client) if not job.workflow]
    jobs = [job for job in fitting if job.kind != "vps"]
    if vpss := [job for job in fitting if job.kind == "vps"]:
        note(f"{_told(vpss, 'VPS')} left running: phalanx vps stop ends one and removes its files")
    if not jobs:
        note("no matching jobs")
        return []
    if yes:
        return [job.id for job in jobs]
    if not sys.stdin.isatty():
        raise BadRequest(f"{_told(jobs)} would be cancelled: give --yes")
    typer.confirm(f"Cancel {_told(jobs)}?", abort=True, err=True)
    return [job.id for job in jobs]


def _told(jobs: list[JobView], noun: str = "job") -> str:
    some = ", ".join(f"{label(job)} {job.name}".strip() for job in jobs[:TOLD_MAX])
    return f"{plural(len(jobs), noun)} ({some}{', …' if len(jobs) > TOLD_MAX else ''})"


def _line(reply: CancelReply, noun: str) -> str:
    stopping = ""
    if reply.stopping:
        stopping = f", {reply.stopping if noun == 'task' else plural(reply.stopping, 'task')} being stopped"
    return f"{label(reply)} cancelled ({plural(reply.cancelled, noun)}{stopping})"
