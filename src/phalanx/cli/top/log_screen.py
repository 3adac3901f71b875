"""The screen of one task's output, followed as it is written."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Log, Static

from phalanx.api.schema.queries import Stream
from phalanx.cli.output import clean
from phalanx.cli.top.log_tail import LogTail
from phalanx.cli.top.status_bar import TopScreen
from phalanx.errors import NotFound, PhalanxError, Unavailable

if TYPE_CHECKING:
    from phalanx.cli.top.app import TopApp

LINES_FIRST = 1000
LINES_MAX = 10_000
AGAIN_S = 2.0


class LogScreen(TopScreen):
    """The last lines of a task, and those that follow."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "app.pop_screen", "back", key_display="esc"),
        Binding("f", "follow", "follow on/off"),
        Binding("e", "stream", "stdout/stderr"),
        Binding("home,g", "top", "top"),
        Binding("end,G", "end", "end"),
        Binding("question_mark", "app.keys", "keys", key_display="?"),
    ]
    app: TopApp

    def __init__(self, id: str) -> None:
        super().__init__()
        self._subject = id
        self._stream: Stream = "stdout"
        self._state = "reading"

    def content(self) -> ComposeResult:
        yield Static(markup=False, id="log-line")
        yield Log(max_lines=LINES_MAX, highlight=False)

    def on_mount(self) -> None:
        self.show_feed(self.app.feed)
        self._open()

    def _open(self) -> None:
        self._show("reading")
        self.run_worker(self._read(), exclusive=True)

    def _show(self, state: str) -> None:
        self._state = state
        follows = "" if self.query_one(Log).auto_scroll else ", not following"
        self.query_one("#log-line", Static).update(clean(f"{self._subject} {self._stream}  {state}{follows}"))

    async def _read(self) -> None:
        """Until the task has ended. A coordinator that goes away is waited for by the client."""
        log, tail, is_first = self.query_one(Log), LogTail(), True
        pieces = self.app.client.logs(self._subject, stream=self._stream, lines=LINES_FIRST, follow=True)
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    if is_first:  # what was shown before stays until there is an answer
                        log.clear()
                        is_first = False
                    self._show("live")
                    log.write_lines(tail.take(piece))
            log.write_lines(tail.end())
            self._show("ended" if log.line_count else "ended; it wrote nothing here")
        except (
            NotFound,
            Unavailable,
        ) as error:  # it has not begun, or its node or the coordinator does not answer
            self._show(f"{error.detail}; trying again")
            self.set_timer(AGAIN_S, self._open)
        except PhalanxError as error:
            self._show("stopped")
            self.app.say_error(error)

    def action_follow(self) -> None:
        log = self.query_one(Log)
        log.auto_scroll = not log.auto_scroll
        if log.auto_scroll:
            log.scroll_end(animate=False)
        self._show(self._state)

    def action_stream(self) -> None:
        self._stream = "stderr" if self._stream == "stdout" else "stdout"
        self.say("")
        self.query_one(Log).clear()
        self._open()

    def action_top(self) -> None:
        log = self.query_one(Log)
        log.auto_scroll = False
        log.scroll_home(animate=False)
        self._show(self._state)

    def action_end(self) -> None:
        log = self.query_one(Log)
        log.auto_scroll = True
        log.scroll_end(animate=False)
        self._show(self._state)
