"""The nodes that could take a task of one class, ranked so that the best is found without looking at all of them.

`score.py` says which is the best; the earlier row wins a tie. Rows stand in shelves; of each shelf the best is known,
so that a change looks at one shelf and a question at the shelves.
"""

from __future__ import annotations

from heapq import heapify

import numpy as np

from phalanx.core.model.columns import Columns
from phalanx.core.model.resources import Request
from phalanx.core.model.score import WORST, Score, Scores
from phalanx.core.model.tree import Column

SHELF = 256
RANKINGS_MAX = 64
CELLS_MAX = 1 << 22
RANKINGS_MIN = 8
Order = list[tuple[int, int]]  # a heap of (score, row)


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


class Rankings:
    """The rankings that were asked last."""

    def __init__(self, columns: Columns, scores: Scores) -> None:
        self._columns = columns
        self._scores = scores
        self._kept: dict[tuple[Request, Score], Ranking] = {}

    def of(self, request: Request, score: Score) -> Ranking:
        """The ranking of a class, up to date."""
        found = self._kept.pop((request, score), None)
        if found is None:
            while len(self._kept) >= self._most():
                del self._kept[next(iter(self._kept))]
            found = Ranking(self._columns, self._scores, request, score)
        else:
            found.catch_up()
        self._kept[request, score] = found
        return found

    def _most(self) -> int:
        return max(RANKINGS_MIN, min(RANKINGS_MAX, CELLS_MAX // max(1, len(self._columns))))
