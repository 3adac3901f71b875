"""Which tenants to ask to leave, so that a more urgent unit can start whole. The README draws the steps.

A job of lower priority may hold a promise whose victims are still leaving. Its promise can be taken over like any
other, and then the room of those who leave belongs to the job that took it: they are counted as gone, and waited for.

Nobody is evicted unless every needed member fits, and nobody for members beyond those. Layers of must rules are kept;
for all others a domain that costs fewer jobs wins over a tighter one (`EvictionPlan.key` has the whole order).
Evictions and grants are one gang placement in the draft: all of it happens, or none.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from phalanx.core.model.job import Job
from phalanx.core.model.plan import GangPlacement, Placement, Policy
from phalanx.core.model.tenants import Tenant, TenantKey
from phalanx.core.model.tree import Column, before
from phalanx.core.model.waiting import Ask, Unit
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.gang.grants import take_within
from phalanx.core.placement.preempt.eviction_plan import EvictionDomain, EvictionPlan, Preemption
from phalanx.core.placement.preempt.free import FreeAfter, Measure, shortened
from phalanx.core.placement.preempt.victims import Loss, Victims

DOMAINS_MAX = 8  # how many domains are worked out in full,
EFFORT_MAX = 10.0  # as long as that is quick (in about as many milliseconds),
MISSES_MAX = 60.0  # and how long to go on if none of them holds the unit after all
STEP_TASKS_MAX = 64  # for how many tasks of one group others are asked to leave in one step
LOCKED_MAX = 8  # nodes that are tried first for members of gangs that cannot leave whole


class NoEvictions(Struct, frozen=True):
    """Nobody is asked to leave for a unit: it is not allowed, there are no victims, or their room is not enough."""

    why: Literal["disabled", "may not", "has all", "no layer", "no victims", "no quota", "not enough"]
    preemption: Preemption | None = None
    victims: Victims | None = None
    domains: EvictionDomains | None = None


def make_room(draft: Draft, unit: Unit, policy: Policy, *, count: int = 1) -> GangPlacement | NoEvictions:
    """Evict in the draft the tenants that have to leave for the unit and take its members' grants.

    Of a group whose tasks are placed one by one, room is made for the first `count` that are ready. On a no the
    draft is as it was before.
    """
    if not policy.evicts or not unit.job.may_evict:
        return NoEvictions("may not" if policy.evicts else "disabled")
    mark = draft.mark()
    leaving = _on_their_way(draft, unit.job)
    for tenant in leaving:
        draft.evict(tenant)
    found = _made_room(draft, unit, count, leaving)
    if isinstance(found, NoEvictions):
        draft.rollback(mark)
    return found


def make_most_room(draft: Draft, unit: Unit, policy: Policy) -> GangPlacement | NoEvictions:
    """Room for a whole gang; of a group, for many tasks at once if that can be, else for fewer, at last for one."""
    ready = 0 if unit.is_gang else sum(1 for _ in unit.ready(STEP_TASKS_MAX))
    for count in (ready, ready // 4):
        if count > 1 and isinstance(found := make_room(draft, unit, policy, count=count), GangPlacement):
            return found
    return make_room(draft, unit, policy)


def _made_room(draft: Draft, unit: Unit, count: int, leaving: list[Tenant]) -> GangPlacement | NoEvictions:
    preemption = Preemption(draft, Ask(unit, count))
    if not preemption.needed or preemption.ask.is_surplus:
        return NoEvictions("has all")
    if preemption.rules.top is None:
        return NoEvictions("no layer", preemption)
    victims = Victims(draft, preemption.ask.job)
    if not len(victims):
        return NoEvictions("no victims", preemption, victims)
    if not preemption.quota(map(victims.tenant, victims.of_queue(preemption.ask.job.queue))).holds():
        return NoEvictions("no quota", preemption, victims)
    domains = EvictionDomains(preemption, victims)
    for plan in sorted(domains.plans(), key=lambda each: each.key):
        if (gang_placement := _enlisted(draft, preemption, plan, domains.trigger(plan), leaving)) is not None:
            return gang_placement
    return NoEvictions("not enough", preemption, victims, domains)


def _on_their_way(draft: Draft, job: Job) -> list[Tenant]:
    """The tenants that are leaving a node on which a promise stands that the job could take over."""
    tenants = draft.tenants
    here = draft.here
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
    members = take_within(draft, preemption.ask, preemption.parts, plan.layout)
    if not isinstance(members, list):
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


class EvictionDomains:
    """The domains of the layer that has to hold all of the unit."""

    def __init__(self, preemption: Preemption, victims: Victims) -> None:
        self._for = preemption
        self._victims = victims
        self._tree = preemption.draft.nodes.tree
        self._level = preemption.top
        self._measure = Measure(preemption.draft.nodes, preemption.needed, victims)
        self.free_after = FreeAfter.over(
            self._measure, np.flatnonzero(preemption.draft.nodes.open), np.arange(len(victims))
        )
        self._domain = self._tree.up(self._tree.node_level, self.free_after.rows, self._level)
        self._losses = self._losses_on(self.free_after, is_everywhere=False)
        self._loss = self._losses[self.free_after.at]
        self.most = self.free_after.slots(np.ones(len(self.free_after.at), dtype=np.bool_))

    def plans(self) -> Iterator[EvictionPlan]:
        """Ways to make room in the domains that promise the most."""
        quota, (queue, user) = self._for.quota_now, self._for.ask.job.queue_user
        if quota.holds():
            yield from self._worked_out(None)
            return
        # The queue or the user holds too much: victims on the nodes should free quota as well, if that is enough.
        freeing = self._victims.of_queue(queue, user if quota.is_users_alone else None)
        mine = np.fromiter(freeing, dtype=np.int64)
        found = list(self._worked_out(mine, is_own_only=True))
        yield from found or self._worked_out(mine)

    def trigger(self, plan: EvictionPlan) -> int:
        """The position of the first member that finds no room in the same domain as long as nobody leaves."""
        row = next(row for counts in plan.layout for row, _ in counts)
        home = self._tree.up(self._tree.node_level, np.array([row]), self._level)[0]
        now = self.free_after.slots()
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
            free_after, losses = self.free_after, self._losses
        else:
            begins, by_home = self._homes
            at = self.free_after.at[by_home[begins[domain] : begins[domain + 1]]]
            if among is not None:
                at = np.intersect1d(at, among)
            free_after = FreeAfter.over(self._measure, self.free_after.rows[self._domain == domain], at)
            losses = self._losses_on(free_after, elsewhere is not None)
        yield EvictionDomain(self._for, free_after, losses, elsewhere)
        locked = self._victims.locked
        nodes = np.unique(self._victims.node[locked[np.isin(locked, free_after.at)]])
        for row in nodes[:LOCKED_MAX].tolist():
            losses = self._losses_on(free_after, elsewhere is not None, row)
            yield EvictionDomain(self._for, free_after, losses, elsewhere)

    @cached_property
    def _homes(self) -> tuple[Column, Column]:
        """The victims in the order of their domains, and where each domain begins."""
        home = self._domain[self.free_after.row]
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
        for slots, part in zip(self.most, self._for.needed, strict=True):
            total = np.bincount(self._domain, slots, minlength=size).astype(np.int64)
            could &= total >= part.need
            spare += total
        if (pinned := self._for.pinned) is not None and self._level == self._for.rules.top:
            could &= np.isin(np.arange(size), pinned) & (len(pinned) == 1)
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
        free_after, measure, victims = self.free_after, self._measure, self._victims
        soft = (self._loss == Loss.PROMISE) | (self._loss == Loss.SURPLUS)
        item = np.where(self._loss == Loss.WORK, victims.job[free_after.at], -1)
        items, rows, amounts = free_after.pairs(item)
        free = free_after.free(soft)
        now = measure.share(free, self.most)
        gain = measure.share(free[:, rows] + amounts, [most[rows] for most in self.most]) - now[rows]
        missing = len(self.most) - np.bincount(self._domain, now, minlength=size)
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
