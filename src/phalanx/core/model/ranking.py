"""The nodes that could take a task of one class, ranked so that the best is found without looking at all of them.

The best is the node with the most free cores, as seed 000 has it; the earlier row wins a tie. Rows stand in shelves;
of each shelf the best is known, so that a change looks at one shelf and a question at the shelves.
"""

from __future__ import annotations

from heapq import heapify

import numpy as np

from phalanx.core.model.columns import Columns
from phalanx.core.model.resources import Request
from phalanx.core.model.tree import Column

SHELF = 256
RANKINGS_MAX = 64
CELLS_MAX = 1 << 22
RANKINGS_MIN = 8
_NO = -1  # less than any number of free cores of a node that has room


class Ranking:
    """Free cores of the nodes with room for one more task of the class, and the best of every shelf."""

    def __init__(self, columns: Columns, request: Request) -> None:
        self._columns = columns
        self._request = request
        self._mark = self._size = 0
        self._read()

    def best(self) -> int | None:
        """The row of the best node, or None if no node has room."""
        shelf = int(self._tops.argmax())
        if self._tops[shelf] == _NO:
            return None
        first = shelf * SHELF
        return first + int(self._cores[first : first + SHELF].argmax())

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
            room = columns.slots_of(row, self._request)
            self._put(row, columns.ledgers[row].cores_free if room else _NO)

    def pass_over(self, row: int) -> None:
        """The node's own ledger says no: do not name it again until something changes there."""
        self._put(row, _NO)

    def in_order(self) -> list[tuple[int, int]]:
        """Every node that has room as (minus its free cores, row): a heap, of which the first is the best."""
        self.catch_up()
        rows = np.flatnonzero(self._cores != _NO)
        order = list(zip((-self._cores[rows]).tolist(), rows.tolist(), strict=True))
        heapify(order)
        return order

    def _read(self) -> None:
        columns = self._columns
        self._mark, self._size = columns.changes.mark, len(columns)
        shelves = max(1, -(-len(columns) // SHELF))
        self._cores: Column = np.full(shelves * SHELF, _NO, dtype=np.int64)
        self._cores[: len(columns)] = np.where(columns.slots(self._request) > 0, columns.cores, _NO)
        self._tops: Column = self._cores.reshape(shelves, SHELF).max(axis=1)

    def _put(self, row: int, cores: int) -> None:
        shelf = row // SHELF
        before, top = int(self._cores[row]), int(self._tops[shelf])
        self._cores[row] = cores
        if cores >= top:
            self._tops[shelf] = cores
        elif before == top:
            self._tops[shelf] = self._cores[shelf * SHELF : (shelf + 1) * SHELF].max()


class Rankings:
    """The rankings that were asked last."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._kept: dict[Request, Ranking] = {}

    def of(self, request: Request) -> Ranking:
        """The ranking of a class, up to date."""
        found = self._kept.pop(request, None)
        if found is None:
            while len(self._kept) >= self._most():
                del self._kept[next(iter(self._kept))]
            found = Ranking(self._columns, request)
        else:
            found.catch_up()
        self._kept[request] = found
        return found

    def _most(self) -> int:
        return max(RANKINGS_MIN, min(RANKINGS_MAX, CELLS_MAX // max(1, len(self._columns))))
