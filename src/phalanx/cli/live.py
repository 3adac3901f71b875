"""A live list: redrawn on a terminal, or changes one per line into a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import Event, Thread
from typing import TYPE_CHECKING

import msgspec

from phalanx.api.schema.jobs import WatchEvent
from phalanx.cli.output import Table, clean, coloured, json_text, moment, time_of_day
from phalanx.cli.session import CliSession
from phalanx.clock import SystemClock
from phalanx.errors import PhalanxError
from phalanx.settings import Output

if TYPE_CHECKING:
    from phalanx.client.client import Client

DRAW_PACE_S = 0.25
CLOCK_PACE_S = 1.0
ROWS_BESIDE = 3  # the headings, and what is below the table


Draw = Callable[["Client", int], tuple[Table, str]]


def follow(here: CliSession, job: str | None, output: Output, draw: Draw) -> None:
    """Stay until interrupted."""
    if output in {"table", "wide"} and sys.stdout.isatty():
        _redraw(here, job, draw)
        return
    for event in here.client().watch(job=job):
        sys.stdout.write(_line(event, output) + "\n")
        sys.stdout.flush()


def _redraw(here: CliSession, job: str | None, draw: Draw) -> None:
    """The table, drawn in place; under it when that was, and what did not fit."""
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    changes = _Changes(here, job)
    client, console = here.client(), Console(markup=False, highlight=False)
    with Live(console=console, auto_refresh=False, screen=True) as screen:
        while True:
            table, left_out = draw(client, max(1, console.height - ROWS_BESIDE))
            below = f"{time_of_day(SystemClock().now())}  {left_out}".rstrip()
            screen.update(Group(coloured(table, console.width), Text(below, style="dim")), refresh=True)
            changes.wait()


class _Changes:
    """Listens in a thread of its own, so that the screen can be drawn at a steady pace."""

    def __init__(self, here: CliSession, job: str | None) -> None:
        self._here = here
        self._job = job
        self._came = Event()
        self._never = Event()
        self._error: PhalanxError | None = None
        Thread(target=self._listen, daemon=True).start()

    def wait(self) -> None:
        """Until something came, or a second passed, because running times grow; not too soon in any case."""
        self._never.wait(DRAW_PACE_S)
        self._came.wait(CLOCK_PACE_S)
        self._came.clear()
        if self._error is not None:
            raise self._error

    def _listen(self) -> None:
        try:
            for _ in self._here.client().watch(job=self._job):
                self._came.set()
        except PhalanxError as error:
            self._error = error
            self._came.set()


def _line(event: WatchEvent, output: Output) -> str:
    if output in {"json", "yaml"}:  # One JSON document a line is a stream in YAML, too.
        return json_text(msgspec.json.encode(event))
    subject = event.number or event.task or event.job or event.node or "-"
    if output == "name":
        return subject
    return clean(f"{moment(event.at)}  {subject}  {event.status or event.event}  {event.text}").rstrip()
