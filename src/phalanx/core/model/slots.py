"""How many tasks of a class each node could take, and their sums up the tree, kept up to date.

A class is a request. Asking for one that is kept costs what has changed since it was last asked: the rows that were
taken from or given back to, and the domains they stand in. The classes that were asked last are kept.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from phalanx.core.model.columns import FEW, Columns, lengthened
from phalanx.core.model.resources import Request
from phalanx.core.model.tree import Column, Tree


class SlotCounts(NamedTuple):
    """How many tasks with one request would find room, now."""

    column: Column  # by node row
    sums: tuple[Column, ...]  # for each layer of the tree, by domain
    tally: Tally


class Tally:
    """How many nodes have so many slots, in all and in each domain of the innermost layer."""

    def __init__(self, column: Column, tree: Tree) -> None:
        self._nodes = _occurring(column)
        self._column = column
        self._inner = tree.domains[-1] if tree.layers else np.zeros(len(column), dtype=np.int64)
        self._size = tree.size(tree.node_level - 1)
        self._domains: dict[int, Column] = {}  # only of those numbers of slots that were asked for

    def least(self, count: int) -> int | None:
        """The fewest slots of a node that has at least so many."""
        return min((slots for slots in self._nodes if slots >= count), default=None)

    def domains(self, slots: int) -> Column:
        """How many nodes with exactly so many slots each innermost domain has."""
        found = self._domains.get(slots)
        if found is None:
            where = self._inner[self._column == slots]
            found = self._domains[slots] = np.bincount(where, minlength=self._size)
        return found

    def shift(self, row: int, before: int, after: int) -> None:
        """The slots of one node have changed."""
        nodes, domain = self._nodes, self._inner[row]
        nodes[before] -= 1
        nodes[after] = nodes.get(after, 0) + 1
        if not nodes[before]:
            del nodes[before]
        for slots, change in ((before, -1), (after, 1)):
            if (found := self._domains.get(slots)) is not None:
                found[domain] += change


def _occurring(column: Column) -> dict[int, int]:
    """Every number of a column, and how often it occurs."""
    if len(column) and int(column.max()) < len(column):  # counting is quicker than sorting
        counts = np.bincount(column)
        values = np.flatnonzero(counts)
        return dict(zip(values.tolist(), counts[values].tolist(), strict=True))
    values, counts = np.unique(column, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


class ClassSlots:
    """The slots of one class, as they were at the last look."""

    def __init__(self, columns: Columns, request: Request, tree: Tree) -> None:
        self._columns = columns
        self._request = request
        self.column: Column = columns.slots(request)
        self._mark = columns.changes.mark
        self._ever: tuple[int, Tree, Column, tuple[Column, ...]] | None = None
        self._sum(tree)

    def catch_up(self, tree: Tree) -> None:
        """Follow what has changed since the last look."""
        columns = self._columns
        rows = columns.changes.since(self._mark)
        self._mark = columns.changes.mark
        if rows is None:
            self.column = columns.slots(self._request)
            self._sum(tree)
            return
        if self._tree is not tree:
            self.column = lengthened(self.column, len(columns))
            self._sum(tree)
        if len(rows) <= FEW:
            for row in rows:
                self._move(row, columns.slots_of(row, self._request))
        else:
            self._move_many(np.fromiter(rows, dtype=np.int64, count=len(rows)))

    def ever(self, tree: Tree) -> tuple[Column, tuple[Column, ...]]:
        """The same if every node were empty and at work; it changes only with the nodes themselves."""
        mark = self._columns.joined.mark
        if self._ever is None or self._ever[0] != mark or self._ever[1] is not tree:
            column = self._columns.slots(self._request, every=True)
            self._ever = mark, tree, column, tree.sums(column)
        return self._ever[2:]

    @property
    def counts(self) -> SlotCounts:
        return SlotCounts(self.column, self.sums, self.tally)

    def _sum(self, tree: Tree) -> None:
        self.sums = tree.sums(self.column)
        self.tally = Tally(self.column, tree)
        self._tree = tree

    def _move(self, row: int, slots: int) -> None:
        before = int(self.column[row])
        change = slots - before
        if change:
            self.column[row] = slots
            self.tally.shift(row, before, slots)
            for sums, domains in zip(self.sums, self._tree.domains, strict=True):
                sums[domains[row]] += change

    def _move_many(self, rows: Column) -> None:
        slots = self._columns.slots(self._request, rows)
        change = slots - self.column[rows]
        self.column[rows] = slots
        self.tally = Tally(self.column, self._tree)
        for sums, domains in zip(self.sums, self._tree.domains, strict=True):
            np.add.at(sums, domains[rows], change)
