"""The lines that every screen has: the cluster and the time on top, what went wrong under it, the last notice below."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Footer, Static

from phalanx.cli.output import clean, time_of_day
from phalanx.cli.top.feed import SnapshotFeed
from phalanx.cli.top.job_details import cluster_line
from phalanx.cli.top.job_rows import cut
from phalanx.clock import SystemClock
from phalanx.core.model.amounts import describe_seconds


class TopScreen(Screen[None]):
    """A screen with these lines; what is between them is `content`."""

    def content(self) -> ComposeResult:
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        yield Static(markup=False, id="cluster")
        yield Static(markup=False, id="trouble")
        yield from self.content()
        yield Static(markup=False, id="notice")
        yield Footer(compact=True, show_command_palette=False)

    def show_feed(self, feed: SnapshotFeed) -> None:
        """Show what the feed has; screens add their own part."""
        width = self.app.size.width
        self.query_one("#cluster", Static).update(_first_line(feed, width))
        trouble = self.query_one("#trouble", Static)
        trouble.display = bool(feed.trouble)
        trouble.update(clean(_trouble(feed)))

    def say(self, text: str, *, is_error: bool = False) -> None:
        """Show a notice; empty removes it."""
        notice = self.query_one("#notice", Static)
        notice.display = bool(text)
        notice.set_class(is_error, "error")
        notice.update(clean(f"error: {text}" if is_error else text))


def _first_line(feed: SnapshotFeed, width: int) -> str:
    now = time_of_day(SystemClock().now())[:8]
    if feed.snapshot is None:
        return "phalanx top: waiting for the first answer"
    told = cluster_line(feed.snapshot.cluster, len(feed.alarms))
    return f"{cut(told, width - 10):<{max(0, width - 10)}}  {now}"


def _trouble(feed: SnapshotFeed) -> str:
    if not feed.trouble or feed.snapshot is None:
        return feed.trouble
    age = describe_seconds(max(0.0, SystemClock().now() - feed.snapshot.at))
    return f"{feed.trouble} (what is shown is {age} old)"
