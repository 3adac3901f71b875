"""The view of jobs: a list with a filter and an order, and under it the whole reason of the chosen job."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.coordinate import Coordinate
from textual.widgets import Input, Static

from phalanx.api.schema.jobs import JobView
from phalanx.cli.output import clean
from phalanx.cli.top.feed import SnapshotFeed
from phalanx.cli.top.job_details import job_title
from phalanx.cli.top.job_rows import (
    HEADINGS,
    SORT_WORDS,
    WIDTHS,
    JobQuery,
    JobsShown,
    TopJobRow,
    counted_reasons,
    is_waiting,
    job_rows,
    last_width,
)
from phalanx.cli.top.row_table import RowTable, styled
from phalanx.clock import SystemClock
from phalanx.core.model.amounts import plural

if TYPE_CHECKING:
    from phalanx.cli.top.app import TopApp

ROWS_MAX = 1000  # what nobody scrolls through is left out and counted


class JobsView(Vertical):
    """Jobs that run or wait."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "logs", "logs"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("w", "show_next", "which"),
        Binding("s", "sort", "sort"),
        Binding("S", "reverse", "reverse", show=False),
        Binding("x", "cancel", "cancel"),
        Binding("h", "hold", "hold"),
        Binding("p", "pause", show=False),
        Binding("escape", "unfilter", show=False),
    ]
    app: TopApp

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._feed: SnapshotFeed | None = None
        self._query = JobQuery()
        self._rows: list[TopJobRow] = []

    def compose(self) -> ComposeResult:
        yield Static(markup=False, id="jobs-line")
        yield Input(
            placeholder="filter: words of a number, name, user, queue, status or node",
            id="filter",
            compact=True,
        )
        yield RowTable("jobs-table", cell_padding=0)
        yield Static(markup=False, id="reason-line", classes="detail")

    def on_mount(self) -> None:
        self.query_one("#filter").display = False
        self._make_columns()

    def on_resize(self) -> None:
        self._make_columns()
        self._again()

    def _make_columns(self) -> None:
        table = self.query_one(RowTable)
        table.clear(columns=True)
        self._rows = []
        widths = (*(width + 1 for width in WIDTHS), last_width(self.app.size.width))
        for heading, width in zip(HEADINGS, widths, strict=True):
            table.add_column(Text(heading[: width - 1] if width < len(heading) else heading), width=width)

    def show_feed(self, feed: SnapshotFeed) -> None:
        self._feed = feed
        if feed.snapshot is None:
            return
        width = self.app.size.width
        found = job_rows(self._listed(), self._query, feed.reasons.texts, SystemClock().now(), width)
        self._fill(found[:ROWS_MAX])
        self.query_one("#jobs-line", Static).update(self._summary(feed, len(found)))
        self._show_reason()

    def _fill(self, rows: list[TopJobRow]) -> None:
        """Change what changed; build the list anew only if other jobs are in it."""
        table = self.query_one(RowTable)
        if [row.id for row in rows] == [row.id for row in self._rows]:
            for at, (row, before) in enumerate(zip(rows, self._rows, strict=True)):
                for column, cell in enumerate(row.cells):
                    if cell != before.cells[column]:
                        table.update_cell_at(Coordinate(at, column), styled(cell))
        else:
            chosen = self.chosen_id()
            table.clear()
            for row in rows:
                table.add_row(*map(styled, row.cells))
            ids = [row.id for row in rows]
            table.choose(ids.index(chosen) if chosen in ids else 0)
        self._rows = rows

    def _summary(self, feed: SnapshotFeed, count: int) -> str:
        query = self._query
        assert feed.snapshot is not None
        if query.shown is JobsShown.ENDED and feed.snapshot.ended is None:
            return "ended: reading"
        order = f"{query.sort} {'↓' if query.reverse else '↑'}"
        text = f"{query.shown.value}: {plural(count, 'job')}, sorted by {order}"
        text += f", filter {query.text!r}" if query.text else ""
        text += f", the first {ROWS_MAX} are listed" if count > ROWS_MAX else ""
        reasons = counted_reasons(feed.snapshot.jobs, feed.reasons.codes)
        said = ", ".join(f"{code} {number}" for code, number in reasons[:4])
        return clean(f"{text}  waits: {said}" if said else text)

    def visible_waiting(self) -> list[str]:
        """The waiting jobs on the screen, the chosen one first: their reasons are worth asking for."""
        table = self.query_one(RowTable)
        first, height = int(table.scroll_offset.y), table.size.height
        seen = [row.id for row in self._rows[first : first + height] if row.is_waiting]
        chosen = self.chosen_id()
        return sorted(seen, key=lambda id: id != chosen)

    def chosen_id(self) -> str | None:
        row = self.query_one(RowTable).cursor_row
        return self._rows[row].id if 0 <= row < len(self._rows) else None

    def _listed(self) -> list[JobView]:
        """The jobs that the query chooses from."""
        snapshot = self._feed.snapshot if self._feed else None
        if snapshot is None:
            return []
        return snapshot.ended or [] if self._query.shown is JobsShown.ENDED else snapshot.jobs

    def _chosen(self) -> JobView | None:
        id = self.chosen_id()
        return next((job for job in self._listed() if job.id == id), None)

    def _show_reason(self) -> None:
        job, feed = self._chosen(), self._feed
        if job is None or feed is None:
            text = "no job fits the filter" if self._query.text else "there is no such job"
        else:
            reason = feed.reasons.texts.get(job.id, "") if is_waiting(job) else ""
            rest = f"{job.counts.pending} waiting: " if job.status != "Pending" else ""
            text = f"{job_title(job)}\n{clean(f'{rest}{reason}' if reason else ' '.join(job.command))}"
        self.query_one("#reason-line", Static).update(text)

    def on_data_table_row_highlighted(self) -> None:
        self._show_reason()

    def on_data_table_row_selected(self) -> None:
        self.action_open()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._ask(replace(self._query, text=event.value))

    def on_input_submitted(self) -> None:
        self.query_one(RowTable).focus()
        self.query_one("#filter").display = bool(self._query.text)

    def _ask(self, query: JobQuery) -> None:
        self._query = query
        self._again()

    def _again(self) -> None:
        if self._feed is not None:
            self.show_feed(self._feed)

    def action_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.display = True
        field.focus()

    def action_unfilter(self) -> None:
        field = self.query_one("#filter", Input)
        field.value = ""
        field.display = False
        self.query_one(RowTable).focus()

    def action_show_next(self) -> None:
        self._ask(replace(self._query, shown=self._query.shown.next))
        if self._feed is not None:
            self._feed.wants_ended = self._query.shown is JobsShown.ENDED
            self._feed.hurry()

    def action_sort(self) -> None:
        at = (SORT_WORDS.index(self._query.sort) + 1) % len(SORT_WORDS)
        reverse = SORT_WORDS[at] in {"number", "priority", "tasks"}
        self._ask(replace(self._query, sort=SORT_WORDS[at], reverse=reverse))

    def action_reverse(self) -> None:
        self._ask(replace(self._query, reverse=not self._query.reverse))

    def action_open(self) -> None:
        if (job := self._chosen()) is not None:
            self.app.open_job(job.id)

    def action_logs(self) -> None:
        if (job := self._chosen()) is not None:
            self.app.open_job_logs(job)

    def action_cancel(self) -> None:
        if (job := self._chosen()) is not None:
            self.app.changes.cancel(job)

    def action_hold(self) -> None:
        if (job := self._chosen()) is not None:
            self.app.changes.hold_or_release(job)

    def action_pause(self) -> None:
        """Of a job with one task. Of several, the screen of the job has a list to choose from."""
        if (job := self._chosen()) is None:
            return
        if job.tasks > 1:
            self.app.say("it has several tasks: open it, and choose one under t")
        else:
            self.app.changes.pause_or_resume(job.id)
