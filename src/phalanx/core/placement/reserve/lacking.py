"""Where a unit lacks the least: the nodes to keep for the head if nobody knows when it can start.

What a node lacks for so many members is counted in members: two of four GPUs that one member asks for are half a
member. A domain that must hold all of them lacks the sum over its nodes, members standing where it is least. What is
counted is what would be there with everybody gone; who leaves when is `releases.py`'s business.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from phalanx.core.model.columns import Matrix
from phalanx.core.model.resources import Request
from phalanx.core.model.tree import Column
from phalanx.core.model.waiting import Unit, WaitingGang
from phalanx.core.placement.gang.rules import GatherLevels
from phalanx.core.placement.gang.shapes import MemberShape
from phalanx.core.placement.reserve.footprint import footprint, gather_of, is_divisible, shapes_of_unit
from phalanx.core.placement.reserve.releases import Scale

_DOMAINS_MAX = 8  # groups share nodes, so the first domain may be too small after all


class _Slots(Struct):
    """The slots of one shape, in up to three parts a node: free ones, the one that is free in part, the others."""

    row: Column
    count: Column
    price: NDArray[np.float64]  # how much of a member each of them lacks
    domain: Column


class Lacking:
    """One unit, what is free now, and what would be if everybody left."""

    def __init__(self, unit: Unit, scale: Scale, free: Matrix, everybody: Matrix) -> None:
        self._unit, self._scale, self._free, self._everybody = unit, scale, free, everybody
        self._shapes, self._gather = shapes_of_unit(unit), gather_of(unit)
        self._tree = scale.nodes.tree
        self.level = (
            GatherLevels(self._tree, self._gather).top or 0 if unit.is_gang else self._tree.node_level
        )

    def nearest(self) -> Matrix | None:
        """What the unit would take of each node in the domain that lacks the least; of equals the first."""
        lack, could = self._lack()
        numbers = np.flatnonzero(could)
        place = self._tree.place[numbers] if self.level == self._tree.node_level else numbers
        order = np.lexsort((place, lack[numbers]))[:_DOMAINS_MAX]
        for number in numbers[order].tolist():
            need = self.within(self._tree.rows(self.level, number))
            if need is not None:
                return need
        return footprint(self._unit, self._scale, self._everybody)

    def within(self, rows: Column, on_each: bool = False) -> Matrix | None:
        """What it would take of each of these nodes and of no others; None if they cannot hold it.

        With `on_each` a member stands on every one of them, if there are enough members: none of them is let go.
        """
        there = np.full_like(self._everybody, -1)  # less than nothing, so that nobody fits
        there[:, rows] = self._everybody[:, rows]
        if len(self._shapes) > 1 or not is_divisible(self._gather):
            return footprint(self._unit, self._scale, there)
        (shape,) = self._shapes
        slots = self._slots(shape, there)
        if on_each and len(rows) <= shape.need:
            slots = _each_first(slots, rows)
        order = np.lexsort((self._tree.place[slots.row], slots.price))
        count = slots.count[order]
        taken = np.clip(shape.need - (count.cumsum() - count), 0, count)
        if taken.sum() < shape.need or (self.level and len(np.unique(slots.domain[order][taken > 0])) > 1):
            return None
        members = np.bincount(slots.row[order], taken, minlength=there.shape[1]).astype(np.int64)
        return self._scale.ask(shape.request)[:, None] * members

    def _lack(self) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """How much every domain of the level lacks, and which could hold the unit at all."""
        size = self._tree.size(self.level)
        lack, could = np.zeros(size), np.ones(size, dtype=np.bool_)
        for shape in self._shapes:
            slots = self._slots(shape, self._everybody)
            order = np.lexsort((slots.price, slots.domain))
            domain, count = slots.domain[order], slots.count[order]
            taken = np.clip(shape.need - _before(domain, count), 0, count)
            lack += np.bincount(domain, taken * slots.price[order], minlength=size)
            could &= np.bincount(domain, count, minlength=size) >= shape.need
        if self._unit.is_gang and self.level and (bound := self._bound()):
            at_home = np.unique(self._tree.up(self._tree.node_level, np.array(bound), self.level))
            could &= np.isin(np.arange(size), at_home)
        return lack, could

    def _bound(self) -> list[int]:
        unit: WaitingGang = self._unit  # type: ignore[assignment]  # only gangs are asked
        return [row for row, _ in unit.bound()]

    def _slots(self, shape: MemberShape, everybody: Matrix) -> _Slots:
        most = self._scale.slots(everybody, shape.request)
        free = np.minimum(self._in_part(shape.request), most)
        whole = free.astype(np.int64)
        begun = np.minimum(most - whole, 1)
        rows = np.arange(len(most))
        domain = self._tree.up(self._tree.node_level, rows, self.level)
        price = np.concatenate([np.zeros(len(most)), 1.0 - (free - whole), np.ones(len(most))])
        return _Slots(
            np.tile(rows, 3), np.concatenate([whole, begun, most - whole - begun]), price, np.tile(domain, 3)
        )

    def _in_part(self, request: Request) -> NDArray[np.float64]:
        """How many members each node has room for now, the last one in part."""
        found = np.full(self._free.shape[1], np.inf)
        for free, asked in zip(self._free, self._scale.ask(request).tolist(), strict=True):
            if asked:
                np.minimum(found, np.maximum(free, 0) / asked, out=found)
        return found


def _each_first(slots: _Slots, rows: Column) -> _Slots:
    """The same slots, the cheapest one of each of these nodes apart and before all others."""
    size = len(slots.row) // 3
    count = slots.count.copy()
    first = np.where(count[rows] > 0, rows, rows + size)  # free ones come before the one that is free in part
    has = np.minimum(count[first], 1)
    count[first] -= has
    domain = slots.domain[rows]
    return _Slots(
        np.concatenate([rows, slots.row]),
        np.concatenate([has, count]),
        np.concatenate([np.full(len(rows), -1.0), slots.price]),
        np.concatenate([domain, slots.domain]),
    )


def _before(segment: Column, values: Column) -> Column:
    """The sum of the values before each, within its segment; segments lie side by side."""
    run = values.cumsum() - values
    first = np.flatnonzero(np.concatenate([[True], segment[1:] != segment[:-1]])[: len(segment)])
    return run - np.repeat(run[first], np.diff(np.append(first, len(values))))
