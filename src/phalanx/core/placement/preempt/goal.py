"""What somebody who evicts wants to place: every member that is needed, and nothing more.

Tasks that are placed one by one are a gang of a few here, so that whoever makes room need not tell them apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import cast

import numpy as np
from msgspec import structs

from phalanx.core.model.job import Job
from phalanx.core.model.queue import Asked
from phalanx.core.model.tenants import Tenant
from phalanx.core.model.tree import Column
from phalanx.core.model.waiting import Rank, Unit, WaitingGang, WaitingGroup, Wanted
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.gang.place import Seats, Tries
from phalanx.core.placement.gang.rules import GatherLevels, binding_rules
from phalanx.core.placement.gang.search import GroupAsk, Layout, layouts
from phalanx.core.placement.gang.shapes import MemberShape, shapes_of
from phalanx.core.placement.preempt.node_fit import NodeFit
from phalanx.core.placement.preempt.trim import QuotaLeft

TRIES_MAX = 16  # layouts of several shapes, looked at until they fit beside each other


class GroupAsGang:
    """The first tasks of a group whose tasks are placed one by one, as a gang."""

    is_gang = True
    comes_back = False

    def __init__(self, unit: WaitingGroup, count: int) -> None:
        self.job: Job = unit.job
        self.rank: Rank = unit.rank
        self.kind = unit.kind
        self._request = unit.request
        self._positions = list(unit.ready(count))

    def wanted(self) -> tuple[Wanted, ...]:
        count = len(self._positions)
        return (Wanted(self._request, count, count),)

    def members(self, group: int) -> list[tuple[int, int]]:
        return list(enumerate(self._positions))

    def bound(self) -> list[tuple[int, int]]:
        return []


class Goal:
    """The members by shape, and the rules for where they stand."""

    def __init__(self, draft: Draft, unit: Unit, count: int = 1) -> None:
        self.draft = draft
        self.gang: WaitingGang = (
            cast(WaitingGang, unit) if unit.is_gang else GroupAsGang(cast(WaitingGroup, unit), count)
        )
        every = shapes_of(self.gang.wanted())
        self.needed = [shape for shape in every if shape.need]
        gang = self.gang.job.gang
        self.gather = binding_rules(self.gang)
        self.rules = GatherLevels(draft.nodes.tree, self.gather)
        near = draft.tenants.near.get(gang.affinity) if gang and gang.affinity else None
        self.existing: Column | None = None  # running tasks of the same affinity key, by node row
        if near:
            self.existing = np.zeros(len(draft.nodes), dtype=np.int64)
            self.existing[list(near)] = list(near.values())
        self.bound = [row for row, count in self.gang.bound() for _ in range(count)]
        self.has_multiples = bool(self.rules.multiples)
        # Slots say all there is to know of one shape; several share nodes, and multiples depend on all of them.
        self.is_simple = len(self.needed) == 1 and not self.has_multiples
        self.is_plain = self.is_simple and self.needed[0].request.target is None
        self.shapes = self.needed if not self.has_multiples else every
        self.wanted = [Wanted(shape.request, shape.need, shape.need) for shape in self.needed]

    @property
    def count(self) -> int:
        return sum(shape.need for shape in self.needed)

    @property
    def top(self) -> int:
        """The level of the domain that has to hold all of it. One member alone stands on one node anyway."""
        if self.count == 1 and not self.bound and not self.has_multiples:
            return self.draft.nodes.tree.node_level
        return self.rules.top or 0

    def quota(self, leaving: Iterable[Tenant]) -> QuotaLeft:
        """What the queue may hold beside the members that are needed, when these have left."""
        asked = [(shape.request, shape.need) for shape in self.needed]
        return QuotaLeft(self.draft.queues, self.gang.job.queue, asked, leaving)

    @property
    def is_within_quota(self) -> bool:
        """Whether nobody has to leave for the quota. With multiples there may be more members than are needed."""
        if not self.has_multiples:
            return self.quota(()).holds()
        asked = [(shape.request, shape.most) for shape in self.shapes]
        return QuotaLeft(self.draft.queues, self.gang.job.queue, asked, ()).holds()

    @property
    def pinned(self) -> set[int] | None:
        """The domains of the must layer in which members stand already; None if they may go anywhere."""
        if not self.bound or not self.rules.top:
            return None
        tree = self.draft.nodes.tree
        return set(tree.up(tree.node_level, np.array(self.bound), self.rules.top).tolist())

    def layouts(self, slots: Sequence[Column], cost: Column | None = None) -> Iterator[Layout]:
        """Layouts over these slots, all of what is needed and no more."""
        asks = [
            GroupAsk(shape.need, shape.need, column) for shape, column in zip(self.shapes, slots, strict=True)
        ]
        tree = self.draft.nodes.tree
        return layouts(tree, asks, self.gather, existing=self.existing, bound=self.bound, cost=cost)

    def seats(self) -> Seats | None:
        """A layout that fits into the ledgers as they are in the draft; None if there is none.

        For the sake of a multiple there may be more members than are needed, but as few more as possible.
        """
        place = self.draft.nodes.tree.place.tolist()
        extra = sum(shape.most - shape.need for shape in self.shapes) if self.has_multiples else 0
        for more in range(extra + 1):
            most = [min(shape.most, shape.need + more) for shape in self.shapes]
            if more and sum(most) == sum(min(shape.most, shape.need + more - 1) for shape in self.shapes):
                break
            shapes = [
                structs.replace(shape, most=count) for shape, count in zip(self.shapes, most, strict=True)
            ]
            tries = Tries(self.draft, self.gang, shapes, most, self.gather)
            for seats in islice(tries.whole(), TRIES_MAX):
                if self._holds(seats):
                    # In the order of the tree neighbours in rank are neighbours in the network.
                    return [sorted(counts, key=lambda each: place[each[0]]) for counts in seats]
        return None

    def asked(self, seats: Seats) -> dict[int, list[Asked]]:
        """What is asked of each node row."""
        found: dict[int, list[Asked]] = {}
        for shape, counts in zip(self.shapes, seats, strict=True):
            for row, count in counts:
                found.setdefault(row, []).append((shape.request, count))
        return found

    def level(self, seats: Seats) -> int:
        """The level of the lowest domain that holds all of these."""
        tree = self.draft.nodes.tree
        rows = np.array([row for counts in seats for row, _ in counts], dtype=np.int64)
        inner = (level for level in range(tree.node_level, 0, -1))
        return next((at for at in inner if len(np.unique(tree.up(tree.node_level, rows, at))) == 1), 0)

    def positions(self, shape: MemberShape) -> list[int]:
        """The tasks of a shape that are needed, in the order of their index."""
        return [position for _, position in shape.members(self.gang, shape.need)]

    def _holds(self, seats: Seats) -> bool:
        ledgers = self.draft.nodes.ledgers
        return all(NodeFit(ledgers[row], asked, ()).holds() for row, asked in self.asked(seats).items())
