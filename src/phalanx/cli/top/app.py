"""The application: the main screen with its three views, what the keys do to the cluster, and the feed behind all."""

from __future__ import annotations

from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import ContentSwitcher, Static

from phalanx.api.schema.jobs import JobView
from phalanx.cli.output import clean
from phalanx.cli.top.alarms_view import AlarmsView
from phalanx.cli.top.changes import ConfirmedChanges
from phalanx.cli.top.devices_view import DevicesView
from phalanx.cli.top.feed import SnapshotFeed
from phalanx.cli.top.job_screen import JobScreen
from phalanx.cli.top.jobs_view import JobsView
from phalanx.cli.top.keys_screen import KeysScreen
from phalanx.cli.top.log_screen import LogScreen
from phalanx.cli.top.map_view import HeatMapView
from phalanx.cli.top.row_table import RowTable
from phalanx.cli.top.status_bar import TopScreen
from phalanx.client.async_client import AsyncClient
from phalanx.errors import PhalanxError

NOTICE_S = 8.0
VIEWS = ("devices", "jobs", "alarms")


class MainScreen(TopScreen):
    """Devices, jobs and alarms, one at a time."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "view('devices')", "views", key_display="1-3"),
        Binding("2", "view('jobs')", show=False),
        Binding("3", "view('alarms')", show=False),
        Binding("question_mark", "app.keys", "keys", key_display="?"),
        Binding("q", "app.quit", "quit"),
        Binding("tab", "next_view", show=False, priority=True),
    ]
    app: TopApp

    def content(self) -> ComposeResult:
        with ContentSwitcher(initial="devices"):
            yield DevicesView("devices")
            yield JobsView("jobs")
            yield AlarmsView("alarms")

    def on_mount(self) -> None:
        self.query_one(HeatMapView).focus()

    def show_feed(self, feed: SnapshotFeed) -> None:
        super().show_feed(feed)
        current = self._current()
        current.show_feed(feed)
        if isinstance(current, JobsView) and (ids := current.visible_waiting()):
            self.run_worker(self._ask_reasons(feed, current, ids), group="reasons", exclusive=True)

    async def _ask_reasons(self, feed: SnapshotFeed, view: JobsView, ids: list[str]) -> None:
        await feed.ask_reasons(ids)
        view.show_feed(feed)

    def _current(self) -> DevicesView | JobsView | AlarmsView:
        found = self.query_one(f"#{self.query_one(ContentSwitcher).current}")
        assert isinstance(found, DevicesView | JobsView | AlarmsView)
        return found

    def action_view(self, name: str) -> None:
        self.query_one(ContentSwitcher).current = name
        view = self._current()
        inner: Widget = (
            view.query_one(HeatMapView)
            if isinstance(view, DevicesView)
            else view.query_one(RowTable)
            if isinstance(view, JobsView)
            else view.query_one("VerticalScroll")
        )
        inner.focus()
        # Only after the view is laid out it is known which rows are seen, whose reasons are asked for.
        self.call_after_refresh(self.show_feed, self.app.feed)

    def action_next_view(self) -> None:
        current = self.query_one(ContentSwitcher).current or VIEWS[0]
        self.action_view(VIEWS[(VIEWS.index(current) + 1) % len(VIEWS)])


class TopApp(App[None]):
    """`phalanx top`. Colours are the terminal's own, so that it is readable on a light one, too."""

    TITLE = "phalanx top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("j", "simulate_key('down')", show=False),
        Binding("k", "simulate_key('up')", show=False),
    ]
    CSS = """
    #cluster { height: 1; text-style: bold; text-wrap: nowrap; }
    #trouble { display: none; background: ansi_red; color: ansi_bright_white; text-style: bold; }
    #notice { display: none; dock: bottom; margin-bottom: 1; text-style: reverse; }
    #notice.error { text-style: bold reverse; color: ansi_red; }
    #legend { max-height: 2; height: auto; }
    .detail { height: auto; max-height: 3; }
    #node-line { border-top: solid ansi_bright_black; }
    #reason-line { border-top: solid ansi_bright_black; min-height: 3; }
    #jobs-line, #job-line, #log-line { height: 1; text-style: reverse; text-wrap: nowrap; }
    ContentSwitcher { height: 1fr; }
    HeatMapView { height: 1fr; }
    DataTable { height: 1fr; }
    DataTable:nocolor > .datatable--cursor { text-style: bold reverse; }
    Log { height: 1fr; }
    ModalScreen { align: center middle; }
    .dialog { width: 70; max-width: 95%; height: auto; border: round ansi_bright_black; padding: 0 1; }
    .keys-dialog { width: 78; height: auto; max-height: 95%; }
    .dialog .keys { margin-top: 1; text-style: bold; }
    .dialog Input { margin-top: 1; }
    """

    def __init__(self, client: AsyncClient) -> None:
        # The theme says the same, but later: Textual would turn colours into shades for NO_COLOR, black on black.
        super().__init__(ansi_color=True)
        self.client = client
        self.feed = SnapshotFeed(client, self._show_feed)
        self.changes = ConfirmedChanges(self)

    def get_default_screen(self) -> MainScreen:
        return MainScreen()

    def on_mount(self) -> None:
        self.theme = "ansi-dark"
        self.run_worker(self.feed.run(), group="feed")
        self.set_interval(1.0, self._show_status)

    def _show_feed(self) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, TopScreen) and screen.is_complete:
                screen.show_feed(self.feed)

    def _show_status(self) -> None:
        """The clock goes on between two readings."""
        if isinstance(self.screen, TopScreen) and self.screen.is_complete:
            TopScreen.show_feed(self.screen, self.feed)

    def say(self, text: str, *, is_error: bool = False) -> None:
        """A notice on the screen in front, for some seconds."""
        for screen in self.screen_stack:
            if isinstance(screen, TopScreen):
                screen.say(text, is_error=is_error)
        if text:
            self.set_timer(NOTICE_S, lambda: self._unsay(text))

    def say_error(self, error: PhalanxError) -> None:
        self.say(f"{error.detail}; {error.hint}" if error.hint else error.detail, is_error=True)

    def _unsay(self, text: str) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, TopScreen):
                shown = str(screen.query_one("#notice", Static).content)
                if shown.removeprefix("error: ") == clean(text):
                    screen.say("")

    def action_keys(self) -> None:
        self.push_screen(KeysScreen())

    def open_job(self, id: str) -> None:
        self.push_screen(JobScreen(id))

    def open_logs(self, id: str) -> None:
        self.push_screen(LogScreen(id))

    def open_job_logs(self, job: JobView) -> None:
        """Of a job with one task its log; of several the first that runs, or else the first."""
        self.run_worker(self._open_job_logs(job), group="open", exclusive=True)

    async def _open_job_logs(self, job: JobView) -> None:
        try:
            running = await self.client.tasks(job.id, status="Running", limit=1)
            tasks = running.items or (await self.client.tasks(job.id, limit=1)).items
        except PhalanxError as error:
            self.say_error(error)
            return
        self.open_logs(tasks[0].number or tasks[0].id if tasks else job.id)
