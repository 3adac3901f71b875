"""Which nodes a gang stands on: the lowest domain that holds all of it, and the tightest among those.

The search goes from single nodes upwards, as far as the deepest layer of a must rule: all members stand in one
domain of every such layer. Among domains of the lowest level that holds them, those come first that

    1. already hold more members (compared in the domain, then in those around it),
    2. cost less to clear, where slots have a price,
    3. span fewer domains of the preferred layers, the outermost of these first,
    4. can do with nodes of lower grades, where the score says that nodes differ (`core/model/score.py`),
    5. have fewer slots to spare (in the domain, then in those around it),
    6. have the earlier name.

Inside the domain only nodes of the grades that suffice are used, unless the gang would span more domains for it.

A prefer rule therefore never turns a gang away and never moves it to a higher level than it could have: it decides
between domains of one level, and inside the chosen one it says of which layers the fewest domains are used, layers
without a rule only breaking ties (`spread.py`). Without any rule every layer counts, the outermost first.

A gang that may start with fewer (`need` below `most`) is placed in full size wherever the rules allow that; only if
no domain holds all, it takes the lowest level that holds what it needs, and there the domain that holds the most.
A must rule for a layer that nobody declared has no layout; a prefer rule for one is ignored. With `multiple` every
domain of that layer holds a multiple, members who are already there counted.

Groups that part for different things share the nodes, which the slots of one group cannot tell. For each domain the
first layout is one that is sure to fit, if there is one; then comes what would fit if they did not share.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from phalanx.core.model.job import Gather
from phalanx.core.model.slots import Tally
from phalanx.core.model.tree import Column, Tree
from phalanx.core.placement.gang.domains import Domains, GatherLevels, Grades
from phalanx.core.placement.gang.spread import Counts, Field, Spread


class PartSlots(Struct):
    """How many members of one part of an part every node could take; the group of a gang that it comes from, mostly."""

    need: int  # must be placed now
    most: int  # may be placed now
    slots: Column  # 0 for nodes that take no work
    sums: tuple[Column, ...] | None = None  # slots per domain of each layer, if they are known
    tally: Tally | None = None  # how many nodes have so many slots, if it is known
    grades: Column | None = None  # how precious what each node has is, if one is better than another


class Layout(Struct, frozen=True):
    """Members as counts. For each group: (node row, members), in the order in which members are laid over nodes."""

    counts: tuple[tuple[tuple[int, int], ...], ...]
    layer: str  # of the domain that holds all of it
    domain: tuple[str, ...]  # its path; empty: the whole cluster


def layouts(
    tree: Tree,
    parts: Sequence[PartSlots],
    gather: tuple[Gather, ...],
    *,
    existing: Column | None = None,
    bound: Sequence[int] = (),
    cost: Column | None = None,
) -> Iterator[Layout]:
    """Where the members could stand, the best first."""
    search = GangSearch(tree, parts, gather, existing, bound, cost)
    for candidate in search.candidates():
        yield from search.fill(candidate)


class CandidateDomain(Struct, frozen=True):
    """A domain whose slots could hold `size` members of each group, if the groups did not share them."""

    level: int
    number: int
    size: tuple[int, ...]


class GangSearch:
    """One question: where could this gang stand?"""

    def __init__(
        self,
        tree: Tree,
        parts: Sequence[PartSlots],
        gather: tuple[Gather, ...],
        existing: Column | None = None,
        bound: Sequence[int] = (),
        cost: Column | None = None,
    ) -> None:
        self.tree, self.parts, self.cost = tree, parts, cost
        self.rules = GatherLevels(tree, gather)
        self.held = np.bincount(bound, minlength=len(tree.nodes)) if len(bound) else None
        if existing is None:
            existing = self.held
        self.existing = None if existing is None or not existing.any() else Field(tree, existing)
        # A multiple is of all members together, which the slots of one of several groups cannot be rounded to.
        multiples = self.rules.multiples if len(parts) == 1 else ()
        self.fields = [Field(tree, part.slots, part.sums, multiples, self.held) for part in parts]
        self.grades = [self._graded(part, multiples) for part in parts]
        self.domains = Domains(
            tree, self.rules, self.fields, self.existing, bound, cost, parts[0].tally, self.grades
        )

    def candidates(self) -> Iterator[CandidateDomain]:
        """The domains that could hold the gang in full size, then those that hold what it needs; the best first."""
        if self.rules.top is None or not len(self.tree.nodes):
            return
        most, need = tuple(part.most for part in self.parts), tuple(part.need for part in self.parts)
        for size in (most, need) if need != most else (most,):
            for level in range(self.tree.node_level, self.rules.top - 1, -1):
                for number in self.domains.in_order(level, size, is_least=size != most):
                    yield CandidateDomain(level, number, size)

    def roomiest(self) -> CandidateDomain:
        """Of the domains that would have to hold them all, the one that holds the most of what may be placed."""
        assert self.rules.top is not None
        total = np.zeros(self.tree.size(self.rules.top), dtype=np.int64)
        for field, part in zip(self.fields, self.parts, strict=True):
            total += np.minimum(field.at(self.rules.top), part.most)
        if (pinned := self.domains.pinned) is not None:
            total[np.arange(len(total)) != pinned[0]] = -1
        return CandidateDomain(self.rules.top, int(total.argmax()), tuple(0 for _ in self.parts))

    def fill(self, candidate: CandidateDomain) -> Iterator[Layout]:
        """Lay the members over the nodes of one domain."""
        laid = self._laid(candidate, self.fields)
        if (fields := self._good_enough(candidate)) is not None:
            spans = self._spans(laid[0]) if laid else None
            packed = self._laid(candidate, fields)
            laid = [*(each for each in packed if spans is None or self._spans(each) <= spans), *laid]
        for number, each in enumerate(laid):
            if each not in laid[:number] and self.keeps_multiples(each):
                path = self.tree.path(candidate.level, candidate.number)
                yield Layout(tuple(map(tuple, each)), self.tree.layer(candidate.level), path)

    def keeps_multiples(self, counts: Sequence[Counts]) -> bool:
        """Whether every domain that is given members holds a multiple of them in the end."""
        if not self.rules.multiples:
            return True
        asked = [(level, each) for level, each in enumerate(self.rules.multiples) if each > 1]
        placed = np.zeros(len(self.tree.nodes), dtype=np.int64)
        for rows, taken in (np.array(each, dtype=np.int64).T for each in counts if each):
            placed[rows] += taken
        touched = np.flatnonzero(placed)
        everyone = placed if self.held is None else placed + self.held
        for level, multiple in asked:
            domains = self.tree.up(self.tree.node_level, np.arange(len(placed)), level)
            inside = np.bincount(domains, everyone, minlength=self.tree.size(level)).astype(np.int64)
            if (inside[domains[touched]] % multiple).any():
                return False
        return True

    def completes(self, candidate: CandidateDomain, count: int) -> bool:
        """Whether so many members in a domain make a multiple in it and in all domains around it."""
        at = np.array([candidate.number])
        for level, multiple in enumerate(self.rules.multiples[: candidate.level + 1]):
            if multiple > 1:
                outer = int(self.tree.up(candidate.level, at, level)[0])
                held = 0 if self.held is None else int(self.held[self.tree.rows(level, outer)].sum())
                if (count + held) % multiple:
                    return False
        return True

    def _graded(self, part: PartSlots, multiples: tuple[int, ...]) -> Grades | None:
        if part.grades is None or self.cost is not None:
            return None
        found = Grades(self.tree, part.slots, part.grades, multiples, self.held)
        return None if found.is_one else found

    def _good_enough(self, candidate: CandidateDomain) -> list[Field] | None:
        """The room on the nodes of the grades that suffice, if the gang is placed in full size; None: it is all."""
        if not any(self.grades):
            return None
        level, number, size = candidate.level, candidate.number, candidate.size
        if level == self.tree.node_level or size != tuple(part.most for part in self.parts):
            return None
        return [
            (None if grades is None else grades.field(level, number, count)) or field
            for grades, field, count in zip(self.grades, self.fields, size, strict=True)
        ]

    def _spans(self, counts: Sequence[Counts]) -> list[int]:
        """How many domains of each preferred layer a layout uses."""
        if not self.rules.preferred:
            return []
        rows = np.array([row for each in counts for row, _ in each], dtype=np.int64)
        return [
            len(np.unique(self.tree.up(self.tree.node_level, rows, level))) for level in self.rules.preferred
        ]

    def _laid(self, candidate: CandidateDomain, fields: Sequence[Field]) -> list[list[Counts]]:
        """The layouts to try, where the nodes have so much room."""
        if len(fields) == 1:
            counts = self._lay_group(0, fields[0], self.existing, candidate)
            return [] if counts is None else [[counts]]
        return [each for is_shared in (True, False) if (each := self._lay(candidate, fields, is_shared))]

    def _lay(
        self, candidate: CandidateDomain, fields: Sequence[Field], is_shared: bool
    ) -> list[Counts] | None:
        """Counts for all groups, the one with the least room first. If shared, each takes its part of a node."""
        level, number, size = candidate.level, candidate.number, candidate.size
        rooms = [int(field.at(level)[number]) for field in fields]
        found: list[Counts] = [[] for _ in self.parts]
        left = np.ones(len(self.tree.nodes)) if is_shared else None
        near = self.existing
        for group in sorted(range(len(rooms)), key=lambda at: rooms[at] / max(1, size[at])):
            field = fields[group]
            if left is not None:
                field = Field(self.tree, np.floor(field.slots * left + 1e-9).astype(np.int64))
            counts = self._lay_group(group, field, near, candidate)
            if counts is None:
                return None
            found[group] = counts
            if counts:
                rows, taken = np.array(counts, dtype=np.int64).T
                near = _joined(self.tree, near, rows, taken)
                if left is not None:
                    left[rows] -= taken / fields[group].slots[rows]
        return found

    def _lay_group(
        self, group: int, field: Field, near: Field | None, candidate: CandidateDomain
    ) -> Counts | None:
        level, number, least = candidate.level, candidate.number, candidate.size[group]
        count = min(int(field.at(level)[number]), self.parts[group].most)
        while count >= least and not field.completes(level, number, count):
            count -= 1
        if count < least:
            return None
        if level == self.tree.node_level:
            return [(number, count)] if count else []
        return Spread(field, self.rules.steps, near, self.cost).over(level, number, count)


def _joined(tree: Tree, near: Field | None, rows: Column, taken: Column) -> Field:
    """Existing members and those just laid: the next group stands near both."""
    column = np.zeros(len(tree.nodes), dtype=np.int64) if near is None else near.slots.copy()
    column[rows] += taken
    return Field(tree, column)
