"""`phalanx ps`: jobs, or the tasks of one job, in a list, once or live.

A pipe gets every row, page by page, so that a long list needs little memory; a terminal gets as many as it can use, and
is told of the others. A live list on a terminal is drawn again when the coordinator says that something changed; into
a pipe go the changes themselves, one a line. The live half is in `live.py`, the columns are in `job_table.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from functools import partial
from heapq import merge
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer
from msgspec import Struct

from phalanx.api.schema.jobs import JobView, StatusWord, TaskView
from phalanx.cli.completion import job_ids, node_names
from phalanx.cli.instants import read_since
from phalanx.cli.job_names import shown_id
from phalanx.cli.job_table import SPARE, check_columns, chosen_columns, sorted_jobs, table_of
from phalanx.cli.labels import label
from phalanx.cli.output import Table, note
from phalanx.cli.pages import each_item
from phalanx.cli.rows import show_rows
from phalanx.cli.session import session
from phalanx.cli.status_words import LIVE, ShownStatus, fits, is_finer, statuses_of
from phalanx.cli.waiting_reasons import JOBS_MAX, WaitingReasons
from phalanx.clock import SystemClock
from phalanx.core.model.amounts import plural

if TYPE_CHECKING:
    from phalanx.client.client import Client

SCREEN_ROWS = 100
# Typer takes several choices only from an Enum.
Status = Enum("Status", [(word, word) for word in get_args(StatusWord)])  # type: ignore[misc]
MineOption = Annotated[bool, typer.Option("--mine", "-m", help="Only my jobs.")]
UserOption = Annotated[str | None, typer.Option("--user", "-u", help="Only jobs of this user.")]
NameOption = Annotated[
    str | None, typer.Option("-n", "--name", help="Only jobs with this name; * stands for any text: 'exp*'.")
]
QueueOption = Annotated[str | None, typer.Option("-q", "--queue", help="Only jobs of this queue.")]

StatusOption = Annotated[
    list[ShownStatus] | None,
    typer.Option(
        *("-s", "--status"),
        case_sensitive=False,
        help="Only jobs or tasks with this status, as the list shows it.",
    ),
]
SelectorOption = Annotated[
    str | None,
    typer.Option(
        "-l", "--selector", metavar="K=V,...", help="Only jobs with these tags: K=V, K!=V, K or !K."
    ),
]
SinceOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Only jobs submitted since: 2h, yesterday, 9:00, 2026-11-18T09:00."),
]
UntilOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only jobs submitted before: 2h, 3d, 2026-11-18, …")
]
NodeOption = Annotated[
    str | None,
    typer.Option(
        metavar="NODE",
        help="Only jobs with a task on this node; of ended ones, with one that was there.",
        autocompletion=node_names,
    ),
]
ListFormat = Literal["table", "json", "yaml", "wide", "name", "csv"]
ListOutputOption = Annotated[
    ListFormat | None, typer.Option("-o", "--output", help="Output format.", show_default="table")
]
TasksOption = Annotated[
    str | None, typer.Option(metavar="JOB", help="The tasks of one job.", autocompletion=job_ids)
]
SortOption = Annotated[
    str | None, typer.Option(metavar="KEY", help="Sort by number, name, status, …; -KEY reverses.")
]
ColumnsOption = Annotated[
    str | None, typer.Option(metavar="A,B,...", help="The columns: id,name,status,elapsed,…")
]
WatchOption = Annotated[bool, typer.Option("-w", "--watch", help="Keep running and show changes.")]
LimitOption = Annotated[
    int | None,
    typer.Option(min=0, help="Maximum number of rows; 0 = all.", show_default="100 on a terminal"),
]


class JobListing(Struct, frozen=True, kw_only=True):
    """Which jobs or tasks to show."""

    ids: Sequence[str] = ()  # these jobs, and no others
    job: str | None = None  # whose tasks; None: jobs
    statuses: Sequence[str] = ()  # as lists show them
    queue: str | None = None
    name: str | None = None
    selector: str | None = None
    user: str | None = None
    mine: bool = False
    since: float | None = None
    until: float | None = None
    node: str | None = None

    def read(self, client: Client, most: int = sys.maxsize) -> Iterator[JobView | TaskView]:
        """The newest first, a page at a time, at most so many."""
        if self.ids:
            named = [client.job(id) for id in self.ids]
            return iter([job for job in named if not self.statuses or fits(job, self.statuses)][:most])
        asked = sys.maxsize if is_finer(self.statuses) else most
        items = self.jobs(client, asked) if self.job is None else self._tasks(client, self.job, asked)
        if not is_finer(self.statuses):
            return items
        return islice((item for item in items if fits(item, self.statuses)), most)

    def jobs(self, client: Client, most: int = sys.maxsize) -> Iterator[JobView]:
        """Jobs that have one of the statuses of the API that are asked for."""
        ask = partial(
            client.jobs,
            queue=self.queue,
            name=self.name,
            selector=self.selector,
            user=self.user,
            mine=self.mine,
            since=self.since,
            until=self.until,
            node=self.node,
        )
        lists = [each_item(partial(ask, status=status), most) for status in self._statuses]
        # Ids grow with time, so of several lists that one is next which has the greatest id. Between two lists a job
        # may have changed from one status to the other.
        before = ""
        for job in merge(*lists, key=lambda job: job.id, reverse=True):
            if job.id != before:
                yield job
            before = job.id

    @property
    def _statuses(self) -> Sequence[StatusWord | None]:
        return statuses_of(self.statuses) or (None,)

    def _tasks(self, client: Client, job: str, most: int) -> Iterator[TaskView]:
        ask = partial(client.tasks, job, selector=self.selector)
        return chain.from_iterable(each_item(partial(ask, status=status), most) for status in self._statuses)


def ps(  # noqa: PLR0913, PLR0917 - its options
    ctx: typer.Context,
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ID]...", help="Only these jobs.", autocompletion=job_ids, show_default=False
        ),
    ] = None,
    every: Annotated[bool, typer.Option("-a", "--all", help="Include ended jobs.")] = False,
    mine: MineOption = False,
    user: UserOption = None,
    status: StatusOption = None,
    queue: QueueOption = None,
    name: NameOption = None,
    selector: SelectorOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    node: NodeOption = None,
    tasks: TasksOption = None,
    sort: SortOption = None,
    columns: ColumnsOption = None,
    watch: WatchOption = False,
    limit: LimitOption = None,
    output: ListOutputOption = None,
) -> None:
    """List jobs, the newest first.

    Pending and running ones; with --all also ended ones. Waiting jobs have a reason in a word, the first of `why`.
    """
    here = session(ctx)
    check_columns(columns, of_tasks=tasks is not None)
    chosen: ListFormat = output if output == "csv" else here.output(output)
    filters = {"user": user, "mine": mine, "queue": queue, "name": name, "selector": selector}
    _check_ids(ids or [], tasks, filters | {"since": since, "until": until, "node": node})
    statuses = [each.value for each in status or []] or ([] if every or tasks or ids else list(LIVE))
    listing = JobListing(
        ids=ids or [],
        job=tasks,
        statuses=statuses,
        queue=queue,
        name=name,
        selector=selector,
        user=user,
        mine=mine,
        since=None if since is None else read_since(since, SystemClock().now()),
        until=None if until is None else read_since(until, SystemClock().now(), "--until"),
        node=node,
    )
    for each in ids or [tasks or ""]:
        if each:
            shown_id(here.client(), each)
    shown = Shown(listing, sort, columns, chosen in {"wide", "csv"}, WaitingReasons(SystemClock()))
    if watch:
        if chosen == "csv":
            raise typer.BadParameter("-w shows changes; csv is for a list", param_hint="-o")
        from phalanx.cli.live import follow

        follow(here, tasks, chosen, shown.screen)
        return
    _list(here.client(), shown, chosen, _most(limit))


def _list(client: Client, shown: Shown, chosen: ListFormat, most: int) -> None:
    """Print the list once, and below it what of it is missing."""
    rest = shown.items(client, most)
    items = islice(rest, most)
    count = show_rows(items, chosen, label, partial(shown.table, client))
    if not count and chosen in {"table", "wide"}:
        note(_nothing(client, shown.listing))
    if shown.reasons.is_cut:
        note(f"reasons are those of the first {JOBS_MAX} waiting jobs at most: phalanx why ID")
    if count == most and next(rest, None) is not None:
        note(f"there are more than these {most}: --limit 0 lists all")


def tasks_of(
    ctx: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB", show_default=False, autocompletion=job_ids)],
    status: StatusOption = None,
    selector: SelectorOption = None,
    columns: ColumnsOption = None,
    watch: WatchOption = False,
    limit: LimitOption = None,
    output: ListOutputOption = None,
) -> None:
    """List the tasks of one job."""
    ps(
        ctx,
        status=status,
        selector=selector,
        tasks=job,
        columns=columns,
        watch=watch,
        limit=limit,
        output=output,
    )


class Shown(Struct, frozen=True):
    """A list as it was asked for: which items, in which order, under which headings."""

    listing: JobListing
    sort: str | None
    columns: str | None
    wide: bool
    reasons: WaitingReasons

    def items(self, client: Client, most: int) -> Iterator[JobView | TaskView]:
        """Those that are shown, and one more if there are more."""
        if self.sort is None or self.listing.job is not None:
            return self.listing.read(client, most + 1)
        jobs = (each for each in self.listing.read(client) if isinstance(each, JobView))
        return iter(sorted_jobs(jobs, self.sort))

    def table(self, client: Client, items: Sequence[JobView | TaskView]) -> Table:
        if self.columns is None or "reason" in self.columns.lower():
            items = self.reasons.told(client, items)
        headings = chosen_columns(self.columns, items, self.wide, self._has_others(client, items))
        return table_of(
            items,
            headings,
            SystemClock().now(),
            narrows=not self.wide,
            spare=SPARE if self.columns is None else (),
        )

    def screen(self, client: Client, rows: int) -> tuple[Table, str]:
        """As much as a screen holds, and what is left out of it."""
        rest = self.items(client, rows)
        items = list(islice(rest, rows))
        if not items:
            return Table(), _nothing(client, self.listing)
        return self.table(client, items), "" if next(
            rest, None
        ) is None else f"the newest {rows}; there are more"

    def _has_others(self, client: Client, items: Sequence[JobView | TaskView]) -> bool:
        """Whether jobs of other users than who asks are among them, where that was not asked for by name."""
        users = {item.user for item in items if isinstance(item, JobView)}
        if self.listing.mine or self.listing.user or self.columns or self.wide or len(users) != 1:
            return len(users) > 1
        return not client.jobs(mine=True, user=users.pop(), limit=1).items


def _check_ids(ids: Sequence[str], tasks: str | None, filters: Mapping[str, object]) -> None:
    """`ps waiting` means a status, `ps 4 --tasks 5` is two lists, and of jobs that are named none is left out."""
    if ids and (beside := [name for name, value in filters.items() if value]):
        raise typer.BadParameter(f"give jobs, or --{beside[0]} to choose some", param_hint="ID")
    if ids and tasks:
        raise typer.BadParameter("give jobs, or --tasks and one job", param_hint="ID")
    word = "pending" if ids and ids[0].lower() in {"waiting", "queued"} else "".join(ids[:1]).lower()
    if word in {each.value.lower() for each in ShownStatus}:
        raise typer.BadParameter(f"{ids[0]} is a status: phalanx ps -s {word}", param_hint="ID")


def _most(limit: int | None) -> int:
    """How many to list: a screen gets what it can use, a file or a pipe everything."""
    if limit is None:
        return SCREEN_ROWS if sys.stdout.isatty() else sys.maxsize - 1
    return limit or sys.maxsize - 1


def _unknown_queue(client: Client, queue: str) -> str:
    """That a queue was never declared; empty if it was."""
    known = [each.name for each in client.queues()]
    if queue in known:
        return ""
    near = get_close_matches(queue, known, n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    return f"no jobs: there is no queue {queue!r}{meant} (phalanx queue list)"


def _nothing(client: Client, listing: JobListing) -> str:
    """That the list is empty, and where the others are."""
    if listing.queue is not None and (unknown := _unknown_queue(client, listing.queue)):
        return unknown
    if listing.node is not None:
        client.node(listing.node)  # there is no such node: that is the error
    if listing.job is not None or listing.statuses != list(LIVE):
        return "nothing to list"
    is_all = (
        not any(
            (
                listing.queue,
                listing.name,
                listing.selector,
                listing.user,
                listing.mine,
                listing.since,
                listing.until,
            )
        )
        and listing.node is None
    )
    counts = client.cluster().tasks
    ended = counts.completed + counts.failed + counts.cancelled
    others = f"; {plural(ended, 'task')} ended: phalanx ps --all" if is_all and ended else ""
    return f"nothing is waiting or running{others}" if is_all else "no matching jobs are waiting or running"
