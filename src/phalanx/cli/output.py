"""Output: one answer as a table, JSON, YAML or names, and the text in it made safe for a terminal.

JSON and YAML are the words of the API as they are, so that a program may rely on them. Data goes to standard
output, notes to standard error. A table has aligned columns for a pipe and colours for a terminal, whose width it is
fitted to (`columns.py`). rich is imported only for a terminal, because it costs more time than the rest of a command.

What users and nodes wrote (names, commands, kinds of GPU, the last lines of a task) may hold escapes that take over a
terminal, so everything that goes into a table, a line or a message passes `clean`. Task output itself is not ours to
change.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from phalanx.cli.columns import CUT, Fitted, fitted
from phalanx.core.model.amounts import describe_bytes, describe_seconds
from phalanx.settings import Output

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])?"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_BLANK = re.compile(r"[\t\r\n\v\f\x85\u2028\u2029]+")
# Controls, and the marks that turn the direction of writing round, which can make one text look like another.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
CONTROL = re.compile(
    _CONTROL.pattern.replace(r"\x00-\x1f", r"\x00-\x09\x0b-\x1f")
)  # but for the ends of lines
OutputOption = Annotated[
    Output | None,
    typer.Option("-o", "--output", help="Output format.", show_default="table"),
]
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
    "Paused": "yellow",
    "Drained": "yellow",
    "Draining": "yellow",
    "Excluded": "red",
    "Held": "yellow",
    "Unapproved": "yellow",
}


def clean(text: str) -> str:
    """One line without escapes and control characters."""
    return _CONTROL.sub("", _BLANK.sub(" ", _ESCAPE.sub("", text)))


def clean_lines(text: str) -> str:
    """The same, with its lines kept."""
    return "\n".join(clean(line) for line in text.split("\n"))


def moment(at: float | None) -> str:
    """A time where we are, with the date and the zone, or a dash."""
    return "-" if at is None else datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def time_of_day(at: float) -> str:
    """The time where we are, of today, with the zone."""
    return datetime.fromtimestamp(at).astimezone().strftime("%H:%M:%S %Z")


def soon(at: float, now: float) -> str:
    """A time to come where we are, short: 18:00 of today, else with its day."""
    day, today = (datetime.fromtimestamp(each).astimezone() for each in (at, now))
    days = (day.date() - today.date()).days
    return day.strftime({0: "%H:%M", 1: "tomorrow %H:%M"}.get(days, "%m-%d %H:%M"))


def span(begin: float | None, end: float | None) -> str:
    """How long something took, or a dash."""
    return "-" if begin is None or end is None else describe_seconds(max(0.0, end - begin))


def size(count: int) -> str:
    """A size, or a dash for none."""
    return describe_bytes(count) if count else "-"


def emit(
    value: Any, output: Output, names: Iterable[str], draw: Callable[[bool], Table | Iterable[str]]
) -> None:
    """Show `value`. `draw` makes what a person reads, given whether they want it wide."""
    if output == "json":
        sys.stdout.write(json_text(msgspec.json.format(msgspec.json.encode(value), indent=2)) + "\n")
    elif output == "yaml":
        sys.stdout.write(yaml_text(value))
    elif output == "name":
        sys.stdout.writelines(f"{clean(name)}\n" for name in names)
    else:
        drawn = draw(output == "wide")
        if isinstance(drawn, Table):
            drawn.show(output == "wide")
        else:
            sys.stdout.writelines(f"{clean_lines(line)}\n" for line in drawn)


def json_text(encoded: bytes) -> str:
    """JSON that a terminal shows and does not obey: a parser gets users' text unchanged."""
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", encoded.decode())


def yaml_text(value: Any) -> str:
    text = msgspec.yaml.encode(value).decode()
    if not CONTROL.search(text):
        return text
    import yaml  # with escapes for all but ASCII, which only some strings can have: rarely needed

    return yaml.safe_dump(msgspec.to_builtins(value), allow_unicode=False, sort_keys=False)


def no_formula(cell: Any) -> Any:
    """Text that a spreadsheet would compute gets an apostrophe before it; numbers stay numbers."""
    if not isinstance(cell, str):
        return cell
    cell = CONTROL.sub("", cell)  # first, so that none of them hides the sign that follows it
    if not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def note(text: str) -> None:
    """Chatter: to standard error, so that a pipe gets data only."""
    print(clean_lines(text), file=sys.stderr, flush=True)


def tell_error(detail: str, hint: str) -> None:
    """An error and what to do about it."""
    note(f"error: {detail}")
    if hint:
        note(f"hint: {hint}")


def fields(pairs: Iterable[tuple[str, object]]) -> Iterable[str]:
    """`Name:  value` lines, aligned; what is None or empty is left out."""
    kept = [(name, clean(str(value))) for name, value in pairs if value not in (None, "", [], {})]
    width = max([len(name) for name, _ in kept], default=0) + 1
    return [f"{name + ':':<{width}}  {value}" for name, value in kept]


class Table:
    """Rows under headings. The first column names the row."""

    def __init__(
        self, *headings: str, narrows: Mapping[str, int] | None = None, spare: Sequence[str] = ()
    ) -> None:
        self.headings = headings
        self.rows: list[list[str]] = []
        # Which columns a narrow terminal folds, and down to how much, in this order; None: only the last one.
        self.narrows = narrows
        self.spare = spare  # which columns it leaves out if that is not enough, in this order

    def add(self, *cells: object) -> None:
        """A row; None shows as a dash."""
        self.rows.append(["-" if cell is None or cell == "" else clean(str(cell)) for cell in cells])

    def show(self, wide: bool = False) -> None:
        """To standard output: aligned for a pipe; coloured and, unless it is to be wide, fitted for a terminal."""
        if not sys.stdout.isatty():
            sys.stdout.writelines(plain_lines([list(self.headings), *self.rows]))
            return
        console = console_for(self, wide)
        console.print(coloured(self, None if wide else console.width))
        left_out = [] if wide else [self.headings[column] for column in self.fit(console.width).left_out]
        if left_out:
            note(f"-o wide also has {', '.join(left_out)}")

    def lines(self) -> list[str]:
        """The same without colours, to stand among other lines."""
        if not sys.stdout.isatty():
            return [line.rstrip("\n") for line in plain_lines([list(self.headings), *self.rows])]
        console = console_for(self)
        with console.capture() as kept:
            console.print(coloured(self, console.width))
        return [clean(line).rstrip() for line in kept.get().splitlines()]

    def fit(self, room: int) -> Fitted:
        """How it is shown in so many columns of a terminal."""
        return fitted([list(self.headings), *self.rows], self.narrows or {}, self.spare, room)


def plain_lines(rows: Sequence[Sequence[str]], widths: Sequence[int] | None = None) -> Iterable[str]:
    """Columns as wide as their widest cell or as given, two spaces apart; the last one is not filled up."""
    widths = widths or [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(padded).rstrip() + "\n"


def coloured(table: Table, width: int | None = None) -> RichTable:
    """The same table for rich. Cells become `Text`, so that no cell is taken for markup.

    In a table that narrows, what has no room is folded, and only a command, which `phalanx show` has whole, is cut.
    """
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(box=None, pad_edge=False, header_style="bold")
    fit = Fitted(range(len(table.headings)), {}, ())
    if table.narrows is not None and width is not None:
        fit = table.fit(width)
    for column in fit.shown:
        heading, is_folded = table.headings[column], column in fit.widths
        is_cut = heading == CUT and is_folded
        folds = (is_folded or column == fit.shown[-1]) and not is_cut
        overflow: Literal["fold", "ellipsis", "ignore"]
        overflow = "fold" if folds else "ellipsis" if is_cut else "ignore"
        drawn.add_column(heading, no_wrap=not folds, overflow=overflow, width=fit.widths.get(column))
    for row in table.rows:
        cells = [row[column] for column in fit.shown]
        drawn.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in cells))
    return drawn


def console_for(table: Table, wide: bool = False) -> Console:
    """The terminal, as wide as it is for a table that narrows; else wide enough for all columns but the last."""
    from rich.console import Console

    console = Console(markup=False, highlight=False)
    if table.narrows is not None and not wide:
        return console
    widths = [max(map(len, column)) for column in zip(table.headings, *table.rows, strict=True)]
    least = sum(widths[:-1]) + 2 * len(widths) + min(widths[-1], LAST_WIDTH_MIN)
    console.width = max(console.width, least)
    return console
