"""A table whose rows are chosen: Home and End go to the first and last row, and Enter has a word in the footer."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import DataTable

from phalanx.cli.output import STYLES


class RowTable(DataTable[Text]):
    """Textual's own table moves from column to column with Home and End."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select_cursor", "open"),
        Binding("home", "scroll_top", show=False),
        Binding("end", "scroll_bottom", show=False),
    ]

    def __init__(self, id: str, cell_padding: int) -> None:
        super().__init__(id=id, cursor_type="row", cell_padding=cell_padding, zebra_stripes=False)

    def choose(self, row: int) -> None:
        """Put the cursor onto a row, or onto the nearest one that there is."""
        self.move_cursor(row=max(0, min(row, self.row_count - 1)), animate=False)


def styled(cell: str) -> Text:
    """A cell, in the colour of the status if it is one."""
    return Text(cell, style=STYLES.get(cell, ""), no_wrap=True)
