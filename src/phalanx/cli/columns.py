"""Fitting a table into the width of a terminal: which columns stay, and how wide those are that are folded.

First go columns in which no row has anything, then columns are folded down to their least width, then go those that a
table declares as the first to leave out (`-o wide` has them all).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

GAP = 2
NOTHING = "-"
CUT = "COMMAND"  # is cut instead of folded: `phalanx show` has it whole


class Fitted(Struct, frozen=True):
    """Columns by position: those shown, the widths of folded ones, and those left out though they say something."""

    shown: Sequence[int]
    widths: Mapping[int, int]
    left_out: Sequence[int]


def fitted(
    rows: Sequence[Sequence[str]], narrows: Mapping[str, int], spare: Sequence[str], room: int
) -> Fitted:
    """How a table fits into `room`; the first row has the headings."""
    headings = rows[0]
    natural = [max(map(len, column)) for column in zip(*rows, strict=True)]
    shown = list(range(len(headings)))
    for column in reversed(range(1, len(headings))):
        if _over(natural, shown, room) > 0 and all(row[column] == NOTHING for row in rows[1:]):
            shown.remove(column)
    left_out: list[int] = []
    last = [CUT] if headings[-1:] == [CUT] else []  # of ten characters of a command nobody learns much
    widths, over = _folded(headings, natural, shown, narrows, room)
    for heading in [*last, *spare]:
        if over <= 0:
            break
        left_out += [column for column in shown if headings[column] == heading]
        shown = [column for column in shown if headings[column] != heading]
        widths, over = _folded(headings, natural, shown, narrows, room)
    return Fitted(shown, widths, left_out)


def _over(widths: Sequence[int], shown: Sequence[int], room: int) -> int:
    return sum(widths[column] for column in shown) + GAP * (len(shown) - 1) - room


def _folded(
    headings: Sequence[str],
    natural: Sequence[int],
    shown: Sequence[int],
    narrows: Mapping[str, int],
    room: int,
) -> tuple[dict[int, int], int]:
    """The widths of the columns that have to be smaller, and by how much the table is too wide even so."""
    over = _over(natural, shown, room)
    folded: dict[int, int] = {}
    for heading, least in narrows.items():
        for column in shown:
            spare = min(over, natural[column] - max(least, len(heading)))
            if headings[column] == heading and spare > 0:
                folded[column], over = natural[column] - spare, over - spare
    return folded, over
