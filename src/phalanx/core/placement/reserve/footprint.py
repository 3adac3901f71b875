"""What an ask would take of each node if so much were free, and where it lacks the least: counted, not granted.

Devices are counted by kind; which of them, and where their NUMA nodes lie, is decided when the unit really starts.

`Lacking` finds the nodes to keep for the head if nobody knows when it can start. What a node lacks for so many members
is counted in members: two of four GPUs that one member asks for are half a member. A domain that must hold all of them
lacks the sum over its nodes, members standing where it is least.
"""

from __future__ import annotations

from itertools import islice

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from phalanx.core.model.columns import Matrix
from phalanx.core.model.resources import Request
from phalanx.core.model.tree import Column, before
from phalanx.core.model.waiting import Ask, Gathers, Part
from phalanx.core.placement.gang.domains import GatherLevels
from phalanx.core.placement.gang.search import Layout, PartSlots, layouts
from phalanx.core.placement.reserve.releases import Scale

_DOMAINS_MAX = 8  # groups share nodes, so the first domain may be too small after all
_LAYOUTS_MAX = 8  # groups share nodes, so the best layout of each may be too much for both


def fits(ask: Ask, scale: Scale, free: Matrix) -> bool:
    """Whether so much is enough; often there is a quicker answer than to look for the places."""
    if not ask.is_gang:
        return bool(scale.slots(free, ask.parts[0].request).any())
    parts, gather = ask.parts, ask.gather
    for part in parts:
        if int(np.minimum(scale.slots(free, part.request), part.need).sum()) < part.need:
            return False
    if len(parts) == 1 and is_divisible(gather) and not ask.bound:
        return _has_domain(scale, gather, scale.slots(free, parts[0].request), parts[0].need)
    return footprint(ask, scale, free) is not None


def footprint(ask: Ask, scale: Scale, free: Matrix, sparing: Matrix | None = None) -> Matrix | None:
    """What the unit takes of each node, or None if so much is not enough.

    Of equal places those are taken that offer the least of `sparing`, which others may want to use.
    """
    if ask.is_gang:
        return _of_gang(ask, scale, free, sparing)
    return _of_task(ask.parts[0].request, scale, free)


def moved(ask: Ask, scale: Scale, free: Matrix, need: Matrix) -> Matrix | None:
    """The same footprint with as few members as possible on other nodes, now that so much is free; None: not so.

    Members of several parts, or in multiples, are not moved one by one.
    """
    parts, gather = ask.parts, ask.gather
    top = GatherLevels(scale.nodes.tree, gather).top
    if len(parts) != 1 or top in (None, scale.nodes.tree.node_level) or not is_divisible(gather):
        return None
    one = scale.ask(parts[0].request)[:, None]
    room = scale.slots(free, parts[0].request)
    members = (need // np.maximum(one, 1)).max(axis=0)
    spare = np.maximum(room - members, 0)
    if top:
        domains = scale.nodes.tree.domains[top - 1]
        spare[domains != domains[members.argmax()]] = 0
    members = np.minimum(members, room)
    rows = np.flatnonzero(spare)
    unused = scale.nodes.scores.unused(parts[0].request)
    rows = rows[np.argsort(unused[rows], kind="stable")]  # those first that have the least for others now
    before = spare[rows].cumsum() - spare[rows]
    members[rows] += np.clip(parts[0].need - members.sum() - before, 0, spare[rows])
    return one * members if members.sum() >= parts[0].need else None


def fits_anywhere(ask: Ask) -> bool:
    """Whether one node is as good as another for every member, so that `moved` has the last word."""
    return len(ask.parts) == 1 and not any(rule.must or rule.multiple > 1 for rule in ask.gather)


def _of_task(request: Request, scale: Scale, free: Matrix) -> Matrix | None:
    """One task. Of the nodes that could take it, the one that has the least to give to others now."""
    could = np.flatnonzero(scale.slots(free, request))
    if not len(could):
        return None
    need = np.zeros_like(free)
    need[:, could[np.argmin(scale.nodes.scores.unused(request)[could])]] = scale.ask(request)
    return need


def _of_gang(ask: Ask, scale: Scale, free: Matrix, sparing: Matrix | None) -> Matrix | None:
    """All members that it cannot start without, as its rules want them to stand."""
    parts = ask.parts
    slots = [PartSlots(part.need, part.need, scale.slots(free, part.request)) for part in parts]
    cost: Column | None = None
    if sparing is not None:
        cost = np.array([scale.slots(sparing, part.request) for part in parts]).sum(axis=0)
    found = layouts(scale.nodes.tree, slots, ask.gather, bound=ask.bound, cost=cost)
    for layout in islice(found, _LAYOUTS_MAX):
        need = _taken(layout, parts, scale, free)
        if not ((need > free) & (need > 0)).any():
            return need
    return None


def _taken(layout: Layout, parts: list[Part], scale: Scale, free: Matrix) -> Matrix:
    need = np.zeros_like(free)
    for counts, part in zip(layout, parts, strict=True):
        if counts:
            rows, members = np.array(counts, dtype=np.int64).T
            need[:, rows] += scale.ask(part.request)[:, None] * members
    return need


def _has_domain(scale: Scale, gather: Gathers, slots: Column, need: int) -> bool:
    """Whether one domain of the layer that must hold all of them has so many slots."""
    tree = scale.nodes.tree
    top = GatherLevels(tree, gather).top
    if top is None:
        return False
    if top in (0, tree.node_level):
        return int(slots.max(initial=0) if top else slots.sum()) >= need
    return int(tree.sums(slots)[top - 1].max()) >= need


def is_divisible(gather: Gathers) -> bool:
    """Whether any number of members may stand in a domain."""
    return all(rule.multiple == 1 for rule in gather)


class _Slots(Struct):
    """The slots of one part, in up to three parts a node: free ones, the one that is free in part, the others."""

    row: Column
    count: Column
    price: NDArray[np.float64]  # how much of a member each of them lacks
    domain: Column


class Lacking:
    """One unit, what is free now, and what would be if everybody left."""

    def __init__(self, ask: Ask, scale: Scale, free: Matrix, everybody: Matrix) -> None:
        self._ask, self._scale, self._free, self._everybody = ask, scale, free, everybody
        self._parts, self._gather = ask.parts, ask.gather
        self._tree = scale.nodes.tree
        self._rules = GatherLevels(self._tree, self._gather)
        self.level = self._rules.top or 0 if ask.is_gang else self._tree.node_level

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
        return footprint(self._ask, self._scale, self._everybody)

    def within(self, rows: Column, on_each: bool = False) -> Matrix | None:
        """What it would take of each of these nodes and of no others; None if they cannot hold it.

        With `on_each` a member stands on every one of them, if there are enough members: none of them is let go.
        """
        there = np.full_like(self._everybody, -1)  # less than nothing, so that nobody fits
        there[:, rows] = self._everybody[:, rows]
        if len(self._parts) > 1 or not is_divisible(self._gather):
            return footprint(self._ask, self._scale, there)
        (part,) = self._parts
        slots = self._slots(part, there)
        if on_each and len(rows) <= part.need:
            slots = _each_first(slots, rows)
        order = np.lexsort((self._tree.place[slots.row], slots.price))
        count = slots.count[order]
        taken = np.clip(part.need - (count.cumsum() - count), 0, count)
        if taken.sum() < part.need or (self.level and len(np.unique(slots.domain[order][taken > 0])) > 1):
            return None
        members = np.bincount(slots.row[order], taken, minlength=there.shape[1]).astype(np.int64)
        return self._scale.ask(part.request)[:, None] * members

    def _lack(self) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """How much every domain of the level lacks, and which could hold the unit at all."""
        size = self._tree.size(self.level)
        lack, could = np.zeros(size), np.ones(size, dtype=np.bool_)
        for part in self._parts:
            slots = self._slots(part, self._everybody)
            order = np.lexsort((slots.price, slots.domain))
            domain, count = slots.domain[order], slots.count[order]
            taken = np.clip(part.need - before(domain, count), 0, count)
            lack += np.bincount(domain, taken * slots.price[order], minlength=size)
            could &= np.bincount(domain, count, minlength=size) >= part.need
        if (pinned := self._rules.pinned(self._ask.bound)) is not None:
            could &= np.isin(np.arange(size), pinned)
        return lack, could

    def _slots(self, part: Part, everybody: Matrix) -> _Slots:
        most = self._scale.slots(everybody, part.request)
        free = np.minimum(self._in_part(part.request), most)
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
