"""Who has a chance in a plan, in the order in which they have their turn: units one by one, and fair queues.

A fair queue stands there once for each urgency, where the oldest stands that has a chance in it, and the fairest of it
has the turn. So a step costs as much as the logarithm of their number, whoever has had a turn meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from phalanx.core.model.waiting import Unit, WaitingClass
from phalanx.core.placement.precedence import FairQueue, InLine, Place, Precedence

_OF_QUEUE = -1  # instead of the number of a group
# In front the place within the queue: that of the queue moves on while units wait in it.
_InQueue = tuple[tuple[float, float, int, int], InLine]


class Turns:
    """A heap of units, and for each fair queue one of its own."""

    def __init__(self, precedence: Precedence, chances: Iterable[tuple[WaitingClass, Unit]]) -> None:
        self._precedence = precedence
        self._heap: list[tuple[float, int, int, InLine | FairQueue]] = []
        self._fair: dict[FairQueue, list[_InQueue]] = {}
        for waiting_class, unit in chances:
            found = precedence.in_line(waiting_class, unit)
            if precedence.is_fair(unit):
                self._fair.setdefault((unit.job.queue, unit.rank[0]), []).append((found.at[2:], found))
            else:
                self._heap.append((*unit.rank, found))
        for queue, units in self._fair.items():
            heapify(units)
            self._heap.append((queue[1], precedence.oldest(queue), _OF_QUEUE, queue))
        heapify(self._heap)

    def __bool__(self) -> bool:
        return bool(self._heap)

    def push(self, waiting_class: WaitingClass, unit: Unit) -> None:
        """A class that is to have another turn, from this unit on."""
        found = self._precedence.in_line(waiting_class, unit)
        if not self._precedence.is_fair(unit):
            heappush(self._heap, (*unit.rank, found))
            return
        queue = unit.job.queue, unit.rank[0]
        units = self._fair.setdefault(queue, [])
        heappush(units, (found.at[2:], found))
        if len(units) == 1:
            heappush(self._heap, (queue[1], self._precedence.oldest(queue), _OF_QUEUE, queue))

    def pop(self) -> tuple[InLine, Place | None]:
        """Whose turn it is, and where the next one stands."""
        while True:
            urgency, came, _, first = heappop(self._heap)
            if isinstance(first, InLine):
                return first, self._next()
            units = self._fair[first]
            if (oldest := self._precedence.oldest(first)) == came:
                _, (_, waiting_class, unit) = heappop(units)
                found = self._precedence.in_line(waiting_class, unit)
                if not units:
                    return found, self._next()
                if found.at[2:] <= units[0][0]:
                    heappush(self._heap, (urgency, oldest, _OF_QUEUE, first))
                    return found, self._next()
                # Its user has been given something since it was put there.
                heappush(units, (found.at[2:], found))
            heappush(self._heap, (urgency, oldest, _OF_QUEUE, first))

    def _next(self) -> Place | None:
        if not self._heap:
            return None
        urgency, came, _, first = self._heap[0]
        return first.at if isinstance(first, InLine) else (urgency, came, *self._fair[first][0][0])
