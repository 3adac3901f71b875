"""Whom to ask to leave, so that a more urgent unit can start whole; or why that would not help.

    victims    everybody less urgent who is not protected, as columns                 victims.py
    domains    those that would hold the unit if all victims left                     candidates.py
    jobs       for the most promising domains, as few jobs as possible that give way  victim_search.py
    layout     where the members stand then, on the slots that cost the least         offers.py, gang/search.py
    trimming   whoever can stay does                                                  trim.py

A job of lower priority may hold a promise whose victims are still leaving. Its promise can be taken over like any
other, and then the room of those who leave belongs to whoever took it: they are counted as gone, and waited for.

Nobody is evicted unless every needed member fits, and nobody for members beyond those. Layers of must rules are kept;
for all others a domain that costs fewer jobs wins over a tighter one (`EvictionPlan.key` has the whole order).
Evictions and grants are one gang placement in the draft: all of it happens, or none.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from msgspec.structs import replace

from phalanx.core.model import reason
from phalanx.core.model.job import Job
from phalanx.core.model.plan import GangPlacement, Placement, Policy
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.tenants import Tenant, TenantKey
from phalanx.core.model.tree import Column, before
from phalanx.core.model.waiting import Ask, Unit
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.gang.place import seat
from phalanx.core.placement.preempt.eviction_plan import EvictionDomain, EvictionPlan, Preemption
from phalanx.core.placement.preempt.free import FreeAfter, Measure, shortened
from phalanx.core.placement.preempt.victims import Loss, Victims

DOMAINS_MAX = 8  # how many domains are worked out in full,
EFFORT_MAX = 10.0  # as long as that is quick (in about as many milliseconds),
MISSES_MAX = 60.0  # and how long to go on if none of them holds the unit after all
LOCKED_MAX = 8  # nodes that are tried first for members of gangs that cannot leave whole


def make_room(draft: Draft, unit: Unit, policy: Policy, *, count: int = 1) -> GangPlacement | Reason:
    """Evict in the draft whoever has to leave for the unit and take its members' grants, or say why not.

    Of a group whose tasks are placed one by one, room is made for the first `count` that are ready. On a no the
    draft is as it was before.
    """
    if not policy.evicts:
        return _forbidden("Preemption is disabled in this cluster")
    if not unit.job.may_evict:
        return _forbidden("The job may not preempt others")
    mark = draft.mark()
    leaving = _on_their_way(draft, unit.job)
    for tenant in leaving:
        draft.evict(tenant)
    found = _made_room(draft, unit, count, leaving)
    if isinstance(found, Reason):
        draft.rollback(mark)
    return found


def _made_room(draft: Draft, unit: Unit, count: int, leaving: list[Tenant]) -> GangPlacement | Reason:
    preemption = Preemption(draft, Ask(unit, count))
    if not preemption.needed or preemption.ask.is_surplus:
        return _forbidden("It has all members that it needs; nothing is preempted for more")
    victims = Victims(draft, preemption.ask.job)
    if (no := _hopeless(preemption, victims)) is not None:
        return no
    domains = EvictionDomains(preemption, victims)
    for plan in sorted(domains.plans(), key=lambda each: each.key):
        if (gang_placement := _enlisted(draft, preemption, plan, domains.trigger(plan), leaving)) is not None:
            return gang_placement
    return _not_enough(preemption, victims, domains)


def _on_their_way(draft: Draft, job: Job) -> list[Tenant]:
    """Whoever is leaving a node on which a promise stands that the job could take over."""
    tenants = draft.tenants
    here = tenants.used.copy()
    here[[tenants.slots[key] for key in draft.gone]] = False
    lower = here & tenants.promise & (tenants.priority < job.priority) & (tenants.evictable_at <= draft.now)
    if not lower.any():
        return []
    slots = np.flatnonzero(here & tenants.leaving & np.isin(tenants.node, tenants.node[lower]))
    found = (tenants.tenants[slot] for slot in slots.tolist())
    return [tenant for tenant in found if tenant is not None and draft.nodes.open[tenant.node_row]]


def _enlisted(
    draft: Draft, preemption: Preemption, plan: EvictionPlan, trigger: int, leaving: list[Tenant]
) -> GangPlacement | None:
    """Carry it out in the draft."""
    mark = draft.mark()
    for tenant in sorted(plan.leaving, key=lambda each: not each.is_promise):
        draft.evict(tenant)
    members = seat(draft, preemption.ask, preemption.parts, plan.seats)
    if members is None:
        draft.rollback(mark)
        return None
    victims = sorted(tenant.key for tenant in plan.leaving if not tenant.is_promise)
    displaced = sorted({tenant.job for tenant in plan.leaving if tenant.is_promise})
    awaited = _awaited(draft, preemption, members, leaving)
    gang_placement = GangPlacement(
        preemption.ask.job.id, tuple(members), tuple(victims), tuple(displaced), trigger, awaited
    )
    draft.enlist(gang_placement)
    return gang_placement


def _awaited(
    draft: Draft, preemption: Preemption, members: list[Placement], leaving: list[Tenant]
) -> tuple[TenantKey, ...]:
    """Those on their way out without whose places, or whose quota, the members could not start; the others stay."""
    devices: dict[int, set[int]] = {}
    for each in members:
        devices.setdefault(draft.nodes.rows[each.node], set()).update(each.grant.devices)
    queue = preemption.ask.job.queue
    found: list[TenantKey] = []
    for tenant in leaving:
        row, grant = tenant.node_row, tenant.grant
        has_room = draft.nodes.ledgers[row].has_room(replace(grant, devices=()))
        in_the_way = row in devices and not (has_room and devices[row].isdisjoint(grant.devices))
        if in_the_way or (tenant.queue == queue and queue in draft.queues.quotas):
            found.append(tenant.key)
        else:
            draft.readmit(tenant)
    return tuple(sorted(found))


def _hopeless(preemption: Preemption, victims: Victims) -> Reason | None:
    """Why it need not be tried."""
    if preemption.rules.top is None:
        unknown = next(rule.layer for rule in preemption.rules.unknown if rule.must)
        return reason.layer_unknown(unknown, preemption.draft.nodes.tree.topology.names())
    if not len(victims):
        text = "No task of lower priority is running"
        if victims.protected:
            text = f"All {victims.protected} tasks of lower priority are protected from preemption for now"
        return Reason("NoVictims", Tier.CAPACITY, text, {"victims": 0, "protected": victims.protected})
    queue = preemption.ask.job.queue
    if not preemption.quota(map(victims.tenant, victims.of_queue(queue))).holds():
        no = preemption.draft.queues.admitted(queue, preemption.needed)
        assert isinstance(no, Reason)
        return no
    return None


def _not_enough(preemption: Preemption, victims: Victims, domains: EvictionDomains) -> Reason:
    """Everybody would leave in vain."""
    best, domain = domains.best()
    layer = preemption.draft.nodes.tree.layer(preemption.rules.top or 0)
    where = f" (in {layer} {'/'.join(domain)})" if domain else ""
    leave = f"Preempting all {len(victims)} tasks of lower priority"
    text = f"{leave} would make room for {best} of {preemption.count} members{where}"
    if best >= preemption.count:
        text = f"{leave} would not make room for {preemption.count} members together"
    numbers = {
        "wanted": preemption.count, "best": best, "layer": layer, "domain": list(domain), "victims": len(victims),
        "protected": victims.protected,
    }  # fmt: skip
    return Reason("EvictionsNotEnough", Tier.CAPACITY, text, numbers)


def _forbidden(text: str) -> Reason:
    return Reason("EvictionForbidden", Tier.POLICY, text)


class EvictionDomains:
    """The domains of the layer that has to hold all of the unit."""

    def __init__(self, preemption: Preemption, victims: Victims) -> None:
        self._for = preemption
        self._victims = victims
        self._tree = preemption.draft.nodes.tree
        self._level = preemption.top
        self._measure = Measure(preemption.draft.nodes, preemption.needed, victims)
        self._free_after = FreeAfter.over(
            self._measure, np.flatnonzero(preemption.draft.nodes.open), np.arange(len(victims))
        )
        self._domain = self._tree.up(self._tree.node_level, self._free_after.rows, self._level)
        self._losses = self._losses_on(self._free_after, is_everywhere=False)
        self._loss = self._losses[self._free_after.at]
        self._most = self._free_after.slots(np.ones(len(self._free_after.at), dtype=np.bool_))

    def plans(self) -> Iterator[EvictionPlan]:
        """Ways to make room in the domains that promise the most."""
        if self._for.is_within_quota:
            yield from self._worked_out(None)
            return
        # The queue holds too much already: who leaves for the room should free quota as well, if that is enough.
        mine = np.fromiter(self._victims.of_queue(self._for.ask.job.queue), dtype=np.int64)
        found = list(self._worked_out(mine, is_own_only=True))
        yield from found or self._worked_out(mine)

    def best(self) -> tuple[int, tuple[str, ...]]:
        """How many members find room in the best domain when everybody has left, and its path."""
        total = np.zeros(self._tree.size(self._for.rules.top or 0), dtype=np.int64)
        domain = self._tree.up(self._tree.node_level, self._free_after.rows, self._for.rules.top or 0)
        for slots, part in zip(self._most, self._for.needed, strict=True):
            total += np.minimum(self._summed(slots, domain, len(total)), part.need)
        if (pinned := self._for.pinned) is not None:
            total[np.isin(np.arange(len(total)), list(pinned), invert=True)] = 0
        if not len(total):
            return 0, ()
        at = int(total.argmax())
        return int(total[at]), self._tree.path(self._for.rules.top or 0, at)

    def trigger(self, plan: EvictionPlan) -> int:
        """The position of the first member that finds no room in the same domain as long as nobody leaves."""
        row = next(row for counts in plan.seats for row, _ in counts)
        home = self._tree.up(self._tree.node_level, np.array([row]), self._level)[0]
        now = self._free_after.slots()
        for slots, part in zip(now, self._for.needed, strict=True):
            free = int(slots[self._domain == home].sum())
            if free < part.need:
                return self._for.positions(part)[free]
        return self._for.positions(self._for.needed[-1])[0]

    def _candidates(
        self, domain: int, among: Column | None, elsewhere: Column | None
    ) -> Iterator[EvictionDomain]:
        """One domain, and the same with other members of gangs that cannot leave whole."""
        if self._level == 0 and elsewhere is None:
            free_after, losses = self._free_after, self._losses
        else:
            begins, by_home = self._homes
            at = self._free_after.at[by_home[begins[domain] : begins[domain + 1]]]
            if among is not None:
                at = np.intersect1d(at, among)
            free_after = FreeAfter.over(self._measure, self._free_after.rows[self._domain == domain], at)
            losses = self._losses_on(free_after, elsewhere is not None)
        yield EvictionDomain(self._for, free_after, losses, elsewhere)
        locked = self._victims.locked
        for row in np.unique(self._victims.node[locked[np.isin(locked, free_after.at)]])[
            :LOCKED_MAX
        ].tolist():
            yield EvictionDomain(
                self._for, free_after, self._losses_on(free_after, elsewhere is not None, row), elsewhere
            )

    @cached_property
    def _homes(self) -> tuple[Column, Column]:
        """The victims in the order of their domains, and where each domain begins."""
        home = self._domain[self._free_after.row]
        order = np.argsort(home, kind="stable")
        return np.searchsorted(home[order], np.arange(self._tree.size(self._level) + 1)), order

    def _losses_on(self, free_after: FreeAfter, is_everywhere: bool, before_all: int = -1) -> Column:
        """What each leaving means, if gangs give up members where that makes room for others; one row before all."""
        use = np.full(len(self._victims), int(is_everywhere), dtype=np.int64)
        if len(self._victims.spare):
            here = np.flatnonzero(self._victims.is_spare[free_after.at])
            use[free_after.at[here]] += free_after.use_of(here)
            use[(self._victims.node == before_all) & (use > 0)] += use.max()
        return self._victims.losses(use)

    def _worked_out(self, elsewhere: Column | None, is_own_only: bool = False) -> Iterator[EvictionPlan]:
        best = tried = 0
        effort = 0.0
        for domain, fewest in self._in_order():
            if effort > (EFFORT_MAX if tried else MISSES_MAX) or (
                tried and (tried == DOMAINS_MAX or fewest > best)
            ):
                return
            found: list[EvictionPlan] = []
            for candidate in self._candidates(domain, elsewhere if is_own_only else None, elsewhere):
                found = list(candidate.plans())
                effort += candidate.effort
                if found:
                    break
            if found:
                broken = min(plan.price.broken for plan in found)
                best = min(best, broken) if tried else broken
                tried += 1
                yield from found

    def _in_order(self) -> Iterator[tuple[int, int]]:
        """(domain, fewest jobs that have to give way) of every domain that could hold the unit, the best first."""
        size = self._tree.size(self._level)
        could = np.ones(size, dtype=np.bool_)
        spare = np.zeros(size, dtype=np.int64)
        for slots, part in zip(self._most, self._for.needed, strict=True):
            total = self._summed(slots, self._domain, size)
            could &= total >= part.need
            spare += total
        if (pinned := self._for.pinned) is not None and self._level == self._for.rules.top:
            could &= np.isin(np.arange(size), list(pinned)) & (len(pinned) == 1)
        domains = np.flatnonzero(could)
        if len(domains) <= 1:
            yield from ((int(domain), 0) for domain in domains)
            return
        fewest, urgency = self._bounds(size)
        place = self._tree.place if self._level == self._tree.node_level else np.arange(size)
        order = np.lexsort((place[domains], spare[domains], urgency[domains], fewest[domains]))
        yield from zip(domains[order].tolist(), fewest[domains[order]].tolist(), strict=True)

    def _bounds(self, size: int) -> tuple[Column, Column]:
        """For every domain: how many jobs have to be broken at the least, and the sum of their priorities."""
        free_after, measure, victims = self._free_after, self._measure, self._victims
        soft = (self._loss == Loss.PROMISE) | (self._loss == Loss.SURPLUS)
        item = np.where(self._loss == Loss.WORK, victims.job[free_after.at], -1)
        items, rows, amounts = free_after.pairs(item)
        free = free_after.free(soft)
        now = measure.share(free, self._most)
        gain = measure.share(free[:, rows] + amounts, [most[rows] for most in self._most]) - now[rows]
        missing = len(self._most) - np.bincount(self._domain, now, minlength=size)
        domain, job, gains = self._domain[rows], items, gain.astype(np.float64)
        if self._level < self._tree.node_level:
            width = max(1, victims.jobs)
            keys, inverse = np.unique(shortened(domain * width + items), return_inverse=True)
            domain, job = keys // width, keys % width
            gains = np.bincount(inverse, gain, minlength=len(keys)).astype(np.float64)
        order = np.lexsort((-gains, domain))
        domain, gains, job = domain[order], gains[order], job[order]
        needed = before(domain, gains) < missing[domain] - 1e-9
        fewest = np.bincount(domain[needed], minlength=size)
        urgency = np.bincount(domain[needed], victims.priority[job[needed]], minlength=size)
        return fewest, urgency.astype(np.int64)

    @staticmethod
    def _summed(slots: Column, domain: Column, size: int) -> Column:
        total: Column = np.bincount(domain, slots, minlength=size).astype(np.int64)
        return total
