"""The view of nodes and devices: the heat map, its legend, and what is known of the device under the cursor."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Static

from phalanx.api.schema.cluster import DeviceView, NodeView
from phalanx.api.schema.jobs import JobView
from phalanx.cli.top.feed import SnapshotFeed
from phalanx.cli.top.heat_map import ColourBy, LegendEntry, heat_map, job_number
from phalanx.cli.top.job_details import device_line, node_line
from phalanx.cli.top.map_view import HeatMapView, style_of
from phalanx.clock import SystemClock

if TYPE_CHECKING:
    from phalanx.cli.top.app import TopApp

LEGEND_LINES = 2


class DevicesView(Vertical):
    """Who holds which device."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "why"),
        Binding("o", "logs", "logs"),
        Binding("c", "colour", "colour"),
        Binding("g", "group", show=False),
        Binding("x", "cancel", "cancel"),
        Binding("h", "hold", "hold"),
        Binding("p", "pause", "pause"),
        Binding("d", "drain", "drain"),
        Binding("r", "resume", show=False),
    ]
    app: TopApp

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._feed: SnapshotFeed | None = None
        self._colour_by = ColourBy.HOLDER
        self._by_rack = True
        self._legend: list[LegendEntry] = []

    def compose(self) -> ComposeResult:
        yield HeatMapView()
        yield Static(markup=False, id="legend")
        yield Static(markup=False, id="node-line", classes="detail")
        yield Static(markup=False, id="device-line", classes="detail")

    def show_feed(self, feed: SnapshotFeed) -> None:
        self._feed = feed
        if feed.snapshot is None:
            return
        drawn = heat_map(feed.snapshot, self._colour_by, self._by_rack)
        self._legend = drawn.legend
        self.query_one(HeatMapView).show_map(drawn)
        self._show_legend()

    def on_resize(self) -> None:
        self._show_legend()

    def on_heat_map_view_cursor_moved(self) -> None:
        node, device, job = self._here()
        if node is None:
            return
        self.query_one("#node-line", Static).update(node_line(node))
        self.query_one("#device-line", Static).update(device_line(device, job, SystemClock().now()))

    def _show_legend(self) -> None:
        self.query_one("#legend", Static).update(
            legend_text(self._colour_by, self._legend, self.app.size.width * LEGEND_LINES - 20)
        )

    def _here(self) -> tuple[NodeView | None, DeviceView | None, JobView | None]:
        """What the cursor stands on."""
        place = self.query_one(HeatMapView).place
        snapshot = self._feed.snapshot if self._feed else None
        if place is None or snapshot is None:
            return None, None, None
        node = next((each for each in snapshot.nodes if each.name == place.node), None)
        if node is None or place.device >= len(node.devices):
            return node, None, None
        device = node.devices[place.device]
        return node, device, snapshot.by_number().get(job_number(device))

    def action_colour(self) -> None:
        self._colour_by = self._colour_by.next
        self._again()

    def action_group(self) -> None:
        self._by_rack = not self._by_rack
        self._again()

    def _again(self) -> None:
        if self._feed is not None:
            self.show_feed(self._feed)

    def action_open(self) -> None:
        if (job := self._held()) is not None:
            self.app.open_job(job.id)

    def action_logs(self) -> None:
        if (task := self._held_by()) is not None:
            self.app.open_logs(task)

    def action_cancel(self) -> None:
        if (job := self._held()) is not None:
            self.app.changes.cancel(job)

    def action_hold(self) -> None:
        if (job := self._held()) is not None:
            self.app.changes.hold_or_release(job)

    def action_pause(self) -> None:
        if (task := self._held_by()) is not None:
            self.app.changes.pause_or_resume(task)

    def _held(self) -> JobView | None:
        """The job that holds the device; if there is none, the screen says so."""
        _, device, job = self._here()
        if job is None:
            is_held = device is not None and device.task is not None
            self.app.say(
                "the job that holds this device is not listed" if is_held else "nobody holds this device"
            )
        return job

    def _held_by(self) -> str | None:
        """The task that holds the device; if there is none, the screen says so."""
        device = self._here()[1]
        if device is None or device.task is None:
            self.app.say("nobody holds this device")
            return None
        return device.number or device.task

    def action_drain(self) -> None:
        if (node := self._here()[0]) is not None:
            self.app.changes.drain(node)

    def action_resume(self) -> None:
        if (node := self._here()[0]) is not None:
            self.app.changes.undrain(node)


def legend_text(colour_by: ColourBy, legend: list[LegendEntry], room: int) -> Text:
    """The legend, the most frequent first; what has no room is counted."""
    text = Text(f"by {colour_by.value}: ")
    for at, entry in enumerate(legend):
        said = f" {entry.meaning} ({entry.count})  "
        if len(text.plain) + len(said) + 3 > room:
            text.append(f"and {len(legend) - at} more")
            break
        text.append(f" {entry.symbol.sign} ", style_of(entry.symbol))
        text.append(said)
    return text
