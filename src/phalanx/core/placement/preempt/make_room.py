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

import numpy as np
from msgspec.structs import replace

from phalanx.core.model import reason
from phalanx.core.model.job import Job
from phalanx.core.model.plan import GangPlacement, Placement, Policy
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.tenants import Tenant, TenantKey
from phalanx.core.model.waiting import Unit
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.gang.place import seat
from phalanx.core.placement.gang.shapes import admitted
from phalanx.core.placement.preempt.candidates import EvictionDomains
from phalanx.core.placement.preempt.eviction_plan import EvictionPlan
from phalanx.core.placement.preempt.goal import Goal
from phalanx.core.placement.preempt.victims import Victims


def make_room(draft: Draft, unit: Unit, policy: Policy, *, count: int = 1) -> GangPlacement | Reason:
    """Evict in the draft whoever has to leave for the unit and take its members' grants, or say why not.

    Of a group whose tasks are placed one by one, room is made for the first `count` that are ready. On a no the
    draft is as it was before.
    """
    if not policy.evicts:
        return _forbidden("This cluster evicts nobody for the sake of others (policy)")
    if not unit.job.may_evict:
        return _forbidden("The job says that it never takes a place from anybody")
    mark = draft.mark()
    leaving = _on_their_way(draft, unit.job)
    for tenant in leaving:
        draft.evict(tenant)
    found = _made_room(draft, unit, count, leaving)
    if isinstance(found, Reason):
        draft.rollback(mark)
    return found


def _made_room(draft: Draft, unit: Unit, count: int, leaving: list[Tenant]) -> GangPlacement | Reason:
    aim = Goal(draft, unit, count)
    if not aim.needed or getattr(unit, "is_surplus", False):
        return _forbidden("It has every member that it needs, and nobody is evicted for more")
    victims = Victims(draft, aim.gang.job)
    if (no := _hopeless(aim, victims)) is not None:
        return no
    sites = EvictionDomains(aim, victims)
    for clearing in sorted(sites.clearings(), key=lambda each: each.key):
        if (gang_placement := _enlisted(draft, aim, clearing, sites.trigger(clearing), leaving)) is not None:
            return gang_placement
    return _not_enough(aim, victims, sites)


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
    draft: Draft, aim: Goal, clearing: EvictionPlan, trigger: int, leaving: list[Tenant]
) -> GangPlacement | None:
    """Carry it out in the draft."""
    mark = draft.mark()
    for tenant in sorted(clearing.leaving, key=lambda each: not each.is_promise):
        draft.evict(tenant)
    members = seat(draft, aim.gang, aim.shapes, clearing.seats)
    if members is None:
        draft.rollback(mark)
        return None
    victims = sorted(tenant.key for tenant in clearing.leaving if not tenant.is_promise)
    displaced = sorted({tenant.job for tenant in clearing.leaving if tenant.is_promise})
    awaited = _awaited(draft, aim, members, leaving)
    gang_placement = GangPlacement(
        aim.gang.job.id, tuple(members), tuple(victims), tuple(displaced), trigger, awaited
    )
    draft.enlist(gang_placement)
    return gang_placement


def _awaited(
    draft: Draft, aim: Goal, members: list[Placement], leaving: list[Tenant]
) -> tuple[TenantKey, ...]:
    """Those on their way out without whose places, or whose quota, the members could not start; the others stay."""
    devices: dict[int, set[int]] = {}
    for each in members:
        devices.setdefault(draft.nodes.rows[each.node], set()).update(each.grant.devices)
    queue = aim.gang.job.queue
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


def _hopeless(aim: Goal, victims: Victims) -> Reason | None:
    """Why it need not be tried."""
    if aim.rules.top is None:
        unknown = next(rule.layer for rule in aim.rules.unknown if rule.must)
        return reason.layer_unknown(unknown, aim.draft.nodes.tree.topology.names())
    if not len(victims):
        text = "Nobody of lower priority holds a place"
        if victims.protected:
            text = f"All {victims.protected} places of lower priority are protected from eviction for now"
        return Reason("NoVictims", Tier.CAPACITY, text, {"victims": 0, "protected": victims.protected})
    queue = aim.gang.job.queue
    if not aim.quota(map(victims.tenant, victims.of_queue(queue))).holds():
        no = admitted(aim.draft.queues, queue, aim.needed)
        assert isinstance(no, Reason)
        return no
    return None


def _not_enough(aim: Goal, victims: Victims, sites: EvictionDomains) -> Reason:
    """Everybody would leave in vain."""
    best, domain = sites.best()
    layer = aim.draft.nodes.tree.layer(aim.rules.top or 0)
    where = f" in {layer} {'/'.join(domain)}, the best one" if domain else ""
    text = (
        f"Even if all {len(victims)} tasks of lower priority that may be evicted left, {best} of {aim.count} members"
        f" would find room{where}"
    )
    if best >= aim.count:
        text = (
            f"Even if all {len(victims)} tasks of lower priority that may be evicted left, the {aim.count} members"
            " would not find room beside each other as the rules ask"
        )
    numbers = {
        "wanted": aim.count, "best": best, "layer": layer, "domain": list(domain), "victims": len(victims),
        "protected": victims.protected,
    }  # fmt: skip
    return Reason("EvictionsNotEnough", Tier.CAPACITY, text, numbers)


def _forbidden(text: str) -> Reason:
    return Reason("EvictionForbidden", Tier.POLICY, text)
