"""Where nodes say they stand, and the tree that is drawn from it: once for any number of changes, when it is asked for.

Most nodes share their labels with the others of their rack, so what is sorted are the different places, not nodes.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from phalanx.core.model.topology import Topology
from phalanx.core.model.tree import Column, Marks, Mask, Tree

_UNKNOWN = -1
FEW = 64  # so many new names are sooner put in their place than all are sorted


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

    def _marks(self, nodes: Sequence[str]) -> Marks:
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
        return Marks(
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
