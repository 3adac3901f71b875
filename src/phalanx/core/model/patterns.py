"""Regular expressions of users, matched in time that grows with the text and not with the pattern's choices.

RE2 reads them, as one set for all patterns of a job. Linear time is not free, so the set has a size limit of its own.
What may be submitted is checked in `api/schema/fields.py`; what a match leads to is decided by the restart rules.
"""

from __future__ import annotations

from functools import lru_cache

import re2

SET_MEMORY_BYTES = 256 * 1024  # for one set: its program, and the states it has met
PROGRAM_MAX = 500  # instructions of all patterns of a job: about 3 ms on the worst text
TEXT_MAX = 500  # characters of a message that are looked at
SETS_KEPT = 256
MATCHES_KEPT = 1024


class Unreadable(ValueError):
    """RE2 cannot compile this pattern; the text says why."""


def program_size(pattern: str) -> int:
    """How many instructions a pattern becomes; Unreadable if RE2 cannot compile it."""
    try:
        return int(re2.compile(pattern, _options()).programsize)
    except (re2.error, UnicodeEncodeError) as error:
        raise Unreadable(_said(error)) from None


class LinePattern:
    """A pattern that lines of a log are searched for; Unreadable if RE2 cannot compile it."""

    def __init__(self, pattern: str) -> None:
        options = re2.Options()
        options.log_errors = False
        try:
            self._compiled = re2.compile(pattern, options)
        except (re2.error, UnicodeEncodeError) as error:
            raise Unreadable(_said(error)) from None

    def is_in(self, line: bytes) -> bool:
        """Whether it occurs in a line; `$` is its end, before the line break."""
        return self._compiled.search(line.removesuffix(b"\n")) is not None


@lru_cache(MATCHES_KEPT)
def matching(patterns: tuple[str, ...], text: str) -> frozenset[int]:
    """Which of the patterns occur in the first characters of a text, by position."""
    compiled, numbers = _compiled(patterns)
    if compiled is None:
        return frozenset()
    found = compiled.Match(text[:TEXT_MAX].encode("utf-8", "replace")) or ()
    return frozenset(numbers[each] for each in found)


@lru_cache(SETS_KEPT)
def unreadable(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """The patterns that never match: RE2 cannot compile them, or all of them together are too large."""
    compiled, numbers = _compiled(patterns)
    kept = set(numbers) if compiled is not None else ()
    return tuple(each for number, each in enumerate(patterns) if number not in kept)


@lru_cache(SETS_KEPT)
def _compiled(patterns: tuple[str, ...]) -> tuple[re2.Set | None, tuple[int, ...]]:
    """One set of all patterns that can be compiled, and fit together, and their positions; None if there are none."""
    found = re2.Set.SearchSet(_options())
    numbers: list[int] = []
    size = 0
    for number, pattern in enumerate(patterns):
        try:
            size += (more := program_size(pattern))
            if size > PROGRAM_MAX:
                size -= more
                continue
            found.Add(pattern)
        except (Unreadable, re2.error):
            continue
        numbers.append(number)
    try:
        found.Compile()
    except re2.error:
        return None, ()
    return (found, tuple(numbers)) if numbers else (None, ())


def _options() -> re2.Options:
    options = re2.Options()
    options.max_mem = SET_MEMORY_BYTES
    options.never_capture = True
    options.log_errors = False
    return options


def _said(error: Exception) -> str:
    """RE2's own words; the binding gives them as bytes."""
    said = error.args[0] if error.args else ""
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
