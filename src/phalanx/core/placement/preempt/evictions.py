"""Why each of them has to leave, for people: what `phalanx plan` and the story of a victim tell.

Asked of a gang placement and the snapshot that it was decided on; nothing is decided here.
"""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from phalanx.core.model.ids import JobId
from phalanx.core.model.job import Job
from phalanx.core.model.plan import GangPlacement, Snapshot
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.tenants import Tenant, TenantKey, Tenants
from phalanx.core.placement.preempt.victims import breaks, lost_work


class Eviction(Struct, frozen=True):
    """One place that is taken back. `key` is that of the lane, or of the promise."""

    key: TenantKey
    job: JobId
    node: str
    reason: Reason


def evictions(gang_placement: GangPlacement, preemptor: Job, snapshot: Snapshot) -> list[Eviction]:
    """Everybody who leaves for a gang placement, in the order of the keys; promises last."""
    tenants = snapshot.tenants
    lanes = [tenant for key in gang_placement.victims if (tenant := tenants.get(key)) is not None]
    promises = [
        tenant
        for job in gang_placement.displaced
        for tenant in tenants.of_job.get(job, {}).values()
        if tenant.is_promise
    ]
    gone: dict[JobId, Counter[int]] = {}
    for tenant in lanes:
        gone.setdefault(tenant.job, Counter())[tenant.group] += 1
    return [
        Eviction(
            tenant.key,
            tenant.job,
            snapshot.nodes.names[tenant.node_row],
            _reason(tenant, preemptor, tenants, gone.get(tenant.job, Counter()), snapshot.now),
        )
        for tenant in (*lanes, *sorted(promises, key=lambda each: each.key))
    ]


def _reason(tenant: Tenant, preemptor: Job, tenants: Tenants, gone: Counter[int], now: float) -> Reason:
    """What the job of one victim loses, and to whom."""
    numbers = {
        "priority": tenant.priority,
        "preemptor": preemptor.id,
        "preemptor_priority": preemptor.priority,
        "lost": lost_work(tenant, now),
    }
    whose = f"priority {tenant.priority}, below {preemptor.priority} of {preemptor.id}"
    if tenant.is_promise:
        text = f"A place was kept for {tenant.job} ({whose}); nothing runs there yet"
        return Reason("PromiseTakenBack", Tier.POLICY, text, numbers)
    runs = f"it has held its place for {max(0.0, now - tenant.since):.0f} s"
    if tenant.job not in tenants.needed:
        text = f"{tenant.job} ({whose}) loses this task; {runs}"
        return Reason("TaskEvicted", Tier.POLICY, text, numbers)
    if breaks(tenants, tenant.job, gone):
        text = f"{tenant.job} ({whose}) leaves whole, since it would fall under its minimum; {runs}"
        return Reason("GangEvicted", Tier.POLICY, text, numbers)
    text = f"{tenant.job} ({whose}) can do without this member; {runs}"
    return Reason("SurplusEvicted", Tier.POLICY, text, numbers)
