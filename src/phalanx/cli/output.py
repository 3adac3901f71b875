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
from phalanx.cli.text import CONTROL, clean, clean_lines
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
        sys.stdout.write(json_text(msgspec.json.format(msgspec.json.encode(value), indent=2)) + "\n")
    elif output == "yaml":
        sys.stdout.write(_yaml_text(value))
    elif output == "name":
        sys.stdout.writelines(f"{name}\n" for name in names)
    else:
        drawn = draw(output == "wide")
        if isinstance(drawn, Table):
            drawn.show()
        else:
            sys.stdout.writelines(f"{line}\n" for line in drawn)


def json_text(encoded: bytes) -> str:
    """JSON that a terminal shows and does not obey: what users wrote stays the same to whoever parses it."""
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", encoded.decode())


def _yaml_text(value: Any) -> str:
    text = msgspec.yaml.encode(value).decode()
    if not CONTROL.search(text):
        return text
    import yaml  # with escapes for all but ASCII, which only some strings can have: rarely needed

    return yaml.safe_dump(msgspec.to_builtins(value), allow_unicode=False, sort_keys=False)


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
