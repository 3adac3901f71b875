"""The tree of domains that follows from the labels of the nodes: who stands in which rack, block and spine.

A domain is known by its path: the same block name under two spines is two domains. A node that lacks a label stays
usable. Where an inner label is known, the missing layer becomes a virtual domain named after the inner one, so that
two nodes of one block with an unknown spine still share that block; where none is, it is private to the node. A
layer that no node has a label for is left out of the tree.

Domains are numbered depth first in order of name, so the children of a domain, and its nodes in `order`, lie side by
side, and the smaller number is the earlier name. A tree never changes: when labels have, the `TopologySurvey` draws
another, once for any number of changes, when it is asked for. Most nodes share their labels with the others of their
rack, so what is sorted are the different places, not nodes.

Levels count from 0, the whole cluster, to `node_level`, where every node is a domain of its own, numbered by its row.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from phalanx.core.model.topology import Topology

Column = NDArray[np.int64]
Mask = NDArray[np.bool_]
_Number = TypeVar("_Number", np.int64, np.float64)
_UNKNOWN = -1
FEW = 64  # so many new names are sooner put in their place than all are sorted


class _Marks(Struct, frozen=True):
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

    def __init__(self, topology: Topology, nodes: Sequence[str], marks: _Marks) -> None:
        self.topology = topology
        self.nodes = tuple(nodes)
        self._known = marks.known
        self.layers = tuple(topology.layers[at].name for at in marks.present)
        self.node_level = len(self.layers) + 1
        self.absent = tuple(layer.name for at, layer in enumerate(topology.layers) if at not in marks.present)
        self.domains, self.parents = marks.domains, marks.parents
        self.names, self.virtual = marks.names, marks.virtual
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

    def walk(self) -> Iterator[tuple[int, int]]:
        """Level and number of every domain but the nodes, depth first in order of name; the cluster comes first."""
        ahead = [(0, 0)]
        while ahead:
            level, number = ahead.pop()
            yield level, number
            if level < self.node_level - 1:
                low, high = self.span(level, number, level + 1)
                ahead += [(level + 1, child) for child in range(high - 1, low - 1, -1)]

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


class TopologySurvey:
    """The labels of every node, as far as they name a domain."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._places = _Places(len(topology.layers))
        self._of_row: Column = np.full(0, _UNKNOWN, dtype=np.int64)  # the number of each node's place
        self._by_name: list[int] = []  # node rows in order of name
        self._tree: Tree | None = None

    def note(self, row: int, labels: Mapping[str, str]) -> None:
        """A node has joined or its labels have changed."""
        if row >= len(self._of_row):
            more = np.full(max(64, row), _UNKNOWN, dtype=np.int64)
            self._of_row = np.concatenate([self._of_row, more])
        place = tuple([_first(labels, layer.keys) for layer in self.topology.layers])
        number = self._places.number(place)
        if number != self._of_row[row]:
            self._of_row[row] = number
            self._tree = None

    def remove(self, row: int, last: int) -> None:
        """A node is gone; the one of the last row takes its row."""
        self._of_row[row] = self._of_row[last]
        self._of_row[last] = _UNKNOWN
        self._by_name = []
        self._tree = None

    def tree(self, nodes: Sequence[str]) -> Tree:
        """The tree over these nodes, row by row; every one of them has been noted."""
        if self._tree is None or len(self._tree.nodes) != len(nodes):
            self._sort_in(nodes)
            self._tree = Tree(self.topology, nodes, self._marks(nodes))
        return self._tree

    def _sort_in(self, nodes: Sequence[str]) -> None:
        new = range(len(self._by_name), len(nodes))
        if len(new) > FEW:
            self._by_name += new
            self._by_name.sort(key=nodes.__getitem__)
        else:
            for row in new:
                insort(self._by_name, row, key=nodes.__getitem__)

    def _marks(self, nodes: Sequence[str]) -> _Marks:
        of_row = self._used_only(len(nodes))
        words, said = self._places.words, self._places.said
        present = [at for at in range(said.shape[1]) if (said[:, at] != _UNKNOWN).any()]
        said = said[:, present]
        # Who has no label for the innermost layer stands alone there; all others share their place.
        alone = said[:, -1] == _UNKNOWN if present else np.zeros(len(said), dtype=np.bool_)
        loners = np.flatnonzero(alone[of_row])
        spot = of_row.copy()
        spot[loners] = len(said) + np.arange(len(loners))
        spots = _Spots(
            np.concatenate([said, said[of_row[loners]]]),
            [*words, *("" for _ in said), *(nodes[row] for row in loners.tolist())],
            len(words),
            np.concatenate([~alone, np.ones(len(loners), dtype=np.bool_)]),
        )
        return _Marks(
            present,
            tuple(column[spot] for column in spots.domains),
            spots.parents,
            spots.names,
            spots.virtual,
            tuple(said[of_row, at] != _UNKNOWN for at in range(len(present))),
            np.array(self._by_name, dtype=np.int64),
        )

    def _used_only(self, nodes: int) -> Column:
        """The number of each row's place, once places where nobody stands any more are forgotten."""
        of_row = self._of_row[:nodes]
        used = np.bincount(of_row, minlength=len(self._places)) > 0
        if not used.all():
            former, self._places = self._places, _Places(len(self.topology.layers))
            moved = [self._places.number(place) if used[at] else _UNKNOWN for at, place in enumerate(former)]
            of_row[:] = np.array(moved, dtype=np.int64)[of_row]
        return of_row


class _Places:
    """What labels say, layer by layer: different places numbered from 0, and their words too."""

    def __init__(self, layers: int) -> None:
        self.words: list[str] = []
        self._codes: dict[str, int] = {"": _UNKNOWN}
        self._numbers: dict[tuple[str, ...], int] = {}
        self._said: Column = np.zeros((64, layers), dtype=np.int64)

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return iter(self._numbers)

    @property
    def said(self) -> Column:
        """The word of every place and layer, as a number."""
        return self._said[: len(self._numbers)]

    def number(self, place: tuple[str, ...]) -> int:
        """The number of a place, known or new."""
        found = self._numbers.get(place)
        if found is None:
            found = self._numbers[place] = len(self._numbers)
            if found == len(self._said):
                self._said = np.concatenate([self._said, self._said])
            self._said[found] = [self._code(word) for word in place]
        return found

    def _code(self, word: str) -> int:
        code = self._codes.get(word)
        if code is None:
            code = self._codes[word] = len(self.words)
            self.words.append(word)
        return code


class _Spots:
    """Domains over spots: a place that nodes share, or a node that stands alone. Numbered in order of path."""

    def __init__(self, said: Column, text: list[str], words: int, used: Mask) -> None:
        """`said` has a word for each spot and layer; the names of the spots follow the words in `text`."""
        self.domains: tuple[Column, ...] = ()
        self.parents: tuple[Column, ...] = ()
        self.names: tuple[list[str], ...] = ()
        self.virtual: tuple[Mask, ...] = ()
        self._text, self._used, self._width = text, used, said.shape[1] + 1
        names, sources = _filled(said, words)
        self._rank = _ranks(text, [name[used] for name in names])
        outer = np.zeros(len(said), dtype=np.int64)
        for at, (name, source) in enumerate(zip(names, sources, strict=True)):
            outer = self._number(at, outer, name, source)

    def _number(self, at: int, outer: Column, name: Column, source: Column) -> Column:
        """Number the domains of one layer by parent, then name, then what the name comes from."""
        used = self._used
        key = (outer * len(self._text) + self._rank[name]) * self._width + source
        domains = np.zeros(len(key), dtype=np.int64)
        _, first, domains[used] = np.unique(key[used], return_index=True, return_inverse=True)
        self.domains += (domains,)
        self.parents += (outer[used][first],)
        self.names += ([self._text[code] for code in name[used][first].tolist()],)
        self.virtual += (source[used][first] != at,)
        return domains


def _first(labels: Mapping[str, str], keys: tuple[str, ...]) -> str:
    """The first label that is there and not empty."""
    for key in keys:
        if word := labels.get(key):
            return word
    return ""


def _filled(said: Column, words: int) -> tuple[list[Column], list[Column]]:
    """For each layer the word that names each spot's domain, and the layer whose label it is.

    A missing label is taken from the next inner layer that has one, else it is the name of the spot itself.
    """
    name = words + np.arange(len(said))
    source = np.full(len(said), said.shape[1], dtype=np.int64)
    names: list[Column] = []
    sources: list[Column] = []
    for at in range(said.shape[1] - 1, -1, -1):
        known = said[:, at] != _UNKNOWN
        name, source = np.where(known, said[:, at], name), np.where(known, at, source)
        names.insert(0, name)
        sources.insert(0, source)
    return names, sources


def _ranks(text: Sequence[str], used: list[Column]) -> Column:
    """The place of every word that is used among all of them, in order of text."""
    ranks = np.zeros(len(text), dtype=np.int64)
    if used:
        codes = sorted(np.unique(np.concatenate(used)).tolist(), key=text.__getitem__)
        place = -1
        before: str | None = None
        for code in codes:  # a node may be called what a domain is called
            place += text[code] != before
            ranks[code], before = place, text[code]
    return ranks
