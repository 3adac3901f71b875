"""Tables: aligned columns for a pipe, coloured ones for a person.

A cell is never cut: on a terminal too narrow for it, the last column is folded. rich is imported only when somebody is
looking, because it costs more time than the rest of a command.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from phalanx.cli.text import clean

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

LAST_WIDTH_MIN = 24
STYLES = {
    "Running": "green",
    "Completed": "dim",
    "Failed": "red",
    "Cancelled": "magenta",
    "Pending": "yellow",
    "Assigned": "cyan",
    "Online": "green",
    "Unreachable": "red",
    "Offline": "red",
    "Quarantined": "red",
    "Unhealthy": "red",
    "Stopping": "yellow",
}


class Table:
    """Rows under headings. The first column names the row."""

    def __init__(self, *headings: str) -> None:
        self.headings = headings
        self.rows: list[list[str]] = []

    def add(self, *cells: object) -> None:
        """A row; None shows as a dash."""
        self.rows.append(["-" if cell is None or cell == "" else clean(str(cell)) for cell in cells])

    def show(self) -> None:
        """To standard output, in the manner of whoever reads it."""
        if sys.stdout.isatty():
            console_for(self).print(coloured(self))
        else:
            sys.stdout.writelines(plain_lines([list(self.headings), *self.rows]))


def plain_lines(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    """Columns as wide as their widest cell, two spaces apart; the last one is not filled up."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(padded).rstrip() + "\n"


def coloured(table: Table) -> RichTable:
    """The same table for rich. Cells become `Text`, so that no cell is taken for markup."""
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(box=None, pad_edge=False, header_style="bold")
    for heading in table.headings:
        is_last = heading == table.headings[-1]
        drawn.add_column(heading, no_wrap=not is_last, overflow="fold" if is_last else "ignore")
    for row in table.rows:
        drawn.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
    return drawn


def console_for(table: Table) -> Console:
    """A console wide enough for all columns but the last, which is folded. The terminal wraps the rest."""
    from rich.console import Console

    console = Console(markup=False, highlight=False)
    widths = [max(map(len, column)) for column in zip(table.headings, *table.rows, strict=True)]
    least = sum(widths[:-1]) + 2 * len(widths) + min(widths[-1], LAST_WIDTH_MIN)
    console.width = max(console.width, least)
    return console
