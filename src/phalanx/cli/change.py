"""`phalanx hold`, `release`, `update`: change jobs after they were submitted."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phalanx.api.schema.jobs import JobView
from phalanx.cli.command_words import tell_bare_seconds
from phalanx.cli.job import IdsArgument, each_of
from phalanx.cli.labels import label
from phalanx.cli.output import OutputOption, emit, moment
from phalanx.cli.pages import collected
from phalanx.cli.session import session
from phalanx.clock import SystemClock
from phalanx.core.model.amounts import describe_seconds, parse_seconds, plural
from phalanx.errors import BadRequest

if TYPE_CHECKING:
    from phalanx.client.client import Client

RUNNING_MAX = 1000  # running tasks that are looked at before a time limit is changed


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
        typer.Option(
            help="Another time limit, counted from the start of each task: 90s, 1h30m, none; a number is seconds.",
            callback=tell_bare_seconds,
        ),
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
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Also if running tasks end at once by the new time limit.")
    ] = False,
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

    def changed(id: str) -> JobView:
        if time_limit is not None and not yes:
            _refuse_passed(client, id, time_limit)
        return client.update(id, **fields)

    views, code = each_of(changed, ids)
    lines = [f"{label(each)}: {_settings(each)}" for each in views]
    emit(views, here.output(output), [label(each) for each in views], lambda _wide: lines)
    return code


def _refuse_passed(client: Client, id: str, time_limit: str) -> None:
    """Refuse a time limit that running tasks have passed already: they would end at once."""
    try:
        limit_s = parse_seconds(time_limit)
    except ValueError:
        return  # none, or what the coordinator refuses
    tasks, more = collected(partial(client.tasks, id, status="Running"), RUNNING_MAX)
    oldest = min((task.started_at for task in tasks if task.started_at is not None), default=None)
    now = SystemClock().now()
    passed = sum(task.started_at is not None and task.started_at + limit_s <= now for task in tasks)
    if oldest is None or not passed:
        return
    count = plural(passed, "running task") if not more else f"{passed} or more running tasks"
    raise BadRequest(
        f"{id}: {count} would end at once, as Failed: the time limit of {describe_seconds(limit_s)} has passed"
        f" ({'it has run' if passed == 1 else 'the longest has run'} for {describe_seconds(now - oldest)})",
        hint="give --yes if that is meant, or a longer --time-limit",
    )


def _settings(job: JobView) -> str:
    """What can be changed, as it is now."""
    limit = describe_seconds(job.time_limit_s) if job.time_limit_s else "none"
    begin = f", begins {moment(job.begin_at)}" if job.begin_at else ""
    at_once = job.groups[0].at_once if len(job.groups) == 1 else 0
    most = f", at most {plural(at_once, 'task')} at once" if at_once else ""
    return f"queue {job.queue}, priority {job.priority}, time limit {limit}{begin}{most}"
