"""Regular expressions of strangers: only those whose match takes a short time, whatever the text.

A rule's patterns are tried by the coordinator, for whom everybody waits. Python's matcher goes back over what it
tried, and some short patterns make it go back for years, so repeats are few and stand after single characters.
"""

from __future__ import annotations

import re

from phalanx.api.fields import check_text, shown
from phalanx.errors import BadRequest

PATTERN_BYTES_MAX = 500
# How often the matcher may have to choose: a repeat counts for many choices, an option or an alternative for one.
CHOICES_MAX = 10
REPEAT_CHOICES = 4

_ATOM = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[^\\\[]", re.DOTALL)
_REPEAT = re.compile(r"(\*|\+|\?|\{[0-9]*(?:,[0-9]*)?\})[?+]?")


def check_pattern(field: str, pattern: str) -> None:
    """Refuse a pattern that cannot be read, or that some text could hold up."""
    check_text(field, pattern, PATTERN_BYTES_MAX)
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadRequest(f"{field}: {shown(pattern)} is not a regular expression: {error}") from None
    if no := _slow(pattern):
        raise BadRequest(f"{field}: {shown(pattern)} {no}")


def _slow(pattern: str) -> str | None:
    """Why matching could take long, or None if it cannot."""
    position = choices = 0
    while position < len(pattern):
        atom = _ATOM.match(pattern, position)
        if atom is None:
            return f"cannot be read from position {position} on"
        position = atom.end()
        if no := _unusual(pattern, atom.group(), position):
            return no
        if atom.group() == "(" and pattern.startswith("?:", position):
            position += 2
        choices += atom.group() == "|"
        repeat = _REPEAT.match(pattern, position)
        if repeat is None or atom.group() in "(|^":
            continue
        position = repeat.end()
        choices += 1 if repeat.group(1) == "?" else REPEAT_CHOICES
        if atom.group() == ")" and repeat.group(1) != "?":
            return "repeats a group, which can take for ever: repeat single characters or classes"
    if choices > CHOICES_MAX:
        return "has too many repeats, options and alternatives, which can take for ever: write several shorter patterns"
    return None


def _unusual(pattern: str, atom: str, after: int) -> str | None:
    if atom == "(" and pattern.startswith("?", after) and not pattern.startswith("?:", after):
        return "has a group of a special kind: only (…) and (?:…) are allowed"
    if atom[0] == "\\" and atom[1:].isdigit() and atom != "\\0":
        return "refers back to a group: that is not allowed"
    return None
