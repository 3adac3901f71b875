"""Which nodes could take a task of one class, the best first.

The columns name the candidates in one calculation; the ledger of the chosen node gives the exact grant. The
best is the node with the most free cores, as seed 000 has it; the earlier node wins a tie.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np

from phalanx.core.model.resources import Grant, Request
from phalanx.core.model.table import NodeTable


class Spots:
    """Candidate nodes for one request, kept in order while a draft takes from them."""

    def __init__(self, nodes: NodeTable, request: Request) -> None:
        self._nodes = nodes
        self._request = request
        rows = np.flatnonzero(nodes.candidates(request))
        self._heap = list(zip((-nodes.cores[rows]).tolist(), rows.tolist(), strict=True))
        heapify(self._heap)

    def best(self) -> tuple[int, Grant] | None:
        """The best node's row and the grant it would give, or None if no node has room."""
        while self._heap:
            cores, row = self._heap[0]
            ledger = self._nodes.ledgers[row]
            if -cores != ledger.cores_free:  # an earlier class of the same plan took from it
                heappop(self._heap)
                heappush(self._heap, (-ledger.cores_free, row))
                continue
            answer = ledger.fit(self._request)
            if isinstance(answer, Grant):
                return row, answer
            heappop(self._heap)
        return None

    def taken(self, row: int) -> None:
        """The best node gave; put it back where it now belongs."""
        heappop(self._heap)
        heappush(self._heap, (-self._nodes.ledgers[row].cores_free, row))
