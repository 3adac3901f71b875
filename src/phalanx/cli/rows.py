"""A long list, shown while it is read: a table piece by piece, JSON and YAML item by item."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from textwrap import indent
from typing import Literal, TypeVar

import msgspec

from phalanx.cli.columns import NOTHING
from phalanx.cli.output import Table, clean, json_text, no_formula, plain_lines, yaml_text
from phalanx.settings import Output

T = TypeVar("T")
PIECE = 1000


def show_rows(
    items: Iterator[T],
    output: Output | Literal["csv"],
    name: Callable[[T], str],
    draw: Callable[[Sequence[T]], Table],
) -> int:
    """Show all items; how many there were. No more than a piece of them is held at once."""
    if output == "json":
        return _json(items)
    count, widths = 0, list[int]()
    while piece := list(islice(items, PIECE)):
        if output == "yaml":
            sys.stdout.write(yaml_text(piece))
        elif output == "csv":
            _csv(draw(piece), with_headings=not count)
        elif output == "name":
            sys.stdout.writelines(f"{clean(name(item))}\n" for item in piece)
        elif sys.stdout.isatty():
            draw(piece).show()
        else:
            widths = _write(draw(piece), widths)
        count += len(piece)
    if not count and output == "csv":
        _csv(draw([]), with_headings=True)
    if not count and output == "yaml":
        sys.stdout.write("[]\n")
    return count


def _csv(table: Table, *, with_headings: bool) -> None:
    """As a spreadsheet or pandas reads it: an empty cell where there is nothing."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    if with_headings:
        writer.writerow(table.headings)
    writer.writerows([no_formula("" if cell == NOTHING else cell) for cell in row] for row in table.rows)


def _write(table: Table, widths: list[int]) -> list[int]:
    """The rows of a piece, under headings if it is the first or has others, as wide as those before or wider."""
    rows = [list(table.headings), *table.rows]
    is_first = len(widths) != len(table.headings)
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    wide = wide if is_first else [max(pair) for pair in zip(wide, widths, strict=True)]
    sys.stdout.writelines(plain_lines(rows if is_first else rows[1:], wide))
    return wide


def _json(items: Iterator[T]) -> int:
    count = 0
    for item in items:
        text = json_text(msgspec.json.format(msgspec.json.encode(item), indent=2))
        sys.stdout.write(("," if count else "[") + "\n" + indent(text, "  "))
        count += 1
    sys.stdout.write("\n]\n" if count else "[]\n")
    return count
