"""Which domains of a level could hold a gang, the best first, by the order that `search.py` promises.

Gather rules mean levels of the tree. Most gangs need only the first domain, so that one is found without sorting all
the others. The grade of a node says how precious what it has is (`core/model/score.py`): where a domain has enough room
on nodes of low grades, its other nodes are left alone.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from math import lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phalanx.core.model.job import Gather
from phalanx.core.model.table import Tally
from phalanx.core.model.tree import Column, Mask, Tree, before

GRADES_MAX = 8  # of more grades the highest are taken for one
_Key = Callable[[Column], NDArray[Any]]  # numbers of domains to what is compared; the smaller is the better


class Field:
    """How many members of one part every domain could take, level by level.

    With multiples the room of a domain is what can be used of it: `multiples` has one number for each level. Members
    that are already there (`held`) are part of the multiple.
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
        self.multiples = multiples
        self._held: Sequence[Column] = ()  # by level
        if held is not None and multiples:
            sums_held = tree.sums(held)
            self._held = _over_all(held, sums_held), *sums_held, held
        self._sums = sums
        self._rooms: Sequence[Column] = ()

    def at(self, level: int) -> Column:
        """The room of every domain of a level; of the node level, of every node row."""
        if self.multiples:
            self._rooms = self._rooms or self._bottom_up()
            return self._rooms[level]
        if level == self.tree.node_level:
            return self.slots
        if self._sums is None:
            self._sums = self.tree.sums(self.slots)
        return self._sums[level - 1] if level else _over_all(self.slots, self._sums)

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
        held = int(self._held[level][number]) if self._held else 0
        return max(0, room - (room + held) % self.multiples[level])

    def _bottom_up(self) -> list[Column]:
        tree, level = self.tree, self.tree.node_level
        rooms = [self._rounded(level, self.slots)]
        while level:
            level -= 1
            outer = tree.up(level + 1, np.arange(len(rooms[0])), level)
            inside = np.bincount(outer, rooms[0], minlength=tree.size(level)).astype(np.int64)
            rooms.insert(0, self._rounded(level, inside))
        return rooms

    def _rounded(self, level: int, room: Column) -> Column:
        held = self._held[level] if self._held else 0
        return np.maximum(0, room - (room + held) % self.multiples[level])


def _over_all(slots: Column, sums: tuple[Column, ...]) -> Column:
    """The sum over the whole cluster, as the one domain of its level."""
    total: Column = (sums[0] if sums else slots).sum(keepdims=True)
    return total


class GatherLevels:
    """What gather rules mean in a tree. `top` is the level that must hold all of it; None: its layer is unknown."""

    def __init__(self, tree: Tree, gather: tuple[Gather, ...]) -> None:
        self.gather = gather
        self.unknown: list[Gather] = []
        self.preferred: list[int] = []  # levels, the outermost first
        self.multiples: tuple[int, ...] = ()  # per level: of how many members a domain holds a multiple
        self._tree = tree
        top = 0
        for rule in gather:
            level = tree.level(rule.layer)
            if level is None:
                self.unknown.append(rule)
                continue
            if rule.must:
                top = max(top, level)
            elif level not in self.preferred:
                insort(self.preferred, level)
            if rule.multiple > 1:
                before = self.multiples or (1,) * (tree.node_level + 1)
                self.multiples = (*before[:level], lcm(before[level], rule.multiple), *before[level + 1 :])
        self.top = None if any(rule.must for rule in self.unknown) else top

    def pinned(self, bound: Sequence[int]) -> Column | None:
        """The domains of the must layer in which members stand already; None if the others may go anywhere."""
        if not len(bound) or not self.top:
            return None
        return np.unique(self._tree.up(self._tree.node_level, np.asarray(bound), self.top))

    def multiples_within(self, held: Column | None) -> tuple[int, ...]:
        """Of how many members a domain of each level holds a multiple, since each of its parts holds one.

        Not so if members stand somewhere already (`held`): where no more come to them they need not make a multiple.
        """
        if held is not None or not self.multiples:
            return self.multiples
        found = list(accumulate(reversed(self.multiples), lcm))
        return tuple(reversed(found))

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """For each level, the next one over which members are divided: preferred layers first, if any."""
        inmost = max(self.preferred, default=0)
        kept = [
            level
            for level in range(1, self._tree.node_level + 1)
            if level >= inmost or level in self.preferred or (self.multiples and self.multiples[level] > 1)
        ]
        return tuple(next(to for to in kept if to > level) for level in range(self._tree.node_level))


class Grades:
    """The room of every domain on nodes of the first grade, of the first two, and so on."""

    def __init__(
        self, tree: Tree, slots: Column, grades: Column, multiples: tuple[int, ...], held: Column | None
    ) -> None:
        self._tree, self._slots, self._grades = tree, slots, grades
        self._multiples, self._held = multiples, held
        self._limits: list[int] = np.unique(grades[slots > 0])[: GRADES_MAX - 1].tolist()
        self._fields: list[Field] = []

    @property
    def is_one(self) -> bool:
        """Whether every node that has room is as good as any other."""
        return len(self._limits) <= 1

    def needed(self, level: int, count: int) -> Column:
        """How many grades each domain of a level has to use to hold so many."""
        found: Column = np.full(self._tree.size(level), len(self._limits), dtype=np.int64)
        for number in range(len(self._limits) - 1, -1, -1):
            found[self._field(number).at(level) >= count] = number
        return found

    def field(self, level: int, number: int, count: int) -> Field | None:
        """The room on the nodes that suffice for so many in one domain; None if it takes all of them."""
        for at in range(len(self._limits)):
            if int(self._field(at).at(level)[number]) >= count:
                return self._field(at)
        return None

    def _field(self, number: int) -> Field:
        while len(self._fields) <= number:
            limit = self._limits[len(self._fields)]
            slots = np.where(self._grades <= limit, self._slots, 0)
            self._fields.append(Field(self._tree, slots, None, self._multiples, self._held))
        return self._fields[number]


class Domains:
    """The room of all groups in every domain, and what makes one domain better than another.

    `pinned` are the domains of the must layer in which members already stand; more than one cannot be put right.
    """

    def __init__(
        self,
        tree: Tree,
        rules: GatherLevels,
        fields: Sequence[Field],
        existing: Field | None,
        bound: Sequence[int],
        cost: Column | None,
        tally: Tally | None,
        grades: Sequence[Grades | None],
    ) -> None:
        self.tree, self.rules, self.fields = tree, rules, fields
        self.existing, self.cost, self._tally = existing, cost, tally
        self._grades = grades
        self.pinned = rules.pinned(bound)

    def in_order(self, level: int, size: Sequence[int], *, is_least: bool = False) -> Iterator[int]:
        """Those of a level that could hold so many members of each group. If that is the least, more is better."""
        best: int | None = None
        if level == self.tree.node_level and self._is_plain and not is_least:
            best = self._tightest_node(size[0])
            if best is None:
                return
            yield best
        found = np.flatnonzero(self._holds(level, size))
        if not len(found):
            return
        keys = self._keys(level, size, is_least)
        if best is None:
            best = self._best(level, found, keys, is_least)
            yield best
        if len(found) > 1:
            for outer in range(level, 0, -1):
                sign = -1 if is_least and outer == level else 1
                keys += [self._around(field, level, outer, sign) for field in self.fields]
            order = np.lexsort([self._by_name(level, found), *(key(found) for key in reversed(keys))])
            yield from (number for number in found[order].tolist() if number != best)

    @property
    def _is_plain(self) -> bool:
        """Whether only slots decide between nodes, and it is known how many nodes have how many."""
        return (
            len(self.fields) == 1
            and self._tally is not None
            and self.existing is None
            and self.cost is None
            and self.pinned is None
            and not self.rules.multiples
            and not any(self._grades)
        )

    def _tightest_node(self, count: int) -> int | None:
        """The best node if only slots decide: one of those with the fewest, without reading what all nodes have."""
        assert self._tally is not None
        slots = self._tally.least(count)
        if slots is None:
            return None
        outer = self.tree.node_level - 1
        domain = self._tightest(outer, np.flatnonzero(self._tally.domains(slots)))
        rows = self.tree.rows(outer, domain)
        return int(rows[(self.fields[0].slots[rows] == slots).argmax()])

    def _holds(self, level: int, size: Sequence[int]) -> Mask:
        mask: Mask = self.fields[0].at(level) >= size[0]
        for field, count in zip(self.fields[1:], size[1:], strict=True):
            mask &= field.at(level) >= count
        if self.pinned is not None:
            assert self.rules.top is not None
            around = self.tree.up(level, np.arange(len(mask)), self.rules.top)
            mask &= (around == self.pinned[0]) & (len(self.pinned) == 1)
        return mask

    def _best(self, level: int, found: Column, keys: list[_Key], is_least: bool) -> int:
        """The first in order, found without sorting: mostly very few are left after the first comparison."""
        for key in keys:
            values = key(found)
            found = found[values == values.min()]
        return self._tightest(level, found, -1 if is_least else 1)

    def _tightest(self, level: int, found: Column, sign: int = 1) -> int:
        """The domain with the fewest slots; of equal ones that in the tightest domain around it, then by name."""
        for field in self.fields:
            if len(found) > 1:
                room = field.at(level)[found]
                found = found[room == (room.min() if sign > 0 else room.max())]
        return self._snuggest(level, found)

    def _snuggest(self, level: int, found: Column) -> int:
        """Of domains with as many slots, the one in the tightest domain around it, then by name."""
        if len(found) > 1 and level > 1:
            around = self.tree.up(level, found, level - 1)
            is_around = np.zeros(self.tree.size(level - 1), dtype=np.bool_)
            is_around[around] = True
            found = found[around == self._tightest(level - 1, np.flatnonzero(is_around))]
        return int(found[self._by_name(level, found).argmin()]) if len(found) > 1 else int(found[0])

    def _by_name(self, level: int, numbers: Column) -> Column:
        """Where these domains stand in the order of names."""
        return self.tree.place[numbers] if level == self.tree.node_level else numbers

    def _keys(self, level: int, size: Sequence[int], is_least: bool) -> list[_Key]:
        """What is compared before the slots, the first first; the smaller is the better."""
        keys: list[_Key] = []
        if self.existing is not None:
            keys += [self._around(self.existing, level, outer, -1) for outer in range(level, 0, -1)]
        if self.cost is not None:
            keys.append(self._price(level, size).__getitem__)
        for inner in self.rules.preferred:
            if inner > level:
                keys.append(self._spanned(level, inner, size).__getitem__)
        for grades, count in zip(self._grades, size, strict=True):
            if grades is not None and not is_least:
                keys.append(grades.needed(level, count).__getitem__)
        return keys

    def _around(self, field: Field, level: int, outer: int, sign: int) -> _Key:
        return lambda numbers: sign * field.at(outer)[self.tree.up(level, numbers, outer)]

    def _spanned(self, level: int, inner: int, size: Sequence[int]) -> Column:
        """Of how many domains of an inner level the count would make use, in each domain of this level."""
        numbers = np.arange(self.tree.size(inner))
        outer = self.tree.up(inner, numbers, level)
        total = np.zeros(self.tree.size(level), dtype=np.int64)
        for field, count in zip(self.fields, size, strict=True):
            room = field.at(inner)
            order = np.lexsort((-room, outer))
            used = (before(outer[order], room[order]) < count) & (room[order] > 0)
            total += np.bincount(outer[order][used], minlength=len(total))
        return total

    def _price(self, level: int, size: Sequence[int]) -> NDArray[np.float64]:
        """What the cheapest slots for the count would cost, in each domain of this level."""
        assert self.cost is not None
        outer = self.tree.up(self.tree.node_level, np.arange(len(self.cost)), level)
        total = np.zeros(self.tree.size(level))
        for field, count in zip(self.fields, size, strict=True):
            unit = self.cost / np.maximum(field.slots, 1)
            order = np.lexsort((unit, outer))
            slots = field.slots[order]
            takes = np.clip(count - before(outer[order], slots), 0, slots)
            total += np.bincount(outer[order], takes * unit[order], minlength=len(total))
        return total
