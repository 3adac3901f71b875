"""Text made safe for a terminal, and numbers formatted for people.

What users wrote (names, commands, the last lines of a task) may hold escapes that take over a terminal, so
everything that goes into a table or a message passes `clean`. Task output itself is not ours to change.
"""

from __future__ import annotations

import re
from datetime import datetime

import typer

from phalanx.core.model.quantity import describe_bytes, describe_seconds, parse_cores
from phalanx.core.model.resources import Cores

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


def clean(text: str) -> str:
    """One line without escapes and control characters."""
    return _CONTROL.sub("", _BLANK.sub(" ", _ESCAPE.sub("", text)))


def clean_lines(text: str) -> str:
    """The same, with its lines kept."""
    return "\n".join(clean(line) for line in text.split("\n"))


def moment(at: float | None) -> str:
    """A time of day where we are, with the date, or a dash."""
    return "-" if at is None else datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def time_of_day(at: float) -> str:
    """The time where we are, of today."""
    return datetime.fromtimestamp(at).astimezone().strftime("%H:%M:%S")


def span(begin: float | None, end: float | None) -> str:
    """How long something took, or a dash."""
    return "-" if begin is None or end is None else describe_seconds(max(0.0, end - begin))


def size(count: int) -> str:
    """A size, or a dash for none."""
    return describe_bytes(count) if count else "-"


def read_cores(text: str) -> Cores:
    """An option's number of cores."""
    try:
        return parse_cores(str(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def plural(count: float, noun: str) -> str:
    """`1 task`, `2 tasks`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
