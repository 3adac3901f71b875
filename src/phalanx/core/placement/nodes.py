"""Which node takes the next task of one class, the best first.

The table's ranking names the best: the node with the most free cores, as seed 000 has it; the earlier node wins a
tie. The ledger of that node gives the exact grant. A target leaves no choice. Whoever places many tasks in a run has
an order of its own, in which the next best is found sooner.
"""

from __future__ import annotations

from heapq import heappop, heapreplace

from phalanx.core.model.resources import Grant, Request
from phalanx.core.model.table import NodeTable

# An order of one's own costs as much as so many questions: 16, and one for every 32 nodes.
_RUN_MIN = 16
_RUN_PART = 32


class Spots:
    """Candidate nodes for one request, kept in order while a draft takes from them."""

    def __init__(self, nodes: NodeTable, request: Request) -> None:
        self._nodes = nodes
        self._request = request
        self._ranking = nodes.ranking(request) if request.target is None else None
        self._order: list[tuple[int, int]] | None = None  # a heap of (minus the free cores, row)
        self._until_run = _RUN_MIN + len(nodes) // _RUN_PART

    def best(self) -> tuple[int, Grant] | None:
        """The best node's row and the grant it would give, or None if no node has room."""
        if self._order is not None:
            return self._first_in(self._order)
        ranking = self._ranking
        if ranking is None:
            return self._at_target()
        ranking.catch_up()
        while (row := ranking.best()) is not None:
            answer = self._nodes.ledgers[row].fit(self._request)
            if isinstance(answer, Grant):
                return row, answer
            ranking.pass_over(row)
        return None

    def taken(self, row: int) -> None:
        """The best node gave: it stands where it now belongs."""
        if self._order is not None:
            heapreplace(self._order, (-self._nodes.ledgers[row].cores_free, row))
            return
        self._until_run -= 1
        if self._ranking is not None and not self._until_run:
            self._order = self._ranking.in_order()

    def _first_in(self, order: list[tuple[int, int]]) -> tuple[int, Grant] | None:
        while order:
            cores, row = order[0]
            ledger = self._nodes.ledgers[row]
            if -cores != ledger.cores_free:  # somebody else of the same plan took from it
                heapreplace(order, (-ledger.cores_free, row))
                continue
            answer = ledger.fit(self._request)
            if isinstance(answer, Grant):
                return row, answer
            heappop(order)
        return None

    def _at_target(self) -> tuple[int, Grant] | None:
        assert self._request.target is not None
        row = self._nodes.rows.get(self._request.target.host)
        if row is None or not self._nodes.open[row]:
            return None
        answer = self._nodes.ledgers[row].fit(self._request)
        return (row, answer) if isinstance(answer, Grant) else None
