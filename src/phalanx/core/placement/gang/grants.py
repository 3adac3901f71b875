"""All of a gang or none of it: the layouts tried one after another, and the exact grant of each member.

`search.py` says which nodes, as counts; here the ledgers of those nodes alone are asked for the grants. Members are
laid over the nodes in the order of their index in the network, so that neighbours in rank are neighbours in the
network. Groups that ask for different things share nodes: the layouts of a domain are tried one after another, then
the domain is searched (`packing.py`), then the next domain has its turn. Why there is no room is put into
words in `core/explain/shortage.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, product

import numpy as np
from msgspec import Struct, structs

from phalanx.core.model.amounts import ADDRESSES, ANY, total
from phalanx.core.model.plan import GangPlacement, Placement
from phalanx.core.model.reason import Reason
from phalanx.core.model.resources import Grant, Request
from phalanx.core.model.score import FREE_OF_DEVICES
from phalanx.core.model.waiting import Ask, Gathers, Member, Part
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.gang.domains import Field
from phalanx.core.placement.gang.packing import STEPS_MAX, Packing
from phalanx.core.placement.gang.search import CandidateDomain, GangSearch, Layout, PartSlots
from phalanx.core.placement.preempt.node_fit import NodeFit, in_turn
from phalanx.core.placement.spread import is_spread

SIZES_MAX = 256  # how many sizes of a gang with multiples are tried in one domain


class NoLayout(Struct, frozen=True):
    """A gang of these parts finds no room: what was searched, and whether a layout may have been missed."""

    parts: Sequence[Part]
    search: GangSearch
    gave_up: bool = False


def try_gang(draft: Draft, ask: Ask, *, partial: bool = False) -> GangPlacement | Reason | NoLayout:
    """Take grants for all members that are needed and as many more as find room. A Reason is about the quota alone.

    With `partial` as many members as find room now, even if they are not enough.
    """
    parts = ask.parts
    if not parts:
        return GangPlacement(ask.job.id, ())
    needs: list[int] = []
    if partial:
        needs = [part.need for part in parts]
        parts = [structs.replace(part, need=0) for part in parts]
    most = draft.queues.admitted(ask.job.queue_user, _counted(draft, ask, parts))
    if isinstance(most, Reason):
        return most
    tried = [Tries(draft, ask, parts, most, gather) for gather in ask.rules_to_try]
    too_much: Reason | None = None
    for tries in tried:
        for layout in tries.as_many_as_fit(needs) if partial else tries.whole():
            members = take_within(draft, ask, parts, layout)
            if isinstance(members, Reason):
                too_much = members
            elif members:
                gang_placement = GangPlacement(ask.job.id, tuple(members))
                draft.enlist(gang_placement)
                return gang_placement
    return too_much or NoLayout(parts, tried[-1].search, tried[-1].gave_up)


def take_within(
    draft: Draft, ask: Ask, parts: Sequence[Part], layout: Layout
) -> list[Placement] | Reason | None:
    """Take the grants for one layout, unless whole nodes for its members are more than the limits admit."""
    mark = draft.mark()
    members = take_grants(draft, ask, parts, layout)
    if members and any(part.request.exclusive for part in parts):
        draft.rollback(mark)
        no = draft.queues.lacks_grants(ask.job.queue_user, [each.grant for each in members])
        return no or take_grants(draft, ask, parts, layout)
    return members


def _counted(draft: Draft, ask: Ask, parts: Sequence[Part]) -> Sequence[Part]:
    """The same as a quota counts it: members that want a node for themselves as whole nodes."""
    if not any(part.request.exclusive for part in parts):
        return parts
    left = draft.queues.free(ask.job.queue_user)
    return [structs.replace(part, request=draft.nodes.counted(part.request, left)) for part in parts]


def take_grants(draft: Draft, ask: Ask, parts: Sequence[Part], layout: Layout) -> list[Placement] | None:
    """Take the grants for one layout; the members in the order of their index, or None with the draft as before."""
    mark = draft.mark()
    alone = len(parts) == 1
    found = _take_alone(draft, ask, parts[0], layout[0]) if alone else _take_beside(draft, ask, parts, layout)
    if found is None:
        draft.rollback(mark)
    return found


def _take_alone(
    draft: Draft, ask: Ask, part: Part, counts: Sequence[tuple[int, int]]
) -> list[Placement] | None:
    """Members that all ask for the same, node after node."""
    job, whose, request = ask.job.id, ask.job.queue_user, part.request
    members = iter(ask.members(part, sum(count for _, count in counts)))
    found: list[Placement] = []
    take = draft.take
    for row, count in counts:
        fit, node = draft.nodes.ledgers[row].fit, draft.nodes.names[row]
        for _, position in islice(members, count):
            grant = fit(request)
            if grant.__class__ is not Grant:
                return None
            take(row, grant, whose)
            found.append(Placement(job, position, node, grant))
    return found


def _take_beside(draft: Draft, ask: Ask, parts: Sequence[Part], layout: Layout) -> list[Placement] | None:
    """Members of different parts, which share nodes: in an order in which each ledger can grant one after another."""
    asked: dict[int, list[tuple[Request, list[Member]]]] = {}
    for part, counts in zip(parts, layout, strict=True):
        members = iter(ask.members(part, sum(count for _, count in counts)))
        for row, count in counts:
            asked.setdefault(row, []).append((part.request, list(islice(members, count))))
    found: list[tuple[Member, Placement]] = []
    for row, wanted in asked.items():
        ledger, left = draft.nodes.ledgers[row], [iter(members) for _, members in wanted]
        sizes = [(request, len(members)) for request, members in wanted]
        if not NodeFit(ledger, sizes, ()).holds():
            return None
        for at, request in in_turn(ledger, sizes):
            grant, member = ledger.fit(request), next(left[at])
            if not isinstance(grant, Grant):
                return None
            draft.take(row, grant, ask.job.queue_user)
            found.append((member, Placement(ask.job.id, member[1], ledger.name, grant)))
    return [placement for _, placement in sorted(found, key=lambda each: each[0])]


class Tries:
    """The layouts to try for one gang, the best first."""

    def __init__(
        self, draft: Draft, ask: Ask, parts: Sequence[Part], most: Sequence[int], gather: Gathers
    ) -> None:
        nodes = self._nodes = draft.nodes
        self._parts, self._gather, self._bound = parts, gather, ask.bound
        self._existing = draft.tenants.near_to(ask.affinity, len(nodes))  # those of this gang are among them
        slots = []
        for part, count in zip(parts, most, strict=True):
            apart = is_spread(part.request)
            grades = None if apart else nodes.scores.grades(part.request, draft.score)
            spread = nodes.scores.column(part.request, draft.score) if apart else None
            slots.append(PartSlots(part.need, count, *nodes.slots(part.request), grades, spread))
        self.search = GangSearch(nodes.tree, slots, gather, self._existing, self._bound)
        self._steps = STEPS_MAX
        self._size: Sequence[int] = ()
        self.gave_up = False  # somewhere a layout may have been missed

    def whole(self) -> Iterator[Layout]:
        """Layouts with all that is needed."""
        search = self.search
        if (apart := self._off_devices()) is not None:
            for candidate in apart.candidates():
                yield from apart.fill(candidate)
        # Slots are exact for one part, and a multiple is, unless some of it stands there already.
        is_exact = len(self._parts) == 1 and (search.held is None or not search.rules.multiples)
        for candidate in search.candidates():
            yield from search.fill(candidate)
            if not is_exact and (found := self._pack(candidate)) is not None:
                yield found

    def _off_devices(self) -> GangSearch | None:
        """For a gang that asks for no devices, the search on nodes with none to give; None if not all fit there."""
        search, parts = self.search, []
        if self._bound or self._existing is not None or search.rules.preferred:
            return None
        for part, each in zip(self._parts, search.parts, strict=True):
            if part.request.gpus or each.grades is None:
                return None
            slots = np.where(each.grades <= FREE_OF_DEVICES, each.slots, 0)
            if int(slots.sum()) < each.most:
                return None
            parts.append(PartSlots(each.most, each.most, slots, grades=each.grades))
        return GangSearch(search.tree, parts, self._gather)

    def as_many_as_fit(self, needs: Sequence[int]) -> Iterator[Layout]:
        """The layout with the most members in one domain of the layer that must hold them all."""
        if self.search.rules.top is None:
            return
        self._leave_out_hopeless(needs)
        search = self.search
        best = search.roomiest()
        if len(self._parts) > 1:
            packing = self._packing(best)
            yield packing.extend([part.most for part in search.parts])
            return
        (part,) = search.parts
        part.most = part.need = min(part.most, int(search.fields[0].at(best.level)[best.number]))
        if part.most:
            yield from self.whole()

    def _leave_out_hopeless(self, needs: Sequence[int]) -> None:
        """Part of a gang waits only where all that it needs could come: elsewhere it would hold places in vain."""
        tree, top, columns = self._nodes.tree, self.search.rules.top or 0, self._nodes.columns
        domains = tree.up(tree.node_level, np.arange(len(self._nodes)), top)
        pinned = self.search.domains.pinned
        could = np.full(tree.size(top), pinned is None or len(pinned) == 1)
        for part, need in zip(self._parts, needs, strict=True):
            could &= Field(tree, *self._nodes.ever(part.request)).at(top) >= need
        asked = zip((part.request for part in self._parts), needs, strict=True)
        every = (*columns.every[:ADDRESSES], columns.of_kind(ANY, every=True))
        for column, wanted in zip(every, total(asked)[1:], strict=True):  # parts share what a domain has
            could &= np.bincount(domains, column, minlength=len(could)) >= wanted
        if could.all():
            return
        rows = could[domains]
        parts = [
            PartSlots(
                *(part.need, part.most, np.where(rows, part.slots, 0)), grades=part.grades, spread=part.spread
            )
            for part in self.search.parts
        ]
        self.search = GangSearch(tree, parts, self._gather, self._existing, self._bound)

    def _pack(self, candidate: CandidateDomain) -> Layout | None:
        """Look for a layout in one domain by trying, if steps are left."""
        if candidate.size != self._size:  # the search for all of it leaves enough steps for what is needed
            self._size, self._steps = candidate.size, STEPS_MAX
        for size in self._sizes(candidate):
            if self._steps <= 0:
                self.gave_up = True
                return None
            packing = self._packing(candidate)
            found = packing.find(size)
            self._steps = packing.steps
            self.gave_up = self.gave_up or packing.gave_up
            if found is not None:
                if not self.search.rules.multiples:
                    found = packing.extend([part.most for part in self.search.parts])
                # In the order of the tree neighbours in rank are neighbours in the network.
                place = self._nodes.tree.place
                return [sorted(counts, key=lambda each: int(place[each[0]])) for counts in found]
        return None

    def _sizes(self, candidate: CandidateDomain) -> Iterable[tuple[int, ...]]:
        """With multiples more than what is needed may fit where just that does not."""
        if not self.search.rules.multiples:
            return [candidate.size]
        most = [part.most for part in self.search.parts]
        sizes = product(*(range(least, most + 1) for least, most in zip(candidate.size, most, strict=True)))
        fitting = (size for size in sizes if self.search.completes(candidate, sum(size)))
        return sorted(islice(fitting, SIZES_MAX), key=sum, reverse=True)

    def _packing(self, candidate: CandidateDomain) -> Packing:
        search = self.search
        slots = [part.slots for part in search.parts]
        rows = search.tree.rows(candidate.level, candidate.number)
        rows = rows[np.any([column[rows] > 0 for column in slots], axis=0)]
        for part in search.parts:
            if part.grades is not None:
                rows = rows[np.argsort(part.grades[rows], kind="stable")]
        if search.existing is not None:
            rows = rows[np.argsort(-search.existing.slots[rows], kind="stable")]
        return Packing(
            self._nodes.ledgers,
            rows.tolist(),
            [part.request for part in self._parts],
            [column[rows].tolist() for column in slots],
            search.keeps_multiples if search.rules.multiples else None,
            self._steps,
        )
