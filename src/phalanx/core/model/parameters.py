"""Parameters of a sweep: what each task of an array is given, as texts by name.

A *grid* has axes, each with its values, and every combination is a task; the last axis varies fastest. *Rows* are the
lines of a file, and each is a task; with both, every row is combined with every combination. Tasks are numbered from 1,
so the index of a task says what it is given, also in a job that repeats only some of them. A grid is kept as it was
written (`1..100000` is three numbers), rows as compressed blocks that are opened when one of their tasks starts.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache

from msgspec import Struct, msgpack

Range = tuple[int, int, int]  # first, count, step
BLOCK_ROWS = 256
PARAMS_MAX = 64
VALUE_BYTES_MAX = 4096
ROW_BYTES_MAX = 32 * 1024  # of one task, for its command and its environment have limits, too
ROWS_BYTES_MAX = 16 << 20  # of one sweep, compressed: it is one event
PROGRAM = "phalanx-params"  # stands before the command: a runner that knows no parameters does not find it
LINE = "line"  # the name of what stands in a line of a plain file
_rows_of = msgpack.Decoder(list[list[str]])


class Axis(Struct, frozen=True, array_like=True):
    """A parameter of a grid and its values: texts, and ranges of whole numbers."""

    name: str
    parts: tuple[str | Range, ...]

    def __len__(self) -> int:
        return sum(1 if isinstance(part, str) else part[1] for part in self.parts)

    def value(self, number: int) -> str:
        """One of its values, counted from 0."""
        for part in self.parts:
            if isinstance(part, str):
                if number == 0:
                    return part
                number -= 1
            elif number < part[1]:
                return str(part[0] + number * part[2])
            else:
                number -= part[1]
        raise IndexError(number)

    def first(self, parts: int) -> Axis:
        """The same with so many of its parts at most."""
        return Axis(self.name, self.parts[:parts])

    def __str__(self) -> str:
        return ",".join(part if isinstance(part, str) else _spelled(part) for part in self.parts)


class SweepRows(Struct, frozen=True, array_like=True):
    """Rows of a file in blocks of `BLOCK_ROWS`; a block that no task of the job needs is empty."""

    names: tuple[str, ...]
    count: int
    blocks: tuple[bytes, ...]

    def row(self, number: int) -> list[str]:
        """One row, counted from 0."""
        block, place = divmod(number, BLOCK_ROWS)
        return _opened(self.blocks[block])[place]

    def only(self, numbers: Iterable[int]) -> SweepRows:
        """The same with the blocks of these rows alone."""
        kept = {number // BLOCK_ROWS for number in numbers}
        blocks = tuple(block if at in kept else b"" for at, block in enumerate(self.blocks))
        return SweepRows(self.names, self.count, blocks)


class Params(Struct, frozen=True, array_like=True):
    """The parameters of a job."""

    axes: tuple[Axis, ...] = ()
    rows: SweepRows | None = None

    @property
    def names(self) -> tuple[str, ...]:
        of_rows = () if self.rows is None else self.rows.names
        return (*of_rows, *(axis.name for axis in self.axes))

    @property
    def count(self) -> int:
        """How many tasks it makes: all combinations."""
        return (1 if self.rows is None else self.rows.count) * self.combinations

    @property
    def combinations(self) -> int:
        """Of the axes alone."""
        count = 1
        for axis in self.axes:
            count *= len(axis)
        return count

    def values(self, index: int) -> dict[str, str]:
        """What the task with this index, counted from 1, is given."""
        row, cell = divmod(index - 1, self.combinations)
        of_axes: list[tuple[str, str]] = []
        for axis in reversed(self.axes):
            cell, number = divmod(cell, len(axis))
            of_axes.append((axis.name, axis.value(number)))
        of_row = {} if self.rows is None else dict(zip(self.rows.names, self.rows.row(row), strict=True))
        return of_row | dict(reversed(of_axes))

    def only(self, indexes: Iterable[int]) -> Params:
        """The same for a job that has these tasks alone."""
        if self.rows is None:
            return self
        combinations = self.combinations
        return Params(self.axes, self.rows.only((index - 1) // combinations for index in indexes))


class RowPacker:
    """Rows as they come, packed into blocks."""

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0
        self._blocks: list[bytes] = []
        self._open: list[Sequence[str]] = []

    def add(self, rows: Sequence[Sequence[str]]) -> None:
        self.count += len(rows)
        self._open += rows
        at = 0
        while len(self._open) - at >= BLOCK_ROWS:
            self._close(self._open[at : at + BLOCK_ROWS])
            at += BLOCK_ROWS
        del self._open[:at]

    def rows(self, names: tuple[str, ...]) -> SweepRows:
        """All that came, also if more is to come."""
        last = (_packed(self._open),) if self._open else ()
        return SweepRows(names, self.count, (*self._blocks, *last))

    def _close(self, rows: list[Sequence[str]]) -> None:
        block = _packed(rows)
        self._blocks.append(block)
        self.bytes += len(block)


def _packed(rows: Sequence[Sequence[str]]) -> bytes:
    return zlib.compress(msgpack.encode(rows), 1)


@lru_cache(maxsize=64)
def _opened(block: bytes) -> list[list[str]]:
    """Tasks start in order, so a block is opened once for all of its rows."""
    return _rows_of.decode(zlib.decompress(block))


def _spelled(part: Range) -> str:
    first, count, step = part
    last = first + (count - 1) * step
    return f"{first}..{last}" if abs(step) == 1 else f"{first}..{last}..{step}"
