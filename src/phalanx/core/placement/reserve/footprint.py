"""What a unit would take of each node if so much were free: the future of a unit, counted and not granted.

Devices are counted by kind; which of them, and where their NUMA nodes lie, is decided when the unit really starts.
"""

from __future__ import annotations

from itertools import islice
from typing import cast

import numpy as np

from phalanx.core.model.columns import Matrix
from phalanx.core.model.job import Gather
from phalanx.core.model.resources import Request
from phalanx.core.model.tree import Column
from phalanx.core.model.waiting import Unit, WaitingGang, WaitingGroup
from phalanx.core.placement.gang.rules import GatherLevels, binding_rules
from phalanx.core.placement.gang.search import GroupAsk, Layout, layouts
from phalanx.core.placement.gang.shapes import MemberShape, shapes_of
from phalanx.core.placement.reserve.releases import Scale

_LAYOUTS_MAX = 8  # groups share nodes, so the best layout of each may be too much for both


def requests_of(unit: Unit) -> list[Request]:
    """Everything that a unit asks for."""
    if unit.is_gang:
        return [each.request for each in cast(WaitingGang, unit).wanted()]
    return [cast(WaitingGroup, unit).request]


def fits(unit: Unit, scale: Scale, free: Matrix) -> bool:
    """Whether so much is enough; often there is a quicker answer than to look for the places."""
    if not unit.is_gang:
        return bool(scale.slots(free, cast(WaitingGroup, unit).request).any())
    shapes, gather = shapes_of_unit(unit), gather_of(unit)
    for shape in shapes:
        if int(np.minimum(scale.slots(free, shape.request), shape.need).sum()) < shape.need:
            return False
    if len(shapes) == 1 and is_divisible(gather) and not cast(WaitingGang, unit).bound():
        return _has_domain(scale, gather, scale.slots(free, shapes[0].request), shapes[0].need)
    return footprint(unit, scale, free) is not None


def footprint(unit: Unit, scale: Scale, free: Matrix, sparing: Matrix | None = None) -> Matrix | None:
    """What the unit takes of each node, or None if so much is not enough.

    Of equal places those are taken that offer the least of `sparing`, which others may want to use.
    """
    if unit.is_gang:
        return _of_gang(cast(WaitingGang, unit), scale, free, sparing)
    return _of_task(cast(WaitingGroup, unit).request, scale, free)


def moved(unit: Unit, scale: Scale, free: Matrix, need: Matrix) -> Matrix | None:
    """The same footprint with as few members as possible on other nodes, now that so much is free; None: not so.

    Members of several shapes, or in multiples, are not moved one by one.
    """
    shapes, gather = shapes_of_unit(unit), gather_of(unit)
    top = GatherLevels(scale.nodes.tree, gather).top
    if len(shapes) != 1 or top in (None, scale.nodes.tree.node_level) or not is_divisible(gather):
        return None
    ask = scale.ask(shapes[0].request)[:, None]
    room = scale.slots(free, shapes[0].request)
    members = (need // np.maximum(ask, 1)).max(axis=0)
    spare = np.maximum(room - members, 0)
    if top:
        domains = scale.nodes.tree.domains[top - 1]
        spare[domains != domains[members.argmax()]] = 0
    members = np.minimum(members, room)
    rows = np.flatnonzero(spare)
    unused = scale.nodes.scores.unused(shapes[0].request)
    rows = rows[np.argsort(unused[rows], kind="stable")]  # those first that have the least for others now
    before = spare[rows].cumsum() - spare[rows]
    members[rows] += np.clip(shapes[0].need - members.sum() - before, 0, spare[rows])
    return ask * members if members.sum() >= shapes[0].need else None


def stands_anywhere(unit: Unit) -> bool:
    """Whether one node is as good as another for every member, so that `moved` has the last word."""
    return len(shapes_of_unit(unit)) == 1 and not any(
        rule.must or rule.multiple > 1 for rule in gather_of(unit)
    )


def _of_task(request: Request, scale: Scale, free: Matrix) -> Matrix | None:
    """One task. Of the nodes that could take it, the one that has the least to give to others now."""
    could = np.flatnonzero(scale.slots(free, request))
    if not len(could):
        return None
    need = np.zeros_like(free)
    need[:, could[np.argmin(scale.nodes.scores.unused(request)[could])]] = scale.ask(request)
    return need


def _of_gang(unit: WaitingGang, scale: Scale, free: Matrix, sparing: Matrix | None) -> Matrix | None:
    """All members that it cannot start without, as its rules want them to stand."""
    shapes = shapes_of(unit.wanted())
    asks = [GroupAsk(shape.need, shape.need, scale.slots(free, shape.request)) for shape in shapes]
    cost: Column | None = None
    if sparing is not None:
        cost = np.array([scale.slots(sparing, shape.request) for shape in shapes]).sum(axis=0)
    bound = [row for row, count in unit.bound() for _ in range(count)]
    found = layouts(scale.nodes.tree, asks, gather_of(unit), bound=bound, cost=cost)
    for layout in islice(found, _LAYOUTS_MAX):
        need = _taken(layout, shapes, scale, free)
        if not ((need > free) & (need > 0)).any():
            return need
    return None


def _taken(layout: Layout, shapes: list[MemberShape], scale: Scale, free: Matrix) -> Matrix:
    need = np.zeros_like(free)
    for counts, shape in zip(layout.counts, shapes, strict=True):
        if counts:
            rows, members = np.array(counts, dtype=np.int64).T
            need[:, rows] += scale.ask(shape.request)[:, None] * members
    return need


def _has_domain(scale: Scale, gather: tuple[Gather, ...], slots: Column, need: int) -> bool:
    """Whether one domain of the layer that must hold all of them has so many slots."""
    tree = scale.nodes.tree
    top = GatherLevels(tree, gather).top
    if top is None:
        return False
    if top in (0, tree.node_level):
        return int(slots.max(initial=0) if top else slots.sum()) >= need
    return int(tree.sums(slots)[top - 1].max()) >= need


def shapes_of_unit(unit: Unit) -> list[MemberShape]:
    """What it asks for, by shape; a single task is a gang of one."""
    if unit.is_gang:
        return shapes_of(cast(WaitingGang, unit).wanted())
    return [MemberShape(cast(WaitingGroup, unit).request, 1, 1, ((0, 1, 1),))]


def gather_of(unit: Unit) -> tuple[Gather, ...]:
    """Where its members have to stand."""
    return binding_rules(unit)


def is_divisible(gather: tuple[Gather, ...]) -> bool:
    """Whether any number of members may stand in a domain."""
    return all(rule.multiple == 1 for rule in gather)
