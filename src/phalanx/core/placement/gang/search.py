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
without a rule only breaking ties. Without any rule every layer counts, the outermost first.

A gang that may start with fewer (`need` below `most`) is placed in full size wherever the rules allow that; only if
no domain holds all, it takes the lowest level that holds what it needs, and there the domain that holds the most.
A must rule for a layer that nobody declared has no layout; a prefer rule for one is ignored. With `multiple` every
domain of that layer holds a multiple, members that are already there counted.

Members that are spread stand in a domain of the level that the must rules name, the one with the most nodes for them,
and there on as many nodes as possible; grades are not asked then.

Parts of a gang share the nodes, which the slots of one part cannot tell. For each domain the
first layout is one that is sure to fit, if there is one; then comes what would fit if they did not share.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import neg

import numpy as np
from msgspec import Struct

from phalanx.core.model.job import Gather
from phalanx.core.model.table import Tally
from phalanx.core.model.tree import Column, Tree
from phalanx.core.placement.gang.domains import Domains, Field, GatherLevels, Grades
from phalanx.core.placement.spread import evenly

Counts = Sequence[tuple[int, int]]  # (node row, members), in the order in which members are laid over nodes
Layout = Sequence[Counts]  # for each part


class PartSlots(Struct):
    """How many members of one part every node could take."""

    need: int  # must be placed now
    most: int  # may be placed now
    slots: Column  # 0 for nodes that take no work
    sums: tuple[Column, ...] | None = None  # slots per domain of each layer, if they are known
    tally: Tally | None = None  # how many nodes have so many slots, if it is known
    grades: Column | None = None  # how precious what each node has is, if one is better than another
    spread: Column | None = (
        None  # the members stand on as many nodes as possible, those of the least value first
    )


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
        self.multiples = self.rules.multiples_within(self.held)
        multiples = self.multiples if len(parts) == 1 else ()
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
            for level in range(self._lowest, self.rules.top - 1, -1):
                numbers = self.domains.in_order(level, size, is_least=size != most)
                for number in numbers if size != most else self._with_most_nodes(level, numbers):
                    yield CandidateDomain(level, number, size)

    @property
    def _lowest(self) -> int:
        """The level to begin with: single nodes, unless members are spread as far as the must rules allow."""
        is_spread = any(part.spread is not None for part in self.parts)
        return self.rules.top or 0 if is_spread else self.tree.node_level

    def _with_most_nodes(self, level: int, numbers: Iterator[int]) -> Iterator[int]:
        """Domains in order; if members are spread, those first that give them more nodes."""
        spread = [part for part in self.parts if part.spread is not None]
        if not spread or not level:
            return numbers
        total = np.zeros(self.tree.size(level), dtype=np.int64)
        for part in spread:
            around = self.tree.up(self.tree.node_level, np.flatnonzero(part.slots), level)
            total += np.minimum(np.bincount(around, minlength=len(total)), part.most)
        return iter(sorted(numbers, key=lambda number: -int(total[number])))

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
                yield each

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
        for level, multiple in enumerate(self.multiples[: candidate.level + 1]):
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
        while count >= least and field.multiples and not self.completes(candidate, count):
            count -= 1
        if count < least:
            return None
        if level == self.tree.node_level:
            return [(number, count)] if count else []
        if (values := self.parts[group].spread) is not None and self.cost is None:
            rows = self.tree.rows(level, number)
            held = near.slots[rows] if near is not None else np.zeros(len(rows), dtype=np.int64)
            return evenly(rows, field.slots[rows], held, values[rows], count)
        return Spread(field, self.rules.steps, near, self.cost).over(level, number, count)


def _joined(tree: Tree, near: Field | None, rows: Column, taken: Column) -> Field:
    """Existing members and those just laid: the next group stands near both."""
    column = np.zeros(len(tree.nodes), dtype=np.int64) if near is None else near.slots.copy()
    column[rows] += taken
    return Field(tree, column)


class Spread:
    """Divides members of one part over the nodes of a domain, so that they span the fewest domains on the way down.

    At every level the children with the most room are filled first, those that already hold members before all others,
    and what is left goes to the smallest child that holds it. Where slots have a price (what would have to be evicted
    for them), the cheapest are used instead. `steps[level]` is the level to divide over next.
    """

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
        found: list[tuple[int, int]] = []
        return found if self._divide(level, number, count, found) else None

    def _divide(self, level: int, number: int, count: int, found: list[tuple[int, int]]) -> bool:
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
        whole: list[tuple[int, int]] = []
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
