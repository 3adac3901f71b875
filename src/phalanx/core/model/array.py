"""Arrays: which indexes the tasks of a job have (`1-100`, `0-99%4`, `10,20,30-40:2`), and how many may run at once.

The *index* is the number the user wrote, the *position* the task's place among them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

TASKS_MAX = 1_000_000
RANGES_MAX = 1000
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")


class ArrayError(ValueError):
    """An array that cannot be read."""


class Array(Struct, frozen=True, forbid_unknown_fields=True):
    """Index ranges as (first, count, step), in the order written, and how many may run at once (0: all)."""

    ranges: tuple[tuple[int, int, int], ...]
    at_once: int = 0

    def __len__(self) -> int:
        return sum(count for _, count, _ in self.ranges)

    def index(self, position: int) -> int:
        """The user's index of the task at `position`."""
        for first, count, step in self.ranges:
            if position < count:
                return first + position * step
            position -= count
        raise IndexError(position)

    def position(self, index: int) -> int | None:
        """Where the task with this index stands, or None if the array has no such index."""
        before = 0
        for first, count, step in self.ranges:
            offset, rest = divmod(index - first, step)
            if rest == 0 and 0 <= offset < count:
                return before + offset
            before += count
        return None

    def indexes(self) -> Iterator[int]:
        """All indexes, in the order of their positions."""
        for first, count, step in self.ranges:
            yield from range(first, first + count * step, step)

    @staticmethod
    def of(indexes: Iterable[int], at_once: int = 0) -> Array:
        """The array of these indexes, which are in order."""
        ranges: list[tuple[int, int, int]] = []
        for index in indexes:
            first, count, _ = ranges[-1] if ranges else (index, 0, 1)
            if count and index == first + count:
                ranges[-1] = first, count + 1, 1
            else:
                ranges.append((index, 1, 1))
        return Array(tuple(ranges), at_once)

    def __str__(self) -> str:
        limit = f"%{self.at_once}" if self.at_once else ""
        return ",".join(_spell(*each) for each in self.ranges) + limit


def parse_array(text: str) -> Array:
    """Read `1-100%4`, or raise ArrayError saying what is wrong and what would be right."""
    listed, percent, limit = text.strip().partition("%")
    if percent and not (limit.isascii() and limit.isdecimal() and len(limit) <= 9 and int(limit) > 0):
        raise ArrayError(f"array {text[:80]!r}: after '%' comes how many may run at once, a number from 1")
    parts = listed.split(",")
    if len(parts) > RANGES_MAX:
        raise ArrayError(f"array has {len(parts)} ranges, at most {RANGES_MAX} are allowed")
    array = Array(tuple(_read(part, text) for part in parts), int(limit or 0))
    if len(array) > TASKS_MAX:
        raise ArrayError(f"array {text[:80]!r} has {len(array)} tasks, at most {TASKS_MAX} are allowed")
    _refuse_overlap(array, text)
    return array


def _read(part: str, text: str) -> tuple[int, int, int]:
    match = _RANGE.fullmatch(part.strip())
    if match is None:
        raise ArrayError(
            f"array {text[:80]!r}: {part[:40]!r} is not an index or a range such as 1-100 or 0-40:2"
        )
    first, last, step = int(match.group(1)), int(match.group(2) or match.group(1)), int(match.group(3) or 1)
    if last < first:
        raise ArrayError(f"array {text[:80]!r}: {part[:40]!r} ends before it begins")
    if step == 0:
        raise ArrayError(f"array {text[:80]!r}: the step in {part[:40]!r} must be 1 or more")
    count = (last - first) // step + 1
    return first, count, step if count > 1 else 1  # one spelling for one index: equal arrays are equal


def _refuse_overlap(array: Array, text: str) -> None:
    if len(array.ranges) == 1:
        return
    seen: set[int] = set()
    for first, count, step in array.ranges:
        indexes = range(first, first + count * step, step)
        if not seen.isdisjoint(indexes):
            raise ArrayError(f"array {text[:80]!r} names an index twice")
        seen.update(indexes)


def _spell(first: int, count: int, step: int) -> str:
    if count == 1:
        return str(first)
    last = first + (count - 1) * step
    return f"{first}-{last}" if step == 1 else f"{first}-{last}:{step}"
