"""The heat map on the screen: draws only the lines that are seen, and moves a cursor from device to device."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from phalanx.cli.top.heat_map import Cell, HeatMap
from phalanx.cli.top.map_layout import Direction, MapLayout, NodeBlock, Place, chosen_cell_width, lay_out
from phalanx.cli.top.symbols import Symbol

_PLAIN, _HEADING, _NAME, _CURSOR = Style(), Style(bold=True), Style(), Style(reverse=True, bold=True)


def style_of(symbol: Symbol) -> Style:
    return Style(color=symbol.foreground or None, bgcolor=symbol.background or None)


class HeatMapView(ScrollView, can_focus=True):
    """One cell for each device."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "go('left')", show=False),
        Binding("right", "go('right')", show=False),
        Binding("up", "go('up')", show=False),
        Binding("down", "go('down')", show=False),
        Binding("pageup", "leap('up')", show=False),
        Binding("pagedown,space", "leap('down')", show=False),
        Binding("home", "edge('up')", show=False),
        Binding("end", "edge('down')", show=False),
    ]

    class CursorMoved(Message):
        """The cursor stands on another device."""

    def __init__(self) -> None:
        super().__init__()
        self._map = HeatMap([], [])
        self._layout = MapLayout([], 2)
        self.place: Place | None = None

    def show_map(self, heat_map: HeatMap) -> None:
        self._map = heat_map
        self._arrange()

    def on_resize(self) -> None:
        self._arrange()

    def _arrange(self) -> None:
        width, height = self.size.width, self.size.height
        if not width:
            return
        cell_width = chosen_cell_width(self._map, width, height)
        self._layout = lay_out(self._map, width, cell_width)
        self.virtual_size = Size(width, len(self._layout.lines))
        self.place = self._layout.settled(self.place)
        self.refresh()
        self.post_message(self.CursorMoved())

    def action_go(self, direction: Direction) -> None:
        self._go(direction, 1)

    def action_leap(self, direction: Direction) -> None:
        self._go(direction, max(1, self.size.height - 2))

    def action_edge(self, direction: Direction) -> None:
        self._go(direction, len(self._layout.lines))

    def _go(self, direction: Direction, count: int) -> None:
        if self.place is None:
            return
        self.place = self._layout.moved(self.place, direction, count)
        line = self._layout.line_of(self.place)
        # With the heading above its first line.
        above = 1 if line and self._layout.lines[line - 1].heading else 0
        self.scroll_to_region(Region(0, line - above, 1, 1 + above), animate=False)
        self.refresh()
        self.post_message(self.CursorMoved())

    def on_click(self, event: Click) -> None:
        offset = event.get_content_offset(self)
        line = -1 if offset is None else offset.y + self.scroll_offset.y
        if offset is None or not 0 <= line < len(self._layout.lines):
            return
        for block in self._layout.lines[line].blocks:
            at = (offset.x - block.cells_left) // self._layout.cell_width
            if block.left <= offset.x and at < max(1, len(block.row.cells)):
                self.place = Place(block.row.node.name, max(0, at))
        self.refresh()
        self.post_message(self.CursorMoved())

    def render_line(self, y: int) -> Strip:
        number = y + self.scroll_offset.y
        width = self.size.width
        if number >= len(self._layout.lines):
            return Strip.blank(width, _PLAIN)
        line = self._layout.lines[number]
        if line.heading:
            return Strip([Segment(line.heading[:width], _HEADING)]).adjust_cell_length(width, _PLAIN)
        segments: list[Segment] = []
        at = 0
        for block in line.blocks:
            segments.append(Segment(" " * (block.left - at), _PLAIN))
            segments += self._block(block)
            at = block.cells_left + len(block.row.cells) * self._layout.cell_width
        return Strip(segments).adjust_cell_length(width, _PLAIN)

    def _block(self, block: NodeBlock) -> list[Segment]:
        here = self.place is not None and self.place.node == block.row.node.name
        device = self.place.device if here and self.place is not None else -1
        name = Segment(block.name, _HEADING if here else _NAME)
        cells = [self._cell(cell, at == device) for at, cell in enumerate(block.row.cells)]
        return [name, Segment(" ", _PLAIN), *cells]

    def _cell(self, cell: Cell, is_here: bool) -> Segment:
        """In two columns the cursor has a mark, too, for terminals without colours."""
        before = ">" if is_here else " "
        text = cell.symbol.sign if self._layout.cell_width == 1 else before + cell.symbol.sign
        return Segment(text, _CURSOR if is_here else style_of(cell.symbol))
