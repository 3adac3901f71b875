"""What each node asks for its slots: of the victims that may leave, the cheapest go first.

An offer is the next slot of a node, or the next few that come together, and the price of those who leave for it. The
cheapest offers of all nodes together are taken. Prices are estimates, made in one calculation over all nodes: who
really leaves is decided when the members have their places (`trim.py`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from phalanx.core.model.tree import Column, Mask
from phalanx.core.placement.preempt.free import FreeAfter

Prices = NDArray[np.float64]


class Offers:
    """The offers of all rows of a room, for one group. `slots` is what is free now and costs nothing."""

    def __init__(self, room: FreeAfter, leaving: Mask, price: Prices) -> None:
        self._size = len(room.rows)
        self.slots: Column = room.slots()[0]
        chosen = np.flatnonzero(leaving)
        order = chosen[np.lexsort((price[chosen], room.row[chosen]))]
        row = room.row[order]
        slots = room.slots_in_turn(order)
        before = np.concatenate([[0], slots[:-1]])
        starts = _starts(row)
        before[starts] = self.slots[row[starts]]
        paid = _within(price[order].cumsum(), starts, len(row))
        at = np.flatnonzero(slots > before)
        self._row, self._gain = row[at], (slots - before)[at]
        starts = _starts(self._row)
        paid = paid[at]
        earlier = np.concatenate([[0.0], paid[:-1]])
        earlier[starts] = 0.0
        self._unit = (paid - earlier) / self._gain
        self._starts = starts
        self.total = np.bincount(self._row, paid - earlier, minlength=self._size)

    def cheapest(self, need: int) -> Column:
        """Slots on every row, at least `need` in all: the free ones and the cheapest of the others."""
        missing = need - int(self.slots.sum())
        if missing <= 0:
            return self.slots
        rank = np.empty(len(self._unit), dtype=np.int64)
        rank[np.lexsort((self._row, self._unit))] = np.arange(len(rank))
        order = np.argsort(self._in_order(rank), kind="stable")
        taken = order[: int(np.searchsorted(self._gain[order].cumsum(), missing)) + 1]
        more = np.bincount(self._row[taken], self._gain[taken], minlength=self._size)
        slots: Column = self.slots + more.astype(np.int64)
        return slots

    def _in_order(self, rank: Column) -> Column:
        """No offer of a row may come before an earlier one of the same row."""
        segment = np.zeros(len(rank), dtype=np.int64)
        segment[self._starts] = 1
        lift = segment.cumsum() * (len(rank) + 1)
        lifted: Column = np.maximum.accumulate(rank + lift) - lift
        return lifted


def _starts(row: Column) -> Column:
    """Where each row begins in a column that is ordered by row."""
    if not len(row):
        return np.zeros(0, dtype=np.int64)
    return np.flatnonzero(np.concatenate([[True], row[1:] != row[:-1]]))


def _within(run: Prices, starts: Column, size: int) -> Prices:
    """A running sum, begun anew at each start."""
    base = np.concatenate([[0.0], run])[starts]
    anew: Prices = run - np.repeat(base, np.diff(np.append(starts, size)))
    return anew
