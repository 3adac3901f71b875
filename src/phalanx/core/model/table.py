"""The table of all nodes, so that one calculation asks every node at once: how many tasks of a class each could take.

The columns follow the ledgers: each take and give_back touches one row. A row that says yes is only a
candidate; the node's own ledger gives the exact grant or the reason. A class is a request. Its slots, their sums up
the tree and the ranking for single tasks are kept for the classes that were asked last; asking again costs what has
changed since: the rows that were taken from or given back to, and the domains they stand in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from msgspec import structs

from phalanx.core.model import topology
from phalanx.core.model.amounts import ANY, written
from phalanx.core.model.columns import FEW, Columns, Recent, lengthened
from phalanx.core.model.ledger import AddressChange, Ledger
from phalanx.core.model.proxies import Proxies
from phalanx.core.model.resources import Capacity, Grant, Request
from phalanx.core.model.score import Ranking, Score, Scores
from phalanx.core.model.topology import Topology
from phalanx.core.model.tree import Column, Mask, TopologySurvey, Tree

CLASSES_MAX = 256  # users choose the classes, so their number is bounded


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


class NodeTable:
    """Ledgers by name, and the columns over them. A node keeps its row unless another is removed."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.rows: dict[str, int] = {}
        self.columns = Columns()
        self.ledgers = self.columns.ledgers
        self.topology = topology.DEFAULT
        self._survey = TopologySurvey(self.topology)
        self.scores = Scores(self.columns)
        self.proxies = Proxies(self.columns)
        self._slots = Recent[Request, ClassSlots](
            self.columns, 16, CLASSES_MAX, 1 << 23
        )  # 64 MiB at the most
        self._rankings = Recent[tuple[Request, Score], Ranking](self.columns, 8, 64, 1 << 22)

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Ledger]:
        return iter(self.ledgers)

    @property
    def open(self) -> Mask:
        """Which nodes take new work. Read it; `set_open` changes it."""
        return self.columns.open

    @property
    def tree(self) -> Tree:
        """Where every node stands. It is drawn anew when labels or layers have changed."""
        return self._survey.tree(self.names)

    def ledger(self, name: str) -> Ledger:
        return self.ledgers[self.rows[name]]

    def put(self, name: str, capacity: Capacity) -> None:
        """Add a node, or replace one whose hardware changed while nothing was held on it."""
        row = self.rows.setdefault(name, len(self.names))
        if row == len(self.names):
            self.names.append(name)
        self.columns.put(row, Ledger(name, capacity))
        self._survey.note(row, capacity.labels)

    def remove(self, name: str) -> str | None:
        """Take a node out. The last row moves to where it was; whose row that is comes back, if another's."""
        row, last = self.rows.pop(name), len(self.names) - 1
        moved = self.names[last] if row != last else None
        if moved is not None:
            self.names[row], self.rows[moved] = moved, row
        self.names.pop()
        self.columns.remove(row)
        self._survey.remove(row, last)
        return moved

    def set_topology(self, declared: Topology) -> None:
        """Other layers: where every node stands is read from its labels anew."""
        self.topology = declared
        self._survey = TopologySurvey(declared)
        for row, ledger in enumerate(self.ledgers):
            self._survey.note(row, ledger.capacity.labels)

    def with_topology(self, declared: Topology) -> NodeTable:
        """The same nodes under other layers, to be asked; this table stays as it is."""
        other = NodeTable()
        other.names, other.rows = self.names, self.rows
        other.columns, other.ledgers = self.columns, self.ledgers
        other._slots = Recent(self.columns, 16, CLASSES_MAX, 1 << 23)
        other.scores, other._rankings, other.proxies = self.scores, self._rankings, self.proxies
        other.set_topology(declared)
        return other

    def set_open(self, name: str, is_open: bool) -> None:
        self.columns.set_open(self.rows[name], is_open)

    def is_open(self, name: str) -> bool:
        return bool(self.open[self.rows[name]])

    def take(self, row: int, grant: Grant) -> None:
        self.ledgers[row].take(grant)
        self.columns.refresh(row)

    def give_back(self, row: int, grant: Grant) -> None:
        self.ledgers[row].give_back(grant)
        self.columns.refresh(row)

    def undo_take(self, row: int, grant: Grant) -> None:
        self.ledgers[row].undo_take(grant)
        self.columns.refresh(row)

    def change_address(self, row: int, change: AddressChange, address: str) -> None:
        self.ledgers[row].change_address(change, address)
        self.columns.refresh(row)

    def retake(self, row: int, grant: Grant) -> None:
        self.ledgers[row].retake(grant)
        self.columns.refresh(row)

    def promise(self, row: int, grant: Grant) -> None:
        self.ledgers[row].promise(grant)
        self.columns.refresh(row)

    def withdraw(self, row: int, grant: Grant) -> None:
        self.ledgers[row].withdraw(grant)
        self.columns.refresh(row)

    def counted(self, request: Request, left: Sequence[float]) -> Request:
        """What limits that leave this much count for a request, as `Queues.free` has it.

        Of one that wants a node for itself, the least of the nodes that could hold it and are not more than is left;
        if all are more, the smallest of them.
        """
        if not request.exclusive:
            return request
        rows = np.flatnonzero(self.ever(request)[0])
        if not len(rows):
            return request
        columns = self.columns
        sizes = np.stack(
            [*(each[rows] for each in columns.every[:2]), columns.of_kind(ANY, every=True)[rows]]
        )
        admitted = ((sizes <= np.array(left[1:])[:, None]) | (sizes == 0)).all(axis=0)
        smallest = np.lexsort(sizes[::-1])[:1]
        cores, memory, gpus = sizes[:, admitted if admitted.any() else smallest].min(axis=1).tolist()
        return structs.replace(
            request, cores=written(cores), memory_bytes=memory, gpus=max(gpus, request.gpus)
        )

    def could_ever(self, request: Request) -> bool:
        """Whether any node, empty, could hold this; nodes that are away count, for they may come back."""
        if request.target is None:
            return bool(self.columns.slots(request, every=True).any())
        row = self.rows.get(request.target.host)
        return row is not None and self.ledgers[row].never(request) is None

    def slots(self, request: Request) -> SlotCounts:
        """How many tasks with this request each node could take now, and the sums for every layer of the tree.

        The columns are the table's own: whoever wants to keep or change them makes a copy.
        """
        if request.target is None:
            return self._class(request).counts
        column = self._of_target(request, self.columns.slots_of)
        return SlotCounts(column, self.tree.sums(column), Tally(column, self.tree))

    def ever(self, request: Request) -> tuple[Column, tuple[Column, ...]]:
        """How many each node could take if it were empty and at work, and the sums for every layer of the tree."""
        if request.target is None:
            return self._class(request).ever(self.tree)
        column = self._of_target(request, lambda row, asked: self.ledgers[row].emptied().slots(asked))
        return column, self.tree.sums(column)

    def ranking(self, request: Request, score: Score) -> Ranking:
        """The nodes that could take one task with this request, whatever its target."""
        anywhere = request if request.target is None else structs.replace(request, target=None)
        make = partial(Ranking, self.columns, self.scores, anywhere, score)
        return self._rankings.of((anywhere, score), make, Ranking.catch_up)

    def _class(self, request: Request) -> ClassSlots:
        tree = self.tree
        make = partial(ClassSlots, self.columns, request, tree)
        return self._slots.of(request, make, lambda kept: kept.catch_up(tree))

    def _of_target(self, request: Request, slots: Callable[[int, Request], int]) -> Column:
        """Slots on the node that the request names; it may be none of ours."""
        column = np.zeros(len(self), dtype=np.int64)
        row = None if request.target is None else self.rows.get(request.target.host)
        if row is not None:
            column[row] = slots(row, request)
        return column
