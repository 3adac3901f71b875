"""Files of parameters: each line, each row of a CSV, or each object of a JSON file is a task.

They are read whole and checked here, so that an error names the file and the line before anything is sent.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from phalanx.api.schema.params import check_columns, check_rows, rows_of_objects
from phalanx.core.model.amounts import plural
from phalanx.core.model.array import TASKS_MAX
from phalanx.core.model.parameters import LINE
from phalanx.errors import BadRequest

FILE_BYTES_MAX = 256 << 20
STDIN = "-"
Read = tuple[Sequence[str], list[list[str]]]  # the columns, and the rows
Say = Callable[[str], None]


def each_line(file: str, say: Say | None = None) -> Read:
    """The lines of a file; empty ones are left out, which is said."""
    text = _text(file)
    lines = text.splitlines()
    rows = [[line] for line in lines if line.strip()]
    if say is not None and (left_out := len(lines) - len(rows)):
        say(f"{_shown(file)}: {left_out} empty lines are left out")
    return _checked([LINE], rows, file)


def from_csv(file: str) -> Read:
    """A CSV whose first line names the columns. Names have no ';' and no tab, so these may stand for commas."""
    text = _text(file)
    head = text.partition("\n")[0]
    delimiter = next((sign for sign in ";\t" if sign in head and "," not in head), ",")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=delimiter)
    rows: list[list[str]] = []
    columns: list[str] = []
    try:
        columns = [name.strip() for name in next(reader, [])]
        for row in reader:
            if row and len(row) != len(columns):
                has = f"line {reader.line_num} has {plural(len(row), 'value')}"
                names = ", ".join(columns[:8])
                raise BadRequest(f"{_shown(file)}: {has}, expected {len(columns)} ({names})")
            rows += [row] if row else []
    except csv.Error as error:
        raise BadRequest(f"{_shown(file)}: line {reader.line_num} is not CSV: {error}") from None
    return _checked(columns, rows, file)


def from_json(file: str) -> Read:
    """A list of objects, or one object in each line."""
    text = _text(file)
    if text.lstrip().startswith("["):
        found = _json(text, _shown(file))
        objects = found if isinstance(found, list) else []
    else:
        lines = enumerate(text.splitlines(), start=1)
        objects = [_json(line, f"{_shown(file)}: line {number}") for number, line in lines if line.strip()]
    if not objects:
        return _checked([], [], file)
    columns, rows = rows_of_objects(objects, _shown(file))
    return _checked(columns, rows, file)


def _json(text: str, where: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequest(f"{where} is not JSON: {error}") from None


def _checked(columns: Sequence[str], rows: list[list[str]], file: str) -> Read:
    if not rows:
        raise BadRequest(f"{_shown(file)}: it contains no rows")
    if len(rows) > TASKS_MAX:
        raise BadRequest(f"{_shown(file)}: {len(rows)} rows are too many, at most {TASKS_MAX} are allowed")
    check_columns(columns, _shown(file))
    check_rows(rows, columns, 1, _shown(file))
    return columns, rows


def _text(file: str) -> str:
    try:
        if file == STDIN:
            data = sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
        else:
            with Path(file).open("rb") as source:
                data = source.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadRequest(f"{_shown(file)} cannot be read: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise BadRequest(f"{_shown(file)} has more than {FILE_BYTES_MAX >> 20} MiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadRequest(f"{_shown(file)}: line {line} is not UTF-8") from None


def _shown(file: str) -> str:
    return "standard input" if file == STDIN else file
