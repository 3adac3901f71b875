"""Whether members of several parts fit beside each other into one domain: a search that gives up after a while.

Slots say how many members of one part a node takes; what a node takes of several parts at once has to be tried.
The part with the least room goes first and fills nodes in order, as a careful person would do it; if that does not
work out, the last choice that can be made differently is. A search that ran out of steps says so (`gave_up`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

from phalanx.core.model.amounts import BYTES_MAX, add, slots
from phalanx.core.model.ledger import Ledger
from phalanx.core.model.resources import Request
from phalanx.core.placement.gang.search import Counts
from phalanx.core.placement.preempt.node_fit import divisible, suitable

STEPS_MAX = 20_000
DEPTH_MAX = 400  # parts times nodes: beyond this nodes are filled in order, and that is all


class Bin:
    """What one node still has for members, as numbers."""

    __slots__ = ("_demands", "_free", "_holders", "_left", "_suits")

    def __init__(self, ledger: Ledger, requests: Sequence[Request]) -> None:
        self._left = ledger.free.copy()
        self._suits = [
            suitable(ledger, request) if request.gpus else frozenset[int]() for request in requests
        ]
        self._free = set(ledger.devices_free)
        self._holders = ledger.holders
        self._demands: dict[frozenset[int], int] = {}

    def state(self) -> tuple[object, ...]:
        """Bins of equal state take the same."""
        return (
            *self._left,
            self._holders,
            frozenset(self._demands.items()),
            frozenset(self._free),
            tuple(self._suits),
        )

    def room(self, at: int, request: Request, most: int) -> int:
        """How many more members of a part it takes."""
        if request.exclusive:
            most = min(most, int(not self._holders))
        room = slots(self._left, request, most)
        return max(0, self._devices_for(at, request.gpus, room) if request.gpus and room > 0 else room)

    def take(self, at: int, request: Request, count: int) -> None:
        add(self._left, request, -count)
        self._holders += count
        if request.exclusive:  # nothing else fits beside it
            self._left[1] -= count * BYTES_MAX
        if request.gpus:
            suits = self._suits[at]
            self._demands[suits] = self._demands.get(suits, 0) + count * request.gpus
            if not self._demands[suits]:
                del self._demands[suits]

    def _devices_for(self, at: int, gpus: int, room: int) -> int:
        suits = self._suits[at]
        room = min(room, (len(suits & self._free) - self._demands.get(suits, 0)) // gpus)
        # Others may want devices of other kinds, perhaps the same ones.
        if len(self._demands) > (suits in self._demands):
            while room > 0:
                demands = {**self._demands, suits: self._demands.get(suits, 0) + room * gpus}
                if divisible(self._free, list(demands.items())):
                    break
                room -= 1
        return room


class Packing:
    """One search over the nodes of a domain, given in the order in which they should be filled."""

    def __init__(
        self,
        ledgers: Sequence[Ledger],
        rows: Sequence[int],
        requests: Sequence[Request],
        caps: Sequence[Sequence[int]],
        accepts: Callable[[list[Counts]], bool] | None,
        steps: int = STEPS_MAX,
    ) -> None:
        """`caps` limits each part on each of the rows; `accepts` has the last word on a whole layout, if given."""
        self._rows, self._requests, self._caps, self._accepts = rows, requests, caps, accepts
        self._bins = [Bin(ledgers[row], requests) for row in rows]
        self._placed = [[0] * len(rows) for _ in requests]
        self._tried: set[object] = set()
        self.steps = steps

    @property
    def gave_up(self) -> bool:
        """It ran out of steps, so a no only means that nothing was found."""
        return self.steps <= 0

    def find(self, size: Sequence[int]) -> list[Counts] | None:
        """Counts for every part, or None if there are none."""
        bins = range(len(self._bins))
        rooms = [sum(self._room(at, bin_) for bin_ in bins) for at in range(len(size))]
        order = sorted((at for at in range(len(size)) if size[at]), key=lambda at: rooms[at] / size[at])
        if self._fill_in_order(order, size):
            return self._counts()
        self._clear()
        if len(order) * len(bins) > DEPTH_MAX:
            self.steps = 0
            return None
        return self._counts() if self._stage(order, size) else None

    def extend(self, most: Sequence[int]) -> list[Counts]:
        """What was found, with more members of each part wherever there is room, up to so many."""
        for at, count in enumerate(most):
            self._pour(at, count - sum(self._placed[at]))
        return self._counts()

    def _fill_in_order(self, order: list[int], size: Sequence[int]) -> bool:
        """Without a second thought, which mostly does."""
        return all(self._pour(at, size[at]) for at in order) and self._is_accepted()

    def _pour(self, at: int, count: int) -> bool:
        for bin_ in range(len(self._bins)):
            if count <= 0:
                break
            more = min(count, self._room(at, bin_))
            self._move(at, bin_, more)
            count -= more
        return count <= 0

    def _stage(self, order: list[int], size: Sequence[int]) -> bool:
        """Place one part after another; True leaves everything placed."""
        if not order:
            return self._is_accepted()
        states = self._states()
        # Nodes that have the same left are alike, unless it matters in which domain they stand.
        key = (len(order), frozenset(Counter(states).items()) if self._accepts is None else tuple(states))
        if key in self._tried:
            return False
        at, *others = order
        rooms = [self._room(at, bin_) for bin_ in range(len(self._bins))]
        alike = [self._accepts is None and before == state for before, state in pairwise(states)]

        def fill(bin_: int, rest: int, before: int) -> bool:
            """As much as a node takes, then less and less, as long as the nodes after it can take the rest."""
            if not rest:
                return self._stage(others, size)
            if bin_ == len(rooms):
                return False
            most = min(rooms[bin_], rest, before if bin_ and alike[bin_ - 1] else rest)
            for count in range(most, max(0, rest - sum(rooms[bin_ + 1 :])) - 1, -1):
                self.steps -= 1
                if self.steps <= 0:
                    return False
                self._move(at, bin_, count)
                if fill(bin_ + 1, rest - count, count):
                    return True
                self._move(at, bin_, -count)
            return False

        if fill(0, size[at], 0):
            return True
        self._tried.add(key)
        return False

    def _states(self) -> list[tuple[object, ...]]:
        """What each node has left. A target or a label may keep members off one of two that have the same."""
        return [(bin_.state(), *(caps[at] for caps in self._caps)) for at, bin_ in enumerate(self._bins)]

    def _is_accepted(self) -> bool:
        return self._accepts is None or self._accepts(self._counts())

    def _room(self, at: int, bin_: int) -> int:
        return self._bins[bin_].room(at, self._requests[at], self._caps[at][bin_] - self._placed[at][bin_])

    def _move(self, at: int, bin_: int, count: int) -> None:
        if count:
            self._bins[bin_].take(at, self._requests[at], count)
            self._placed[at][bin_] += count

    def _clear(self) -> None:
        for at, placed in enumerate(self._placed):
            for bin_, count in enumerate(placed):
                self._move(at, bin_, -count)

    def _counts(self) -> list[Counts]:
        return [
            [(row, count) for row, count in zip(self._rows, placed, strict=True) if count]
            for placed in self._placed
        ]
