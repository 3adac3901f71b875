"""The screen of one job: why it is where it is, its history, and its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import ContentSwitcher, DataTable, Static

from phalanx.api.schema.jobs import JobView, TaskView
from phalanx.cli.labels import label
from phalanx.cli.output import STYLES, clean
from phalanx.cli.top.feed import SnapshotFeed
from phalanx.cli.top.job_details import TASK_HEADINGS, job_title, story_lines, task_cells
from phalanx.cli.top.status_bar import TopScreen
from phalanx.cli.why import why_lines
from phalanx.clock import SystemClock
from phalanx.errors import PhalanxError

if TYPE_CHECKING:
    from phalanx.cli.top.app import TopApp

STORY_MAX = 500
TASKS_MAX = 200
AGAIN_S = 3.0


class JobScreen(TopScreen):
    """One job, read again every few seconds while it is open."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "app.pop_screen", "back", key_display="esc"),
        Binding("w", "part('why')", "why"),
        Binding("s", "part('story')", "story"),
        Binding("t", "part('tasks')", "tasks"),
        Binding("o", "logs", "logs"),
        Binding("x", "cancel", "cancel"),
    ]
    app: TopApp

    def __init__(self, id: str) -> None:
        super().__init__()
        self._subject = id
        self._job: JobView | None = None
        self._tasks: list[TaskView] = []

    def content(self) -> ComposeResult:
        yield Static(markup=False, id="job-line")
        with ContentSwitcher(initial="why"):
            with VerticalScroll(id="why"):
                yield Static(markup=False, id="why-text")
            with VerticalScroll(id="story"):
                yield Static(markup=False, id="story-text")
            table: DataTable[Text] = DataTable(id="tasks", cursor_type="row", cell_padding=1)
            yield table

    def on_mount(self) -> None:
        self.query_one(DataTable).add_columns(*map(Text, TASK_HEADINGS))
        self.show_feed(self.app.feed)
        self._load()
        self.set_interval(AGAIN_S, self._load)

    def show_feed(self, feed: SnapshotFeed) -> None:
        super().show_feed(feed)

    def _load(self) -> None:
        self.run_worker(self._read(), exclusive=True)

    async def _read(self) -> None:
        client = self.app.client
        try:
            self._job = job = await client.job(self._subject)
            why = await client.why(self._subject)
            story = await client.story(self._subject, limit=STORY_MAX)
            tasks = await client.tasks(self._subject, limit=TASKS_MAX)
        except PhalanxError as error:
            self.say(error.detail, is_error=True)
            return
        self.say("")
        self.query_one("#job-line", Static).update(job_title(job))
        lines = [clean(line) for line in why_lines(why)]
        self.query_one("#why-text", Static).update("\n".join([*lines, "", *_command(job)]))
        told = story_lines(story.items, shows_task=job.tasks > 1)
        if story.next_cursor is not None:
            told.append(f"the first {STORY_MAX} events; `phalanx story {label(job)}` has all")
        self.query_one("#story-text", Static).update("\n".join(told))
        self._fill(tasks.items, job.tasks)

    def _fill(self, tasks: list[TaskView], count: int) -> None:
        table, now = self.query_one(DataTable), SystemClock().now()
        at = table.cursor_row
        table.clear()
        for task in tasks:
            table.add_row(
                *(Text(cell, style=STYLES.get(cell, ""), no_wrap=True) for cell in task_cells(task, now))
            )
        table.move_cursor(row=max(0, min(at, len(tasks) - 1)), animate=False)
        self._tasks = tasks
        if count > len(tasks):
            self.say(f"the first {len(tasks)} of {count} tasks are listed under t")

    def action_part(self, name: str) -> None:
        self.query_one(ContentSwitcher).current = name
        self.query_one(f"#{name}").focus()

    def on_data_table_row_selected(self) -> None:
        self.action_logs()

    def action_logs(self) -> None:
        """Of the task under the cursor where tasks are shown, else of the one that most likely says something."""
        if self._job is None:
            return
        is_list = self.query_one(ContentSwitcher).current == "tasks"
        row = self.query_one(DataTable).cursor_row
        if is_list and 0 <= row < len(self._tasks):
            self.app.open_logs(self._tasks[row].id)
        else:
            self.app.open_job_logs(self._job)

    def action_cancel(self) -> None:
        if self._job is not None:
            self.app.cancel_job(self._job)


def _command(job: JobView) -> list[str]:
    words = " ".join(job.command)
    where = f"on {' '.join(job.nodes)}" if job.nodes else ""
    return [clean(f"command: {words}"), clean(where)] if words else [clean(where)]
