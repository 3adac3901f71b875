"""Output: one answer as a table, JSON, YAML or names.

JSON and YAML are the words of the API as they are, so that a program may rely on them. Data goes to standard
output, chatter to standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import msgspec
import typer

from phalanx.cli.table import Table
from phalanx.cli.text import clean, clean_lines
from phalanx.settings import Output

OutputOption = Annotated[
    Output | None,
    typer.Option("-o", "--output", help="How to show the result.", show_default="table"),
]


def emit(
    value: Any, output: Output, names: Iterable[str], draw: Callable[[bool], Table | Iterable[str]]
) -> None:
    """Show `value`. `draw` makes what a person reads, given whether they want it wide."""
    if output == "json":
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")
    elif output == "yaml":
        sys.stdout.write(msgspec.yaml.encode(value).decode())
    elif output == "name":
        sys.stdout.writelines(f"{name}\n" for name in names)
    else:
        drawn = draw(output == "wide")
        if isinstance(drawn, Table):
            drawn.show()
        else:
            sys.stdout.writelines(f"{line}\n" for line in drawn)


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
