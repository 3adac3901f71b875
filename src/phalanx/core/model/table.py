"""All nodes as columns, so that one calculation asks every node at once.

The columns follow the ledgers: each take and give_back touches one row. A row that says yes is only a
candidate; the node's own ledger gives the exact grant or the reason. Slots per class, their sums up the tree and the
ranking for single tasks are kept here and follow what changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from msgspec import structs

from phalanx.core.model import topology
from phalanx.core.model.columns import Columns, Recent
from phalanx.core.model.ledger import Ledger
from phalanx.core.model.resources import Capacity, Grant, Request
from phalanx.core.model.score import Ranking, Score, Scores
from phalanx.core.model.slots import ClassSlots, SlotCounts, Tally
from phalanx.core.model.survey import TopologySurvey
from phalanx.core.model.topology import Topology
from phalanx.core.model.tree import Column, Mask, Tree

CLASSES_MAX = 256  # users choose the classes, so their number is bounded


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
        other.names, other.rows, other.columns, other.ledgers = (
            self.names,
            self.rows,
            self.columns,
            self.ledgers,
        )
        other._slots = Recent(self.columns, 16, CLASSES_MAX, 1 << 23)
        other.scores, other._rankings = self.scores, self._rankings
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

    def retake(self, row: int, grant: Grant) -> None:
        self.ledgers[row].retake(grant)
        self.columns.refresh(row)

    def promise(self, row: int, grant: Grant) -> None:
        self.ledgers[row].promise(grant)
        self.columns.refresh(row)

    def withdraw(self, row: int, grant: Grant) -> None:
        self.ledgers[row].withdraw(grant)
        self.columns.refresh(row)

    def could_ever(self, request: Request) -> bool:
        """Whether any node, empty, could hold this; nodes that are away count, for they may come back."""
        mask = self.columns.slots(request, every=True) > 0
        if not request.target:
            return bool(mask.any())
        rows = np.flatnonzero(self._only_target(mask, request))
        return any(self.ledgers[row].never(request) is None for row in rows)

    def slots(self, request: Request) -> SlotCounts:
        """How many tasks with this request each node could take now, and the sums for every layer of the tree.

        The columns are the table's own: whoever wants to keep or change them makes a copy.
        """
        if request.target is None:
            return self._class(request).counts
        column = np.zeros(len(self), dtype=np.int64)
        row = self.rows.get(request.target.host)
        if row is not None:
            column[row] = self.columns.slots_of(row, request)
        return SlotCounts(column, self.tree.sums(column), Tally(column, self.tree))

    def slots_ever(self, request: Request) -> Column:
        """How many each node could take if it were empty and at work."""
        return self.ever(request)[0]

    def ever(self, request: Request) -> tuple[Column, tuple[Column, ...]]:
        """How many each node could take if it were empty and at work, and the sums for every layer of the tree."""
        if request.target is None:
            return self._class(request).ever(self.tree)
        column = np.zeros(len(self), dtype=np.int64)
        row = self.rows.get(request.target.host)
        if row is not None:
            column[row] = Ledger(request.target.host, self.ledgers[row].capacity).slots(request)
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

    def _only_target(self, mask: Mask, request: Request) -> Mask:
        if request.target is None:
            return mask
        only = np.zeros_like(mask)
        row = self.rows.get(request.target.host)
        if row is not None:
            only[row] = mask[row]
        return only
