"""Which node takes the next task of one class, the best first.

The table's ranking names the best by the score of the policy (`core/model/score.py`); the ledger of that node gives the
exact grant. A target leaves no choice. A run of many tasks has an order of its own, in which the next best is found
sooner.
"""

from __future__ import annotations

from heapq import heappop, heappush
from operator import gt

from phalanx.core.model.ledger import MIXED, Ledger
from phalanx.core.model.resources import Grant, Request
from phalanx.core.model.score import WORST, Order, Ranking, Score
from phalanx.core.model.table import NodeTable

# An order of one's own costs as much as so many questions: 16, and one for every 32 nodes.
_RUN_MIN = 16
_RUN_PART = 32


class BestNode:
    """Candidate nodes for one request, kept in order while a draft takes from them."""

    def __init__(self, nodes: NodeTable, request: Request, score: Score = "pack") -> None:
        self._nodes = nodes
        self._request = request
        self._ranking = nodes.ranking(request, score) if request.target is None else None
        self._packs = score == "pack"
        self._order: Order | None = None
        self._mark = 0  # up to which change the order holds
        self._latest: dict[int, int] = {}  # the scores of rows that changed since the order was made
        # Of a run that packs, the row named last and what it had left.
        self._leader: tuple[int, tuple[int, ...]] | None = None
        self.held = None  # whose tasks stand where is all the same
        self._until_run = _RUN_MIN + len(nodes) // _RUN_PART

    def best(self) -> tuple[int, Grant] | None:
        """The best node's row and the grant it would give, or None if no node has room."""
        ranking = self._ranking
        if ranking is None:
            return self._at_target()
        if self._order is not None:
            return self._first_in(self._order, ranking)
        ranking.catch_up()
        while (row := ranking.best()) is not None:
            answer = self._nodes.ledgers[row].fit(self._request)
            if isinstance(answer, Grant):
                return row, answer
            ranking.pass_over(row)
        return None

    def taken(self, _row: int) -> None:
        """A task was placed where `best` said."""
        self._until_run -= 1
        if self._ranking is not None and not self._until_run:
            self._put_in_order(self._ranking)

    def _put_in_order(self, ranking: Ranking) -> Order:
        self._order, self._mark = ranking.in_order()
        self._latest.clear()
        self._leader = None
        return self._order

    def _first_in(self, order: Order, ranking: Ranking) -> tuple[int, Grant] | None:
        """A node that has changed stands in the order once more, where it now belongs; where it was it is dropped."""
        rows = ranking.changed(self._mark)
        if rows is None:
            order = self._put_in_order(ranking)
        else:
            self._mark = self._nodes.columns.changes.mark
            if self._leader is not None:
                if (answer := self._still_first(rows)) is not None:
                    return answer
                rows.add(self._leader[0])  # its score was not worked out since
            for row in rows:
                self._latest[row] = value = ranking.score(row)
                if value != WORST:
                    heappush(order, (value, row))
        self._leader = None
        while order:
            value, row = order[0]
            if value == self._latest.get(row, value):
                grant = self._nodes.ledgers[row].fit(self._request)
                if isinstance(grant, Grant):
                    if self._packs:
                        self._leader = row, _left(self._nodes.ledgers[row])
                    return row, grant
            heappop(order)
        return None

    def _still_first(self, changed: set[int]) -> tuple[int, Grant] | None:
        """Packed, the node named last stays the best while it has room, if it alone has changed and gave back nothing.

        With devices of several sizes it need not: the small ones may be taken now.
        """
        assert self._leader is not None
        row, before = self._leader
        ledger = self._nodes.ledgers[row]
        if (
            len(changed) != 1
            or row not in changed
            or ledger.device_size == MIXED
            or not self._nodes.open[row]
        ):
            return None
        if any(map(gt, _left(ledger), before)):
            return None
        grant = ledger.fit(self._request)
        return (row, grant) if isinstance(grant, Grant) else None

    def _at_target(self) -> tuple[int, Grant] | None:
        assert self._request.target is not None
        row = self._nodes.rows.get(self._request.target.host)
        if row is None or not self._nodes.open[row]:
            return None
        answer = self._nodes.ledgers[row].fit(self._request)
        return (row, answer) if isinstance(answer, Grant) else None


def _left(ledger: Ledger) -> tuple[int, ...]:
    return *ledger.free, len(ledger.devices_free)
