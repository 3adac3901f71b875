"""Tasks of one job on as many different nodes as there is room on, for jobs that ask for it (`--spread`).

The next task goes to the node on which its job holds the fewest places; of several, by the score, which for such
requests names the node with the most free (`core/model/score.py`). A gang is laid out the same way at once. Spreading
says which node comes first and never that there is no room, so nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from phalanx.core.model.plan import Placement
from phalanx.core.model.resources import Grant, Request
from phalanx.core.model.score import WORST, Score
from phalanx.core.model.table import NodeTable
from phalanx.core.model.tenants import Tenants
from phalanx.core.model.tree import Column
from phalanx.core.model.waiting import WaitingGroup
from phalanx.core.placement.best_node import BestNode
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.precedence import Precedence

_KNOWN_MAX = 16  # for how many requests the order of the nodes is remembered


class SpreadNodes:
    """Candidate nodes for tasks of one job, while a draft takes from them. `held` is how many it has on each.

    Tasks come in rounds: in one, every node with the fewest places takes one more, so that a round is sorted once.
    """

    def __init__(self, nodes: NodeTable, request: Request, score: Score, held: Column) -> None:
        self.held = held
        self._nodes = nodes
        self._request = request
        self._ranking = nodes.ranking(request, score)
        self._round: list[int] = []  # rows that are still to take one, the best last
        self._is_first = True

    def best(self) -> tuple[int, Grant] | None:
        """The best node's row and the grant it would give, or None if no node has room."""
        while self._round or self._begin_round():
            row = self._round[-1]
            answer = self._nodes.ledgers[row].fit(self._request)
            if isinstance(answer, Grant):
                return row, answer
            self._ranking.pass_over(row)
            self._round.pop()
        return None

    def taken(self, row: int) -> None:
        """A task was placed on this node."""
        self.held[row] += 1
        if self._round and self._round[-1] == row:
            self._round.pop()
        else:
            self._round.clear()

    def _begin_round(self) -> bool:
        values = self._ranking.values()
        rows = np.flatnonzero(values != WORST)
        if not len(rows):
            return False
        held = self.held[rows]
        rows = rows[held == held.min()]
        if self._is_first:  # many jobs have one task to place, and for that nothing need be sorted
            self._is_first = False
            self._round = [int(rows[values[rows].argmin()])]
        else:
            self._round = rows[np.argsort(values[rows], kind="stable")][::-1].tolist()
        return True


Spots = BestNode | SpreadNodes


class KnownSpots:
    """The nodes for the tasks of a plan: for each request their order is remembered while others have their turn."""

    def __init__(self, draft: Draft, precedence: Precedence) -> None:
        self._draft, self._precedence = draft, precedence
        self._known: dict[Request, Spots] = {}

    def of(self, unit: WaitingGroup) -> Spots:
        found = self._known.get(unit.request)
        if found is None:
            draft = self._draft
            placed = draft.placements if len(unit.job.groups) > 1 or self._precedence.is_fair(unit) else ()
            found = spots(draft.nodes, draft.tenants, unit, draft.score, placed)
            if is_spread(unit.request):  # where the others of its job stand says nothing about the next one
                return found
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[unit.request] = found
        return found

    def forget(self) -> None:
        """There may be more room than was taken note of."""
        self._known.clear()


def spots(
    nodes: NodeTable, tenants: Tenants, unit: WaitingGroup, score: Score, placed: Sequence[Placement] = ()
) -> Spots:
    """The nodes for the tasks of a group, in the order that it asks for. `placed` is what a draft has placed where
    some of it may be of the same job: of its other groups, or of this one in an earlier turn."""
    if not is_spread(unit.request):
        return BestNode(nodes, unit.request, score)
    held = tenants.on_nodes(unit.job.id, len(nodes))
    if placed:
        mine = [nodes.rows[each.node] for each in placed if each.job == unit.job.id]
        held = held + np.bincount(np.array(mine, dtype=np.int64), minlength=len(nodes))
    return SpreadNodes(nodes, unit.request, score, held)


def is_spread(request: Request) -> bool:
    """Whether there are several nodes to choose from, and it asks for many of them."""
    return request.spread and request.target is None


def evenly(rows: Column, slots: Column, held: Column, values: Column, count: int) -> list[tuple[int, int]]:
    """So many members over the nodes in these rows, each with room for `slots` more beside the members it has `held`.

    Nodes are filled up to one height, and what is left goes one by one to the nodes of the least value, so that as
    many nodes as possible have members, and the fullest of them as few as possible. Asked only if all find room.
    """
    low, high = 0, int((held + slots).max(initial=0)) + 1
    while high - low > 1:  # the greatest height to which the members suffice
        height = (low + high) // 2
        if int(np.clip(height - held, 0, slots).sum()) <= count:
            low = height
        else:
            high = height
    takes = np.clip(low - held, 0, slots)
    left = count - int(takes.sum())
    if left:
        more = np.flatnonzero((takes < slots) & (held + takes <= low))
        takes[more[np.argsort(values[more], kind="stable")][:left]] += 1
    used = np.flatnonzero(takes)
    return list(zip(rows[used].tolist(), takes[used].tolist(), strict=True))
