"""The view of jobs: a list with a filter and an order, and under it the whole reason of the chosen job."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.coordinate import Coordinate
from textual.widgets import DataTable, Input, Static

from phalanx.api.schema.jobs import JobView
from phalanx.cli.output import STYLES, clean
from phalanx.cli.top.feed import SnapshotFeed
from phalanx.cli.top.job_details import job_title
from phalanx.cli.top.job_rows import (
    HEADINGS,
    SORT_WORDS,
    WIDTHS,
    JobQuery,
    JobRow,
    counted_reasons,
    job_rows,
    last_width,
)
from phalanx.clock import SystemClock

if TYPE_CHECKING:
    from phalanx.cli.top.app import TopApp

ROWS_MAX = 1000  # what nobody scrolls through is left out and counted


class JobsView(Vertical):
    """Jobs that run or wait."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "why"),
        Binding("o", "logs", "logs"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("w", "show_next", "running/waiting"),
        Binding("s", "sort", "sort"),
        Binding("S", "reverse", "reverse", show=False),
        Binding("x", "cancel", "cancel"),
        Binding("escape", "unfilter", show=False),
    ]
    app: TopApp

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._feed: SnapshotFeed | None = None
        self._query = JobQuery()
        self._rows: list[JobRow] = []

    def compose(self) -> ComposeResult:
        yield Static(markup=False, id="jobs-line")
        yield Input(
            placeholder="filter: words of a number, name, user, queue, status or node",
            id="filter",
            compact=True,
        )
        table: DataTable[Text] = DataTable(cursor_type="row", cell_padding=0, zebra_stripes=False)
        yield table
        yield Static(markup=False, id="reason-line", classes="detail")

    def on_mount(self) -> None:
        self.query_one("#filter").display = False
        self._make_columns()

    def on_resize(self) -> None:
        self._make_columns()
        self._again()

    def _make_columns(self) -> None:
        table = self.query_one(DataTable)
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
        found = job_rows(feed.snapshot.jobs, self._query, feed.reasons.texts, SystemClock().now(), width)
        self._fill(found[:ROWS_MAX])
        self.query_one("#jobs-line", Static).update(self._summary(feed, len(found)))
        self._show_reason()

    def _fill(self, rows: list[JobRow]) -> None:
        """Change what changed; build the list anew only if other jobs are in it."""
        table = self.query_one(DataTable)
        if [row.id for row in rows] == [row.id for row in self._rows]:
            for at, (row, before) in enumerate(zip(rows, self._rows, strict=True)):
                for column, cell in enumerate(row.cells):
                    if cell != before.cells[column]:
                        table.update_cell_at(Coordinate(at, column), _styled(cell))
        else:
            chosen = self.chosen_id()
            table.clear()
            for row in rows:
                table.add_row(*map(_styled, row.cells))
            ids = [row.id for row in rows]
            table.move_cursor(row=ids.index(chosen) if chosen in ids else 0, animate=False)
        self._rows = rows

    def _summary(self, feed: SnapshotFeed, count: int) -> str:
        query = self._query
        order = f"{query.sort} {'↓' if query.reverse else '↑'}"
        text = f"{query.shown.value}, {count} jobs, sorted by {order}"
        text += f", filter {query.text!r}" if query.text else ""
        text += f", the first {ROWS_MAX} are listed" if count > ROWS_MAX else ""
        assert feed.snapshot is not None
        reasons = counted_reasons(feed.snapshot.jobs, feed.reasons.codes)
        said = ", ".join(f"{code} {number}" for code, number in reasons[:4])
        return clean(f"{text}  waits: {said}" if said else text)

    def visible_waiting(self) -> list[str]:
        """The waiting jobs on the screen, the chosen one first: their reasons are worth asking for."""
        table = self.query_one(DataTable)
        first, height = int(table.scroll_offset.y), table.size.height
        seen = [row.id for row in self._rows[first : first + height] if row.is_waiting]
        chosen = self.chosen_id()
        return sorted(seen, key=lambda id: id != chosen)

    def chosen_id(self) -> str | None:
        row = self.query_one(DataTable).cursor_row
        return self._rows[row].id if 0 <= row < len(self._rows) else None

    def _chosen(self) -> JobView | None:
        id, snapshot = self.chosen_id(), self._feed.snapshot if self._feed else None
        return next((job for job in snapshot.jobs if job.id == id), None) if snapshot else None

    def _show_reason(self) -> None:
        job, feed = self._chosen(), self._feed
        if job is None or feed is None:
            text = "nothing is waiting or running" if not self._query.text else "no job fits the filter"
        else:
            said = feed.reasons.texts.get(job.id, "") if job.status == "Pending" else " ".join(job.command)
            text = f"{job_title(job)}\n{clean(said)}"
        self.query_one("#reason-line", Static).update(text)

    def on_data_table_row_highlighted(self) -> None:
        self._show_reason()

    def on_data_table_row_selected(self) -> None:
        self.action_open()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._ask(replace(self._query, text=event.value))

    def on_input_submitted(self) -> None:
        self.query_one(DataTable).focus()
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
        self.query_one(DataTable).focus()

    def action_show_next(self) -> None:
        self._ask(replace(self._query, shown=self._query.shown.next))

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
            self.app.cancel_job(job)


def _styled(cell: str) -> Text:
    return Text(cell, style=STYLES.get(cell, ""), no_wrap=True)
