"""The view of alarms: what is unusual now, and under it what failed lately."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Static

from phalanx.cli.output import time_of_day
from phalanx.cli.top.alarms import Alarm
from phalanx.cli.top.feed import SnapshotFeed

if TYPE_CHECKING:
    from phalanx.cli.top.app import TopApp

SIGNS = {"critical": ("!!", "bold red"), "warning": ("! ", "yellow"), "notice": ("- ", "")}
ROWS_MAX = 500


class AlarmsView(Vertical):
    """Alarms, the worst first, and recent failures, the newest first."""

    app: TopApp

    def __init__(self, id: str) -> None:
        super().__init__(id=id)

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(markup=False, id="alarms-text")

    def show_feed(self, feed: SnapshotFeed) -> None:
        self.query_one("#alarms-text", Static).update(alarms_text(feed.alarms, feed.failures.newest()))


def alarms_text(now: list[Alarm], failures: list[Alarm]) -> Text:
    text = Text()
    text.append(f"Now ({len(now)})\n", "bold")
    _add(text, now, "nothing unusual")
    text.append(f"\nFailed lately ({len(failures)})\n", "bold")
    _add(text, failures, "no task failed, no node was lost")
    text.rstrip()
    return text


def _add(text: Text, alarms: list[Alarm], nothing: str) -> None:
    if not alarms:
        text.append(f"  {nothing}\n", "dim")
    for alarm in alarms[:ROWS_MAX]:
        mark, style = SIGNS[alarm.severity]
        when = f"{time_of_day(alarm.at)[:8]}  " if alarm.at is not None else ""
        text.append(f"{mark} ", style)
        text.append(f"{when}{alarm.subject + '  ' if alarm.subject else ''}{alarm.text}\n")
    if len(alarms) > ROWS_MAX:
        text.append(f"  and {len(alarms) - ROWS_MAX} more\n", "dim")
