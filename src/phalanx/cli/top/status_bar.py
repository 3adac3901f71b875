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

SLOW_S = 4.0  # after which an answer that has not come is told


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

    @property
    def is_complete(self) -> bool:
        """Whether its lines are there: a screen that is being closed loses them while the feed still runs."""
        return self.is_mounted and bool(self.query("#cluster")) and bool(self.query("#notice"))

    def show_feed(self, feed: SnapshotFeed) -> None:
        """Show what the feed has; screens add their own part."""
        width = self.app.size.width
        self.query_one("#cluster", Static).update(_first_line(feed, width))
        seen_at = None if feed.snapshot is None else feed.snapshot.at
        said = trouble_line(feed.trouble, feed.asked_at, seen_at, SystemClock().now())
        trouble = self.query_one("#trouble", Static)
        trouble.display = bool(said)
        trouble.update(clean(said))

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
    told = cluster_line(feed.snapshot, len(feed.alarms), width - 10)
    return f"{cut(told, width - 10):<{max(0, width - 10)}}  {now}"


def trouble_line(trouble: str, asked_at: float | None, seen_at: float | None, now: float) -> str:
    """What is wrong with reading the cluster, and how old that makes what is shown. A coordinator that hangs gives no
    error for a long time, so a reading that takes long is told, too.
    """
    waited_s = 0.0 if asked_at is None else now - asked_at
    if not trouble and waited_s < SLOW_S:
        return ""
    text = trouble or f"no answer for {describe_seconds(round(waited_s))}"
    age = (
        ""
        if seen_at is None
        else f" (what is shown is {describe_seconds(round(max(0.0, now - seen_at)))} old)"
    )
    return text + age
