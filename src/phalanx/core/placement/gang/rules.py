"""What the gather rules of a gang mean in a tree: levels instead of the names of layers."""

from __future__ import annotations

from bisect import insort
from functools import cached_property
from math import lcm

from msgspec import structs

from phalanx.core.model.job import Gather
from phalanx.core.model.tree import Tree
from phalanx.core.model.waiting import Unit

Gathers = tuple[Gather, ...]


def rules_to_try(unit: Unit) -> tuple[Gathers, ...]:
    """The gather rules of a unit, the strictest first; only if the last of them give no place there is none.

    A multiple is how a gang starts. Once it runs, members end one by one, and what is left is seldom a multiple: one
    that has to come back keeps it where it can and else stands where the must rules let it, or it would wait for ever.
    """
    gather = () if unit.job.gang is None else unit.job.gang.gather
    if not unit.comes_back or all(rule.multiple == 1 for rule in gather):
        return (gather,)
    return gather, tuple(structs.replace(rule, multiple=1) for rule in gather)


def binding_rules(unit: Unit) -> Gathers:
    """The gather rules that no place of the unit may break."""
    return rules_to_try(unit)[-1]


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
