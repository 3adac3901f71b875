"""Which node is offered a task first: one number for every node that has room, and the least is the best.

`pack` keeps what is large whole. It compares, one after the other,

    1. the memory of the devices a task would get: the smallest type that suffices,
    2. how many devices of what it asks for are free,
    3. free cores,
    4. free memory.

A task without devices ranks nodes that have none before those whose devices are all taken, and both before nodes with
free devices. `most-free-cores` is KohakuRiver's rule. The earlier row wins a tie in both. For a request
that is spread the last three points are turned round: the smallest type that suffices, then the most free.

The four are packed into 63 bits, so that numpy compares all nodes at once; sizes that hardly differ are equal
(`amounts.magnitude`), and counts end at a largest value. Members of a gang stand together first and are packed
second, so for them only the first point is asked (`grades`).

A `Ranking` has the nodes that could take a task of one class, so that the best is found without looking at all of
them. Rows stand in shelves; of each shelf the best is known: a change looks at one shelf, a question at the shelves.
"""

from __future__ import annotations

from heapq import heapify
from typing import Literal

import numpy as np

from phalanx.core.model.amounts import CORES, magnitude
from phalanx.core.model.columns import Columns
from phalanx.core.model.ledger import MIXED, Ledger
from phalanx.core.model.resources import Request
from phalanx.core.model.tree import Column

Score = Literal["pack", "most-free-cores"]
SCORES: tuple[Score, ...] = ("pack", "most-free-cores")
FREE_OF_DEVICES = 1  # up to this grade a node has no free devices, as a task that wants none sees it
WORST = (1 << 63) - 1  # of a node without room

SHELF = 256
Order = list[tuple[int, int]]  # a heap of (score, row)
_ALL = 1 << 62  # more than all cores
_GRADE_MAX = (1 << 17) - 1
_DEVICES_MAX = (1 << 10) - 1
_CORES_BITS = 11  # whole cores differ up to 2,048 of them, parts of one up to a few
_CORES_MAX = (1 << 16) - 1
_MEMORY_BITS = 14
_MEMORY_MAX = (1 << 20) - 1
_FREE = (1 << 46) - 1  # the bits of what is free
_ANY = Request(gpus=1)
_MIXED_MAX = 64  # classes of which the grades of nodes with several types of device are kept
_Class = tuple[str | None, int, int]  # type, memory and number of devices asked for


class Scores:
    """The scores of all nodes, for any request."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._mixed: dict[_Class, _MixedGrades] = {}

    def of(self, row: int, request: Request, score: Score) -> int:
        """The score of one node that has room."""
        ledger = self._columns.ledgers[row]
        if score == "most-free-cores":
            return _ALL - ledger.free[CORES]
        devices = min(ledger.free_of(request), _DEVICES_MAX)
        cores = min(magnitude(ledger.free[CORES], _CORES_BITS), _CORES_MAX)
        memory = min(magnitude(ledger.free[1], _MEMORY_BITS), _MEMORY_MAX)
        value = ((_grade(ledger, request) << 10 | devices) << 16 | cores) << 20 | memory
        return value ^ _FREE if request.spread else value

    def column(self, request: Request, score: Score) -> Column:
        """The score of every node, as if it had room."""
        columns = self._columns
        if score == "most-free-cores":
            return _ALL - columns.free[CORES]
        cores = np.minimum(_magnitudes(columns.free[CORES], _CORES_BITS), _CORES_MAX)
        devices = np.minimum(columns.devices(request), _DEVICES_MAX)
        memory = np.minimum(_magnitudes(columns.free[1], _MEMORY_BITS), _MEMORY_MAX)
        values = ((self._grades(request) << 10 | devices) << 16 | cores) << 20 | memory
        return values ^ _FREE if request.spread else values

    def grades(self, request: Request, score: Score) -> Column | None:
        """Of every node how precious what it has for this request is; None if no node is better than another."""
        alike = self._columns.alike
        if score != "pack" or not (alike.has_sizes if request.gpus else alike.has_devices):
            return None
        return self._grades(request)

    def unused(self, request: Request) -> Column:
        """How much each node has for others at this moment: devices, if they are asked for, then cores."""
        devices = self._columns.devices(request) if request.gpus else 0
        found: Column = (devices << 32) + self._columns.free[CORES]
        return found

    def _grades(self, request: Request) -> Column:
        columns = self._columns
        asked = request if request.gpus else _ANY
        found = np.minimum(columns.device_size, _GRADE_MAX - 2)
        if columns.alike.has_mixed:
            self._of_mixed(asked).put_into(found)
        if request.gpus:
            return found
        every, free = columns.devices(_ANY, every=True), columns.devices(_ANY)
        return np.where(free > 0, found + 2, np.where(every > 0, 1, 0))

    def _of_mixed(self, request: Request) -> _MixedGrades:
        key = request.gpu_type, request.gpu_memory_bytes, request.gpus
        found = self._mixed.get(key)
        if found is None:
            if len(self._mixed) >= _MIXED_MAX:  # users choose the classes, so their number is bounded
                self._mixed.clear()
            found = self._mixed[key] = _MixedGrades(self._columns, request)
        found.catch_up()
        return found


def _grade(ledger: Ledger, request: Request) -> int:
    """The same for one node as `Scores._grades` for all."""
    if request.gpus:
        return min(ledger.size_for(request), _GRADE_MAX - 2)
    if not ledger.devices:
        return 0
    return min(ledger.size_for(_ANY), _GRADE_MAX - 2) + 2 if ledger.devices_free else 1


def _magnitudes(amounts: Column, bits: int) -> Column:
    """`amounts.magnitude` of many: floating-point numbers are made of the same two parts."""
    part, power = np.frexp(amounts.astype(np.float64))
    below = ((2 * part - 1) * (1 << bits)).astype(np.int64)
    found: Column = np.where(amounts > 0, (power.astype(np.int64) << bits) | below, 0)
    return found


class _MixedGrades:
    """The grades of nodes with several types of device for one class: they change with what is free there."""

    def __init__(self, columns: Columns, request: Request) -> None:
        self._columns = columns
        self._request = request
        self._marks = -1, -1
        self._grades: dict[int, int] = {}

    def catch_up(self) -> None:
        columns = self._columns
        joined, changed = columns.joined.since(self._marks[0]), columns.changes.since(self._marks[1])
        self._marks = columns.joined.mark, columns.changes.mark
        if joined is None or changed is None or joined:
            self._grades = dict.fromkeys(np.flatnonzero(columns.device_size == MIXED).tolist(), 0)
            changed = set(self._grades)
        for row in changed & self._grades.keys():
            self._grades[row] = min(columns.ledgers[row].size_for(self._request), _GRADE_MAX - 2)

    def put_into(self, column: Column) -> None:
        if self._grades:
            column[list(self._grades)] = list(self._grades.values())


class Ranking:
    """Scores of the nodes with room for one more task of the class, and the best of every shelf."""

    def __init__(self, columns: Columns, scores: Scores, request: Request, score: Score) -> None:
        self._columns = columns
        self._scores = scores
        self._request = request
        self._score = score
        self._mark = self._size = 0
        self._read()

    def best(self) -> int | None:
        """The row of the best node, or None if no node has room."""
        shelf = int(self._tops.argmin())
        if self._tops[shelf] == WORST:
            return None
        first = shelf * SHELF
        return first + int(self._values[first : first + SHELF].argmin())

    def catch_up(self) -> None:
        """Follow what has changed since the last look."""
        columns = self._columns
        if self._mark == columns.changes.mark:
            return
        rows = columns.changes.since(self._mark)
        if rows is None or self._size != len(columns) or 4 * len(rows) > len(columns) + SHELF:
            self._read()
            return
        self._mark = columns.changes.mark
        for row in rows:
            self._put(row, self.score(row))

    def score(self, row: int) -> int:
        """What a node is worth now."""
        room = self._columns.slots_of(row, self._request)
        return self._scores.of(row, self._request, self._score) if room else WORST

    def pass_over(self, row: int) -> None:
        """The node's own ledger says no: do not name it again until something changes there."""
        self._put(row, WORST)

    def values(self) -> Column:
        """The score of every node as it is now, WORST where there is no room. Read it, and keep a copy."""
        self.catch_up()
        return self._values[: self._size]

    def in_order(self) -> tuple[Order, int]:
        """Every node that has room as (score, row), in a heap, and up to which change that holds."""
        self.catch_up()
        rows = np.flatnonzero(self._values != WORST)
        order = list(zip(self._values[rows].tolist(), rows.tolist(), strict=True))
        heapify(order)
        return order, self._mark

    def changed(self, mark: int) -> set[int] | None:
        """The rows that changed after a mark, or None if that is too long ago."""
        return self._columns.changes.since(mark)

    def _read(self) -> None:
        columns = self._columns
        self._mark, self._size = columns.changes.mark, len(columns)
        shelves = max(1, -(-len(columns) // SHELF))
        self._values: Column = np.full(shelves * SHELF, WORST, dtype=np.int64)
        values = self._scores.column(self._request, self._score)
        self._values[: len(columns)] = np.where(columns.slots(self._request) > 0, values, WORST)
        self._tops: Column = self._values.reshape(shelves, SHELF).min(axis=1)

    def _put(self, row: int, value: int) -> None:
        shelf = row // SHELF
        before, top = int(self._values[row]), int(self._tops[shelf])
        self._values[row] = value
        if value <= top:
            self._tops[shelf] = value
        elif before == top:
            self._tops[shelf] = self._values[shelf * SHELF : (shelf + 1) * SHELF].min()
