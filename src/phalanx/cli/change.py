"""`phalanx hold`, `release`, `update`: change jobs after they were submitted."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from phalanx.api.schema.jobs import JobView
from phalanx.cli.job import IdsArgument, each_of
from phalanx.cli.labels import label
from phalanx.cli.output import OutputOption, emit, moment
from phalanx.cli.session import session
from phalanx.core.model.amounts import describe_seconds, plural
from phalanx.errors import BadRequest


def hold(
    ctx: typer.Context,
    ids: IdsArgument,
    reason: Annotated[str, typer.Option(help="Why, for `why` and `show`.")] = "",
    output: OutputOption = None,
) -> int:
    """Hold jobs: nothing more of them starts until they are released.

    Tasks that have a place go on; of an array those that wait are held.
    """
    here = session(ctx)
    client = here.client()
    views, code = each_of(lambda id: client.hold(id, reason), ids)
    lines = [f"{label(each)} held, {plural(each.counts.pending, 'task')} waiting" for each in views]
    emit(views, here.output(output), [label(each) for each in views], lambda _wide: lines)
    return code


def release(ctx: typer.Context, ids: IdsArgument, output: OutputOption = None) -> int:
    """Release jobs that are held."""
    here = session(ctx)
    views, code = each_of(here.client().release, ids)
    emit(
        views,
        here.output(output),
        [label(each) for each in views],
        lambda _wide: [f"{label(each)} released" for each in views],
    )
    return code


def update(  # noqa: PLR0913, PLR0917 - its options
    ctx: typer.Context,
    ids: IdsArgument,
    priority: Annotated[int | None, typer.Option(help="New priority.")] = None,
    time_limit: Annotated[
        str | None,
        typer.Option(help="Another time limit, counted from the start of each task; none = no limit."),
    ] = None,
    queue: Annotated[
        str | None, typer.Option("-q", "--queue", help="Another queue, for a job that holds no place.")
    ] = None,
    begin: Annotated[
        str | None, typer.Option(metavar="TIME", help="Begin then, as for `submit`; now = at once.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=0, help="Most tasks of an array that run at once; 0 = all. What runs goes on."),
    ] = None,
    if_revision: Annotated[
        int | None, typer.Option(help="Only if its settings are at this revision, shown by `show`.")
    ] = None,
    output: OutputOption = None,
) -> int:
    """Change the settings of jobs that have not ended.

    Checked as at submit: the queue, your highest priority in it, its quota. A running task has the new time limit at
    once.
    """
    here = session(ctx)
    given: dict[str, Any] = {
        "priority": priority,
        "time_limit": time_limit,
        "queue": queue,
        "begin": begin,
        "at_once": limit,
    }
    fields: Any = {name: value for name, value in given.items() if value is not None}
    if not fields:
        raise BadRequest("nothing to change: give --priority, --time-limit, --queue, --begin or --limit")
    if if_revision is not None:
        fields["if_revision"] = if_revision
    client = here.client()
    views, code = each_of(lambda id: client.update(id, **fields), ids)
    lines = [f"{label(each)}: {_settings(each)}" for each in views]
    emit(views, here.output(output), [label(each) for each in views], lambda _wide: lines)
    return code


def _settings(job: JobView) -> str:
    """What can be changed, as it is now."""
    limit = describe_seconds(job.time_limit_s) if job.time_limit_s else "none"
    begin = f", begins {moment(job.begin_at)}" if job.begin_at else ""
    at_once = job.groups[0].at_once if len(job.groups) == 1 else 0
    most = f", at most {plural(at_once, 'task')} at once" if at_once else ""
    return f"queue {job.queue}, priority {job.priority}, time limit {limit}{begin}{most}"
