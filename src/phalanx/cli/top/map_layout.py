"""The layout of the heat map: which line of the screen shows which rack and nodes, and where the arrow keys lead."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from phalanx.cli.output import clean
from phalanx.cli.top.heat_map import HeatMap, NodeRow

Direction = Literal["left", "right", "up", "down"]
NAME_MAX = 16
NAME_MIN = 4
BETWEEN = 2


class NodeBlock(Struct, frozen=True):
    """A node on a line: its name, cut to the width of names, and where its first cell stands."""

    row: NodeRow
    name: str
    left: int
    cells_left: int


class MapLine(Struct, frozen=True):
    """A heading, or nodes beside each other."""

    heading: str = ""
    blocks: list[NodeBlock] = []


class Place(Struct, frozen=True):
    """A device that the cursor stands on. A node without devices has the place 0."""

    node: str
    device: int = 0


class MapLayout(Struct, frozen=True):
    """All lines, and the width of a cell."""

    lines: list[MapLine]
    cell_width: int

    def line_of(self, place: Place) -> int:
        """The number of the line that shows this place; 0 if none does."""
        return next((at for at, line in enumerate(self.lines) if _has(line, place.node)), 0)

    def row_of(self, place: Place) -> NodeRow | None:
        found = (
            block.row for line in self.lines for block in line.blocks if block.row.node.name == place.node
        )
        return next(found, None)

    def first(self) -> Place | None:
        found = (block.row.node.name for line in self.lines for block in line.blocks)
        return next((Place(name) for name in found), None)

    def settled(self, place: Place | None) -> Place | None:
        """The same place if it is still there, else the first."""
        if place is None or (row := self.row_of(place)) is None:
            return self.first()
        return Place(place.node, max(0, min(place.device, len(row.cells) - 1)))

    def moved(self, place: Place, direction: Direction, count: int = 1) -> Place:
        """Where the cursor goes; at an edge it stays."""
        for _ in range(count):
            place = (
                self._across(place, direction)
                if direction in {"left", "right"}
                else self._along(place, direction)
            )
        return place

    def _across(self, place: Place, direction: Direction) -> Place:
        blocks = self.lines[self.line_of(place)].blocks
        at = next((at for at, block in enumerate(blocks) if block.row.node.name == place.node), 0)
        device = place.device + (1 if direction == "right" else -1)
        if 0 <= device < len(blocks[at].row.cells):
            return Place(place.node, device)
        if direction == "right" and at + 1 < len(blocks):
            return Place(blocks[at + 1].row.node.name)
        if direction == "left" and at > 0:
            before = blocks[at - 1].row
            return Place(before.node.name, max(0, len(before.cells) - 1))
        return place

    def _along(self, place: Place, direction: Direction) -> Place:
        step = 1 if direction == "down" else -1
        line = self.line_of(place)
        blocks = self.lines[line].blocks
        at = next((at for at, block in enumerate(blocks) if block.row.node.name == place.node), 0)
        line += step
        while 0 <= line < len(self.lines) and not self.lines[line].blocks:
            line += step
        if not 0 <= line < len(self.lines):
            return place
        there = self.lines[line].blocks
        row = there[min(at, len(there) - 1)].row
        return Place(row.node.name, max(0, min(place.device, len(row.cells) - 1)))


def lay_out(heat_map: HeatMap, width: int, cell_width: int) -> MapLayout:
    """The lines of a heat map in so many columns: nodes in equal blocks, as many beside each other as fit."""
    every = [row for rack in heat_map.racks for row in rack.rows]
    longest = max((len(clean(row.node.name)) for row in every), default=NAME_MIN)
    cells = max((len(row.cells) for row in every), default=0) * cell_width
    name_width = max(NAME_MIN, min(longest, NAME_MAX, max(NAME_MIN, width - cells - 1)))
    block_width = name_width + 1 + cells
    across = max(1, (width + BETWEEN) // (block_width + BETWEEN))
    lines: list[MapLine] = []
    for rack in heat_map.racks:
        if rack.name:
            lines.append(MapLine(_heading(rack.name, rack.rows)))
        for at in range(0, len(rack.rows), across):
            beside = enumerate(rack.rows[at : at + across])
            blocks = [_block(row, column * (block_width + BETWEEN), name_width) for column, row in beside]
            lines.append(MapLine(blocks=blocks))
    return MapLayout(lines, cell_width)


def chosen_cell_width(heat_map: HeatMap, width: int, height: int) -> int:
    """Two columns for a cell where the whole map fits so, else one."""
    return 2 if len(lay_out(heat_map, width, 2).lines) <= height else 1


def _has(line: MapLine, node: str) -> bool:
    return any(block.row.node.name == node for block in line.blocks)


def _block(row: NodeRow, left: int, name_width: int) -> NodeBlock:
    name = clean(row.node.name)
    shown = name if len(name) <= name_width else f"{name[: name_width - 1]}…"
    return NodeBlock(row, shown.ljust(name_width), left, left + name_width + 1)


def _heading(name: str, rows: list[NodeRow]) -> str:
    devices = [device for row in rows for device in row.node.devices]
    free = sum(
        device.task is None and not device.out_of_service
        for row in rows
        if row.node.status == "Online" and not row.node.drained
        for device in row.node.devices
    )
    return f"{clean(name)}  {len(rows)} nodes, {free} of {len(devices)} GPUs free"
