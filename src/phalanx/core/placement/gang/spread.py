"""How members are divided over the nodes of one domain, so that they span the fewest domains on the way down.

At every level the children with the most room are filled first, those that already hold members before all others,
and what is left goes to the smallest child that holds it. Where slots have a price (what would have to be evicted
for them), the cheapest are used instead. Which domain it is, `search.py` decides.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import lcm
from operator import neg

import numpy as np

from phalanx.core.model.tree import Column, Tree

Counts = list[tuple[int, int]]  # (node row, members)


class Field:
    """How many members of one group every domain could take, level by level.

    With multiples the room of a domain is what can be used of it: `multiples` has one number for each level. Counts
    of members who are already there (`held`) are part of the multiple.
    """

    def __init__(
        self,
        tree: Tree,
        slots: Column,
        sums: tuple[Column, ...] | None = None,
        multiples: tuple[int, ...] = (),
        held: Column | None = None,
    ) -> None:
        self.tree = tree
        self.slots = slots
        self.multiples = compounded(multiples) if multiples else ()
        self._held = (held, *tree.sums(held)) if held is not None and self.multiples else None
        self._sums = None if self.multiples else sums
        self._rounded: list[Column] = []

    def at(self, level: int) -> Column:
        """The room of every domain of a level; of the node level, of every node row."""
        if self.multiples:
            return self._bottom_up()[level]
        if level == self.tree.node_level:
            return self.slots
        if self._sums is None:
            self._sums = self.tree.sums(self.slots)
        if level:
            return self._sums[level - 1]
        outermost = self._sums[0] if self._sums else self.slots
        total: Column = outermost.sum(keepdims=True)
        return total

    @property
    def total(self) -> int:
        """The slots of all nodes, whether they can be used or not."""
        return int((self._sums[0] if self._sums else self.slots).sum())

    def within(self, level: int, low: int, high: int) -> Column:
        """The room of neighbouring domains, as `Tree.span` names them."""
        if level == self.tree.node_level:
            return self.at(level)[self.tree.order[low:high]]
        return self.at(level)[low:high]

    def usable(self, level: int, number: int, room: int) -> int:
        """How much of `room` in a domain may be used, for it to hold a multiple in the end."""
        if not self.multiples:
            return room
        return max(0, room - (room + self._held_in(level, number)) % self.multiples[level])

    def completes(self, level: int, number: int, count: int) -> bool:
        """Whether so many members in a domain make a multiple in it and in all domains around it."""
        if not self.multiples:
            return True
        at = np.array([number])
        around = ((outer, int(self.tree.up(level, at, outer)[0])) for outer in range(level + 1))
        return all((count + self._held_in(*each)) % self.multiples[each[0]] == 0 for each in around)

    def _held_in(self, level: int, number: int) -> int:
        if self._held is None:
            return 0
        if level == 0:
            return int(self._held[0].sum())
        column = self._held[0] if level == self.tree.node_level else self._held[level]
        return int(column[number])

    def _bottom_up(self) -> list[Column]:
        if not self._rounded:
            tree, values = self.tree, self.slots
            for level in range(tree.node_level, -1, -1):
                if level < tree.node_level:
                    values = values[tree.order] if level == tree.node_level - 1 else values
                    first = tree.first[level - 1][:-1] if level else np.zeros(1, dtype=np.int64)
                    values = np.add.reduceat(values, first) if len(values) else np.zeros(1, dtype=np.int64)
                values = self._round(level, values)
                self._rounded.insert(0, values)
        return self._rounded

    def _round(self, level: int, room: Column) -> Column:
        if self.multiples[level] <= 1:
            return room
        held: Column | int = 0
        if self._held is not None:
            whole = self._held[0].sum(keepdims=True)
            held = whole if level == 0 else self._held[0 if level == self.tree.node_level else level]
        return np.maximum(0, room - (room + held) % self.multiples[level])


def compounded(multiples: tuple[int, ...]) -> tuple[int, ...]:
    """A domain that holds multiples of 4 in each of its parts holds a multiple of 4 itself, whatever it is asked."""
    found: list[int] = []
    for each in reversed(multiples):
        found.insert(0, lcm(each, found[0]) if found else each)
    return tuple(found)


class Spread:
    """Divides members of one group over the nodes of a domain. `steps[level]` is the level to divide over next."""

    def __init__(
        self, field: Field, steps: tuple[int, ...], existing: Field | None, cost: Column | None
    ) -> None:
        self._tree = field.tree
        self._field = field
        self._steps = steps
        self._existing = existing
        self._cost = None if field.multiples else cost

    def over(self, level: int, number: int, count: int) -> Counts | None:
        """(node row, members) in the order in which nodes are filled, or None if not all of them find a place."""
        if not count:
            return []
        if self._cost is not None:
            return self._cheapest(level, number, count)
        found: Counts = []
        return found if self._divide(level, number, count, found) else None

    def _divide(self, level: int, number: int, count: int, found: Counts) -> bool:
        tree = self._tree
        if level == tree.node_level:
            found.append((number, count))
            return True
        inner = self._steps[level]
        low, high = tree.span(level, number, inner)
        room = self._field.within(inner, low, high)
        order = self._order(level, inner, low, high, room)
        children = tree.order[low:high] if inner == tree.node_level else None
        if self._field.multiples:
            takes = self._take_multiples(inner, low, order, room, children, count)
        else:
            takes = self._take(inner, low, high, order, room, count)
        if takes is None:
            return False
        if inner > level + 1:  # levels were passed over: stay with one neighbourhood before going to the next
            takes.sort()
        if children is not None:
            found += [(int(children[child]), take) for child, take in takes]
            return True
        return all(self._divide(inner, low + child, take, found) for child, take in takes)

    def _order(self, level: int, inner: int, low: int, high: int, room: Column) -> Column:
        """Children by what they already hold, then by room, then by the room around them, then by name."""
        keys = []
        if inner > level + 1:
            numbers = self._tree.order[low:high] if inner == self._tree.node_level else np.arange(low, high)
            keys = [
                -self._field.at(outer)[self._tree.up(inner, numbers, outer)]
                for outer in range(level + 1, inner)
            ]
        keys.append(-room)
        if self._existing is not None:
            keys.append(-self._existing.within(inner, low, high))
        return np.argsort(keys[0], kind="stable") if len(keys) == 1 else np.lexsort(keys)

    def _take(
        self, inner: int, low: int, high: int, order: Column, room: Column, count: int
    ) -> list[tuple[int, int]] | None:
        """The first children whole, and the smallest that holds the rest of the count."""
        children, rooms = order.tolist(), room[order].tolist()
        takes: list[tuple[int, int]] = []
        for at, size in enumerate(rooms):
            if size >= count:
                end = len(rooms)
                if self._existing is not None:  # those that hold members stand first, and the more the sooner
                    held = self._existing.within(inner, low, high)[order]
                    end = at + int((held[at:] == held[at]).sum())
                tightest = rooms[bisect_right(rooms, -count, at, end, key=neg) - 1]
                takes.append((children[bisect_left(rooms, -tightest, at, end, key=neg)], count))
                return takes
            if size:
                takes.append((children[at], size))
                count -= size
        return None

    def _take_multiples(
        self, inner: int, low: int, order: Column, room: Column, children: Column | None, count: int
    ) -> list[tuple[int, int]] | None:
        """As `_take`, with every child given only what keeps it at a multiple."""
        takes: list[tuple[int, int]] = []
        for child in order.tolist():
            number = low + child if children is None else int(children[child])
            take = self._field.usable(inner, number, min(int(room[child]), count))
            if take:
                takes.append((child, take))
                count -= take
            if not count:
                return takes
        return None

    def _cheapest(self, level: int, number: int, count: int) -> Counts | None:
        """The slots that cost the least, in the order in which they would be filled if they cost nothing."""
        assert self._cost is not None
        whole: Counts = []
        room = int(self._field.at(level)[number])
        if room < count or not self._divide(level, number, room, whole):
            return None
        rows, slots = np.array(whole, dtype=np.int64).T
        order = np.argsort(self._cost[rows] / slots, kind="stable")
        before = slots[order].cumsum() - slots[order]
        takes = np.zeros_like(slots)
        takes[order] = np.clip(count - before, 0, slots[order])
        used = np.flatnonzero(takes)
        return list(zip(rows[used].tolist(), takes[used].tolist(), strict=True))
