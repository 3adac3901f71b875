"""One domain worked out: where the members would stand in it, which tenants have to leave for that, and the price.

For each choice of jobs that make room (`victim_search.py`) two layouts are looked at: on the slots that cost the least,
and as close together as all these slots allow. Then every unit that can stay does (`node_fit.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import frexp

import numpy as np
from msgspec import structs

from phalanx.core.model.queues import Asked
from phalanx.core.model.tenants import Tenant
from phalanx.core.model.tree import Column, Mask
from phalanx.core.model.waiting import Ask, Part
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.gang.domains import GatherLevels
from phalanx.core.placement.gang.grants import Tries
from phalanx.core.placement.gang.search import Layout, PartSlots, layouts
from phalanx.core.placement.preempt.free import FreeAfter, Offers, Prices, shortened
from phalanx.core.placement.preempt.node_fit import NodeFit, QuotaLeft, Trim
from phalanx.core.placement.preempt.victim_search import VictimChoice, VictimSearch
from phalanx.core.placement.preempt.victims import EvictionUnit, Loss, Victims, bundled, total

TRIES_MAX = 16  # layouts of several parts, looked at until they fit beside each other
MANY = 256  # members; for more of them only one layout is worked out
LAYOUTS_MAX = 4  # of several parts, looked at until one fits
TRIED_MAX = 512  # victims; with more of them leaving, several parts are not tried in the draft
AGAIN_MAX = 32  # units; with no more than these it is tried whether members could stand elsewhere instead
ENDLESS = int(np.iinfo(np.int64).max)

Key = tuple[int, int, int, tuple[int, ...], int, int, int, float, int, Layout]


class Preemption:
    """An ask for which others may leave: each member that is needed and no more, and the rules for where they stand."""

    def __init__(self, draft: Draft, ask: Ask) -> None:
        self.draft, self.ask = draft, ask
        self.needed = [part for part in ask.parts if part.need]
        self.gather = ask.gather
        self.rules = GatherLevels(draft.nodes.tree, self.gather)
        self.existing = draft.tenants.near_to(ask.affinity, len(draft.nodes))
        self.bound = ask.bound
        self.pinned = self.rules.pinned(ask.bound)
        self.has_multiples = bool(self.rules.multiples)
        # Slots say all there is to know of one part; several share nodes, and multiples depend on all of them.
        self.is_simple = len(self.needed) == 1 and not self.has_multiples
        self.is_plain = self.is_simple and self.needed[0].request.target is None
        self.parts = self.needed if not self.has_multiples else ask.parts

    @property
    def count(self) -> int:
        return sum(part.need for part in self.needed)

    @property
    def top(self) -> int:
        """The level of the domain that has to hold all of it. One member alone stands on one node anyway."""
        if self.count == 1 and not self.bound and not self.has_multiples:
            return self.draft.nodes.tree.node_level
        return self.rules.top or 0

    def quota(self, leaving: Iterable[Tenant]) -> QuotaLeft:
        """What the queue may hold beside the members that are needed, when these have left."""
        asked = [(part.request, part.need) for part in self.needed]
        return QuotaLeft(self.draft.queues, self.ask.job.queue_user, asked, leaving)

    @property
    def quota_now(self) -> QuotaLeft:
        """The same while nobody has left. With multiples there may be more members than are needed."""
        if not self.has_multiples:
            return self.quota(())
        asked = [(part.request, part.most) for part in self.parts]
        return QuotaLeft(self.draft.queues, self.ask.job.queue_user, asked, ())

    def layouts(self, slots: Sequence[Column], cost: Column | None = None) -> Iterator[Layout]:
        """Layouts over these slots, all of what is needed and no more."""
        free_after = [
            PartSlots(each.need, each.need, column) for each, column in zip(self.parts, slots, strict=True)
        ]
        tree = self.draft.nodes.tree
        return layouts(tree, free_after, self.gather, existing=self.existing, bound=self.bound, cost=cost)

    def layout(self) -> Layout | None:
        """A layout that fits into the ledgers as they are in the draft; None if there is none.

        For the sake of a multiple there may be more members than are needed, but as few more as possible.
        """
        place = self.draft.nodes.tree.place.tolist()
        extra = sum(part.most - part.need for part in self.parts) if self.has_multiples else 0
        for more in range(extra + 1):
            most = [min(part.most, part.need + more) for part in self.parts]
            if more and sum(most) == sum(min(part.most, part.need + more - 1) for part in self.parts):
                break
            parts = [structs.replace(part, most=count) for part, count in zip(self.parts, most, strict=True)]
            tries = Tries(self.draft, self.ask, parts, most, self.gather)
            for layout in islice(tries.whole(), TRIES_MAX):
                if self.holds(layout, {}):
                    # In the order of the tree neighbours in rank are neighbours in the network.
                    return [sorted(counts, key=lambda each: place[each[0]]) for counts in layout]
        return None

    def asked(self, layout: Layout) -> dict[int, list[Asked]]:
        """What is asked of each node row."""
        found: dict[int, list[Asked]] = {}
        for part, counts in zip(self.parts, layout, strict=True):
            for row, count in counts:
                found.setdefault(row, []).append((part.request, count))
        return found

    def level(self, layout: Layout) -> int:
        """The level of the lowest domain that holds all of these."""
        tree = self.draft.nodes.tree
        rows = np.array([row for counts in layout for row, _ in counts], dtype=np.int64)
        inner = (level for level in range(tree.node_level, 0, -1))
        return next((at for at in inner if len(np.unique(tree.up(tree.node_level, rows, at))) == 1), 0)

    def positions(self, part: Part) -> list[int]:
        """The tasks of a part that are needed, in the order of their index."""
        return [position for _, position in self.ask.members(part, part.need)]

    def holds(self, layout: Layout, leaving: Mapping[int, Sequence[Tenant]]) -> bool:
        """Whether every node holds its members when these tenants, by node row, have left."""
        ledgers = self.draft.nodes.ledgers
        return all(
            NodeFit(ledgers[row], asked, leaving.get(row, ())).holds()
            for row, asked in self.asked(layout).items()
        )


class EvictionPlan:
    """One way to make room: where the members stand, and which units leave."""

    def __init__(self, preemption: Preemption, layout: Layout, units: list[EvictionUnit]) -> None:
        self.layout = tuple(map(tuple, layout))
        self.units = units
        self.leaving: list[Tenant] = [tenant for unit in units for tenant in unit.tenants]
        self.price = total(units)
        self.level = preemption.level(layout)
        self._is_near_wanted = bool(preemption.gather)

    @property
    def key(self) -> Key:
        """The smaller is the better.

        Fewest jobs broken, gangs made smaller, promises taken back; lowest priorities. Then members that stand closer
        together, if the job says anything of where it stands; if not, only where about as much work is lost (no more
        than twice as much). Then the least lost work.
        """
        cost = self.price
        size = frexp(cost.lost)[1]
        before, after = (0, size) if self._is_near_wanted else (size, 0)
        return (
            cost.broken, cost.shrunk, cost.displaced, cost.priorities, before, -self.level, after, cost.lost,
            cost.tenants, self.layout,
        )  # fmt: skip


class EvictionDomain:
    """A domain that may hold the unit, or the whole cluster, with the victims on its nodes."""

    def __init__(
        self, preemption: Preemption, free_after: FreeAfter, losses: Column, elsewhere: Column | None = None
    ) -> None:
        """`losses` is over all victims, `elsewhere` has the victims that are asked for their quota."""
        self._for = preemption
        self._victims: Victims = free_after.measure.victims
        self._elsewhere = elsewhere
        self.free_after = free_after
        self.losses = losses
        self._search = VictimSearch(
            free_after, losses, self.fits, 0.0 if preemption.is_simple else 0.2 + len(free_after.at) / 500
        )

    @property
    def effort(self) -> float:
        """About as many milliseconds as it took to work it out."""
        return self._search.effort + 0.03 * self._for.count + len(self._for.draft.nodes) / 5000

    def fits(self, leaving: Mask) -> bool:
        """Whether every member that is needed finds a place when these have left."""
        slots = self.free_after.slots(leaving)
        if any(int(each.sum()) < part.need for each, part in zip(slots, self._for.needed, strict=True)):
            return False
        return self._for.is_simple or self._layout(leaving) is not None

    def plans(self) -> Iterator[EvictionPlan]:
        """Ways to make room here."""
        for choice in self._search.choices():
            for found in self._worked_out(choice):
                best = found
                while (better := self._improved(best)) is not None:
                    best = better
                yield best

    def _worked_out(self, choice: VictimChoice) -> Iterator[EvictionPlan]:
        tried: list[Layout] = []
        for layout in self._layouts(choice):
            if layout not in tried:
                tried.append(layout)
                if (found := self._trimmed(layout, choice.leaving)) is not None:
                    yield found

    def _layouts(self, choice: VictimChoice) -> Iterator[Layout]:
        if not self._for.is_simple:
            if (layout := self._layout(choice.leaving)) is not None:
                yield layout
            return
        need = self._for.count
        if len(self.free_after.rows) == 1:
            yield [[(int(self.free_after.rows[0]), need)]]
            return
        offers = Offers(self.free_after, choice.leaving, self._prices(choice))
        if need <= MANY or not self._for.gather:
            yield from self._first([offers.cheapest(need)], None)
        if need <= MANY or self._for.gather:
            cost = self.free_after.column(np.rint(1000 * offers.total).astype(np.int64))
            yield from self._first(self.free_after.slots(choice.leaving), cost)

    def _first(self, slots: list[Column], cost: Column | None) -> Iterator[Layout]:
        columns = [self.free_after.column(each) for each in slots]
        if (layout := next(self._for.layouts(columns, cost), None)) is not None:
            yield layout

    def _prices(self, choice: VictimChoice) -> Prices:
        """What each victim's leaving adds to the price, as far as one can tell before the members have places.

        If all chosen jobs are needed anyway, only lost work counts, and whole gangs are lost already. Otherwise a
        job more is dearer than any priority, and priority dearer than lost work.
        """
        victims, at = self._victims, self.free_after.at
        lost = victims.lost[at]
        loss, job = self.losses[at], victims.job[at]
        is_whole = (loss == Loss.WORK) & victims.is_gang[job]
        if choice.is_thin:
            return np.where(is_whole | (loss == Loss.PROMISE), 0.0, 1.0 + lost)
        whole = np.bincount(victims.job, victims.lost, minlength=victims.jobs)
        lost = np.where(is_whole, whole[job], lost)
        words, ranks = np.unique(victims.priority, return_inverse=True)
        prices: Prices = ranks[job] + lost / (1.0 + lost.max(initial=0.0))
        works = np.flatnonzero(choice.leaving & (loss == Loss.WORK))
        keys = self.free_after.row[works] * victims.jobs + job[works]
        prices[works[np.unique(shortened(keys), return_index=True)[1]]] += len(words) + 1.0
        return prices

    def _layout(self, leaving: Mask) -> Layout | None:
        """A layout for several parts, or with multiples, when these have left. Nodes are asked whether all fit."""
        if not self._for.has_multiples:
            columns = [self.free_after.column(each) for each in self.free_after.slots(leaving)]
            for layout in islice(self._for.layouts(columns), LAYOUTS_MAX):
                if self._holds(layout, leaving):
                    return layout
        chosen = self.free_after.at[leaving].tolist()
        return self._tried(chosen) if len(chosen) <= TRIED_MAX else None

    def _holds(self, layout: Layout, leaving: Mask) -> bool:
        gone: dict[int, list[Tenant]] = {}
        chosen, rows = self.free_after.at[leaving], [row for counts in layout for row, _ in counts]
        for at in chosen[np.isin(self._victims.node[chosen], rows)].tolist():
            gone.setdefault(int(self._victims.node[at]), []).append(self._victims.tenant(at))
        return self._for.holds(layout, gone)

    def _tried(self, chosen: list[int]) -> Layout | None:
        """The same, found in the draft as if these victims had left: slower, and more thorough."""
        draft = self._for.draft
        mark = draft.mark()
        for at in chosen:
            draft.evict(self._victims.tenant(at))
        try:
            return self._for.layout()
        finally:
            draft.rollback(mark)

    def _trimmed(self, layout: Layout, leaving: Mask) -> EvictionPlan | None:
        """Only those units leave that the members do not fit beside, where they are to stand."""
        asked = self._for.asked(layout)
        is_used = np.zeros(len(self._for.draft.nodes), dtype=np.bool_)
        is_used[list(asked)] = True
        chosen = self.free_after.at[leaving]
        chosen = chosen[is_used[self._victims.node[chosen]]]
        if self._elsewhere is not None:
            chosen = np.union1d(chosen, self._elsewhere)
        alone, others = bundled(self._victims, self.losses, chosen)
        stuck = self._stuck(layout, leaving) if self._for.is_plain else set()
        if stuck is None:
            return None
        fixed = [unit for at, unit in alone.items() if at in stuck]
        loose = [*(unit for at, unit in alone.items() if at not in stuck), *others]
        trim = self._trim(asked, fixed, loose)
        if not trim.holds():
            return None
        return EvictionPlan(
            self._for, layout, sorted(fixed + trim.keep_out(loose), key=lambda each: each.value)
        )

    def _trim(
        self, asked: dict[int, list[Asked]], fixed: list[EvictionUnit], loose: list[EvictionUnit]
    ) -> Trim:
        """The nodes to which a tenant might come back; others need no closer look."""
        draft = self._for.draft
        ledgers = draft.nodes.ledgers
        rows = {tenant.node_row for unit in loose for tenant in unit.tenants}
        if not self._for.is_plain:
            rows.update(asked)
        rows.update(row for row in asked if ledgers[row].promises)
        by_row: dict[int, list[Tenant]] = {row: [] for row in asked if row in rows}
        for unit in (*fixed, *loose):
            for tenant in unit.tenants:
                if tenant.node_row in by_row:
                    by_row[tenant.node_row].append(tenant)
        fits = {row: NodeFit(ledgers[row], asked[row], mine) for row, mine in by_row.items()}
        everybody = (tenant for unit in (*fixed, *loose) for tenant in unit.tenants)
        sizes = [each for row in asked.values() for each in row]
        return Trim(fits, QuotaLeft(draft.queues, self._for.ask.job.queue_user, sizes, everybody))

    def _stuck(self, layout: Layout, leaving: Mask) -> set[int] | None:
        """The victims that cannot come back even if all others stay away; None if the members do not fit at all.

        One calculation for all nodes, before the others are looked at one by one.
        """
        rows, counts = np.array(layout[0], dtype=np.int64).T
        here = np.searchsorted(self.free_after.rows, rows)
        slack = np.full((len(self.free_after.measure.free), len(self.free_after.rows)), ENDLESS)
        slack[:, here] = self.free_after.beside(leaving, here, counts)
        ledgers = self._for.draft.nodes.ledgers
        overdrawn = np.array([ledgers[row].promises > 0 for row in rows.tolist()])
        slack[:, here[overdrawn]] = ENDLESS  # counting is not enough where a device may be held and promised
        if slack.min(initial=0) < 0:
            return None
        return set(self.free_after.at[self.free_after.exceeds(slack) & leaving].tolist())

    def _improved(self, found: EvictionPlan) -> EvictionPlan | None:
        """Let off a unit that has to leave only because of where the members stand: they could stand elsewhere."""
        if len(found.units) > AGAIN_MAX:
            return None
        everybody = self._mask(found.leaving)
        if self._for.is_simple and int(self.free_after.slots(everybody)[0].sum()) <= self._for.count:
            return None  # every slot is used
        for unit in found.units:
            leaving = everybody & ~self._mask(unit.tenants)
            if self.fits(leaving):
                for other in self._worked_out(VictimChoice(leaving, is_thin=True)):
                    if other.key < found.key:
                        return other
        return None

    def _mask(self, tenants: Iterable[Tenant]) -> Mask:
        """Which of the victims in this domain these are."""
        slots = self._victims.tenants.slots
        at = np.searchsorted(self._victims.slot, [slots[tenant.key] for tenant in tenants])
        mask: Mask = np.isin(self.free_after.at, at)
        return mask
