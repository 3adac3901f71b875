"""The screen of one job: why it is where it is, its history, and its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import ContentSwitcher, Static

from phalanx.api.schema.jobs import JobView, TaskView
from phalanx.cli.labels import label
from phalanx.cli.output import clean
from phalanx.cli.top.job_details import TASK_HEADINGS, job_title, story_lines, task_cells
from phalanx.cli.top.row_table import RowTable, styled
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
        Binding("h", "hold", "hold"),
        Binding("p", "pause", "pause"),
        Binding("question_mark", "app.keys", "keys", key_display="?"),
    ]
    app: TopApp

    def __init__(self, id: str) -> None:
        super().__init__()
        self._subject = id
        self._job: JobView | None = None
        self._tasks: list[TaskView] = []
        self._trouble = ""  # why the last reading failed

    def content(self) -> ComposeResult:
        yield Static(markup=False, id="job-line")
        with ContentSwitcher(initial="why"):
            with VerticalScroll(id="why"):
                yield Static(markup=False, id="why-text")
            with VerticalScroll(id="story"):
                yield Static(markup=False, id="story-text")
            yield RowTable("tasks", cell_padding=1)

    def on_mount(self) -> None:
        self.query_one(RowTable).add_columns(*map(Text, TASK_HEADINGS))
        self.show_feed(self.app.feed)
        self._load()
        self.set_interval(AGAIN_S, self._load)

    def _load(self) -> None:
        self.run_worker(self._read(), exclusive=True)

    async def _read(self) -> None:
        client = self.app.client
        try:
            self._job = job = await client.job(self._subject)
            tasks = await self._read_tasks(job)
            why = await client.why(self._subject)
            story = await client.story(self._subject, limit=STORY_MAX)
        except PhalanxError as error:
            self._trouble = clean(error.detail)
            self._show_title()
            return
        self._trouble = ""
        self._show_title()
        lines = [clean(line) for line in why_lines(why)]
        self.query_one("#why-text", Static).update("\n".join([*lines, "", *_command(job)]))
        told = story_lines(story.items, shows_task=job.tasks > 1)
        if story.next_cursor is not None:
            told.append(f"the first {STORY_MAX} events; `phalanx story {label(job)}` has all")
        self.query_one("#story-text", Static).update("\n".join(told))
        self._fill(tasks)

    async def _read_tasks(self, job: JobView) -> list[TaskView]:
        """The first ones; of a job with more, those that failed before them."""
        client = self.app.client
        first = (await client.tasks(self._subject, limit=TASKS_MAX)).items
        if job.tasks <= TASKS_MAX or not job.counts.failed:
            return first
        failed = (await client.tasks(self._subject, status="Failed", limit=TASKS_MAX)).items
        known = {task.id for task in failed}
        return [*failed, *(task for task in first if task.id not in known)][:TASKS_MAX]

    def _show_title(self) -> None:
        """The job, or what went wrong when it was read; of a long list of tasks, how many are listed."""
        job = self._job
        text = job_title(job) if job is not None else self._subject
        if job is not None and job.tasks > len(self._tasks) > 0 and self._part() == "tasks":
            text += f", {len(self._tasks)} listed" + (", failed ones first" if job.counts.failed else "")
        self.query_one("#job-line", Static).update(f"{self._trouble}; {text}" if self._trouble else text)

    def _part(self) -> str:
        return self.query_one(ContentSwitcher).current or "why"

    def _fill(self, tasks: list[TaskView]) -> None:
        table, now = self.query_one(RowTable), SystemClock().now()
        at = table.cursor_row
        table.clear()
        for task in tasks:
            table.add_row(*map(styled, task_cells(task, now)))
        table.choose(at)
        self._tasks = tasks
        self._show_title()

    def action_part(self, name: str) -> None:
        self.query_one(ContentSwitcher).current = name
        self.query_one(f"#{name}").focus()
        self._show_title()

    def on_data_table_row_selected(self) -> None:
        self.action_logs()

    def action_logs(self) -> None:
        """Of the task under the cursor where tasks are shown, else of the one that most likely says something."""
        if (task := self._chosen()) is not None:
            self.app.open_logs(label(task))
        elif self._job is not None:
            self.app.open_job_logs(self._job)

    def action_cancel(self) -> None:
        if self._job is not None:
            self.app.changes.cancel(self._job)

    def action_hold(self) -> None:
        if self._job is not None:
            self.app.changes.hold_or_release(self._job)

    def action_pause(self) -> None:
        if (task := self._chosen()) is not None:
            self.app.changes.pause_or_resume(task.id)
        else:
            self.app.say("choose a task under t")

    def _chosen(self) -> TaskView | None:
        """The task under the cursor where tasks are shown; else the only one."""
        row = self.query_one(RowTable).cursor_row
        if self._part() == "tasks" and 0 <= row < len(self._tasks):
            return self._tasks[row]
        return self._tasks[0] if len(self._tasks) == 1 else None


def _command(job: JobView) -> list[str]:
    words = " ".join(job.command)
    where = f"on {' '.join(job.nodes)}" if job.nodes else ""
    return [clean(f"command: {words}"), clean(where)] if words else [clean(where)]
