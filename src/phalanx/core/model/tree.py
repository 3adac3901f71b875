"""The tree of domains that follows from the labels of the nodes: who stands in which rack, block and spine.

A domain is known by its path: the same block name under two spines is two domains. A node that lacks a label stays
usable. Where an inner label is known, the missing layer becomes a virtual domain named after the inner one, so that
two nodes of one block with an unknown spine still share that block; where none is, it is private to the node. A
layer that no node has a label for is left out of the tree.

Domains are numbered depth first in order of name, so the children of a domain, and its nodes in `order`, lie side by
side, and the smaller number is the earlier name. A tree never changes: `survey.py` draws another when labels have.
Levels count from 0, the whole cluster, to `node_level`, where every node is a domain of its own, numbered by its row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from phalanx.core.model.topology import Topology

Column = NDArray[np.int64]
Mask = NDArray[np.bool_]
_Number = TypeVar("_Number", np.int64, np.float64)


class Domain(Struct, frozen=True):
    """One domain as people see it. `children` are names of domains; they are left out where they would be nodes."""

    level: int
    number: int
    layer: str
    path: tuple[str, ...]  # empty: the whole cluster
    child_layer: str
    children: tuple[str, ...]
    nodes: int
    is_virtual: bool  # no label names it

    @property
    def name(self) -> str:
        return self.path[-1] if self.path else ""


class Marks(Struct, frozen=True):
    """What the labels of all nodes say: which layers there are, and the domains of each, the outermost layer first.

    Domains are numbered depth first, in order of name. `by_name` has the node rows in order of name.
    """

    present: list[int]  # places of the layers in the topology
    domains: tuple[Column, ...]  # the domain of each node row
    parents: tuple[Column, ...]  # the parent of each domain
    names: tuple[list[str], ...]  # the name of each domain
    virtual: tuple[Mask, ...]  # which domains no label names
    known: tuple[Mask, ...]  # which node rows have a label
    by_name: Column


class Tree:
    """Domains by layer, as columns over node rows and over domains. `layers` has the outermost first."""

    def __init__(self, topology: Topology, nodes: Sequence[str], marks: Marks) -> None:
        self.topology = topology
        self.nodes = tuple(nodes)
        self._known = marks.known
        self.layers = tuple(topology.layers[at].name for at in marks.present)
        self.node_level = len(self.layers) + 1
        self.absent = tuple(layer.name for at, layer in enumerate(topology.layers) if at not in marks.present)
        self.domains, self.parents, self.names, self.virtual = (
            marks.domains,
            marks.parents,
            marks.names,
            marks.virtual,
        )
        self.order = marks.by_name  # node rows, depth first
        if self.layers:
            self.order = marks.by_name[np.argsort(self.domains[-1][marks.by_name], kind="stable")]
        self.place = np.empty(len(nodes), dtype=np.int64)  # where each row stands in that order
        self.place[self.order] = np.arange(len(nodes))
        self.starts = tuple(_starts(column[self.order]) for column in self.domains)
        self.first = tuple(_starts(parent) for parent in self.parents[1:]) + self.starts[-1:]
        self._levels = self._level_names()

    def level(self, layer: str) -> int | None:
        """Which level a layer is, or None if nobody declared it. One without labels is as fine as the next inner."""
        return self._levels.get(layer)

    def layer(self, level: int) -> str:
        if level == 0:
            return self.topology.cluster
        return self.topology.node if level == self.node_level else self.layers[level - 1]

    def size(self, level: int) -> int:
        """How many domains a level has."""
        if level == 0:
            return 1
        return len(self.nodes) if level == self.node_level else len(self.names[level - 1])

    def rows(self, level: int, number: int) -> Column:
        """The node rows of a domain, in order."""
        low, high = self.span(level, number, self.node_level)
        return self.order[low:high]

    def span(self, level: int, number: int, inner: int) -> tuple[int, int]:
        """The domains of a level further in that lie within a domain: from the first to before the last.

        Of the node level these are places in `order`.
        """
        if level == 0:
            return 0, self.size(inner)
        if level == self.node_level:
            return int(self.place[number]), int(self.place[number]) + 1
        if level == inner:
            return number, number + 1
        if inner == level + 1:
            first = self.first[level - 1]
            return int(first[number]), int(first[number + 1])
        starts = self.starts[level - 1]
        low, high = int(starts[number]), int(starts[number + 1])
        if inner == self.node_level:
            return low, high
        column = self.domains[inner - 1]
        return int(column[self.order[low]]), int(column[self.order[high - 1]]) + 1

    def up(self, level: int, numbers: Column, outer: int) -> Column:
        """The domains of an outer level in which these domains lie."""
        if outer == 0:
            return np.zeros_like(numbers)
        if level == self.node_level:
            return self.domains[outer - 1][numbers] if outer < level else numbers
        while level > outer:
            numbers = self.parents[level - 1][numbers]
            level -= 1
        return numbers

    def sums(self, column: Column) -> tuple[Column, ...]:
        """A column over node rows, summed for each domain of each layer."""
        found: list[Column] = []
        values = column[self.order]
        for first in reversed(self.first):
            values = np.add.reduceat(values, first[:-1])
            found.append(values)
        return tuple(reversed(found))

    def path(self, level: int, number: int) -> tuple[str, ...]:
        """The names from the outermost domain to this one."""
        found: list[str] = []
        if level == self.node_level:
            found.append(self.nodes[number])
            level -= 1
            number = int(self.domains[level - 1][number]) if level else 0
        while level:
            found.append(self.names[level - 1][number])
            number = int(self.parents[level - 1][number])
            level -= 1
        return tuple(reversed(found))

    @cached_property
    def missing(self) -> dict[int, tuple[str, ...]]:
        """Which node rows lack a label for which layers that other nodes have one for."""
        found: dict[int, list[str]] = {}
        for layer, known in zip(self.layers, self._known, strict=True):
            for row in np.flatnonzero(~known).tolist():
                found.setdefault(row, []).append(layer)
        return {row: tuple(layers) for row, layers in sorted(found.items())}

    def walk(self) -> Iterator[Domain]:
        """Every domain but the nodes, depth first, children in order of name; the cluster itself comes first."""
        ahead = [(0, 0)]
        while ahead:
            level, number = ahead.pop()
            yield self.domain(level, number)
            if level < self.node_level - 1:
                low, high = self.span(level, number, level + 1)
                ahead += [(level + 1, child) for child in range(high - 1, low - 1, -1)]

    def domain(self, level: int, number: int) -> Domain:
        """One domain as people see it."""
        low, high = self.span(level, number, level + 1)
        has_domains = level + 1 < self.node_level
        first, end = self.span(level, number, self.node_level)
        return Domain(
            level,
            number,
            self.layer(level),
            self.path(level, number),
            self.layer(level + 1),
            tuple(self.names[level][low:high]) if has_domains else (),
            end - first,
            bool(level and self.virtual[level - 1][number]),
        )

    def _level_names(self) -> dict[str, int]:
        levels = {self.topology.node: self.node_level}
        inner = self.node_level
        for layer in reversed(self.topology.layers):
            if layer.name in self.layers:
                inner -= 1
            levels[layer.name] = inner
        levels[self.topology.cluster] = 0
        return levels


def _starts(ordered: Column) -> Column:
    """Where each number begins in a column of numbers from 0 in order, and where the last one ends."""
    if not len(ordered):
        return np.zeros(1, dtype=np.int64)
    bounds: Column = np.flatnonzero(np.diff(ordered, prepend=-1, append=ordered[-1] + 1))
    return bounds


def begins(segment: Column) -> Column:
    """Where each segment begins in a column in which equal numbers lie side by side."""
    return np.flatnonzero(np.concatenate([[True], segment[1:] != segment[:-1]])[: len(segment)])


def before(segment: Column, values: NDArray[_Number]) -> NDArray[_Number]:
    """The sum of the values before each, within its segment."""
    run, first = values.cumsum() - values, begins(segment)
    within: NDArray[_Number] = run - np.repeat(run[first], np.diff(np.append(first, len(values))))
    return within
