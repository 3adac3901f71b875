"""Why no room is made for a unit by evictions: they are not allowed, there are no victims, or these are not enough."""

from __future__ import annotations

import numpy as np

from phalanx.core.model import reason
from phalanx.core.model.amounts import plural
from phalanx.core.model.plan import GangPlacement, Policy
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.waiting import Unit
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.preempt.eviction_plan import Preemption
from phalanx.core.placement.preempt.make_room import EvictionDomains, NoEvictions, make_room
from phalanx.core.placement.preempt.victims import Victims

JOBS_SHOWN = 3
_FORBIDDEN = {
    "disabled": "Preemption is disabled in this cluster",
    "may not": "The job may not preempt others",
    "has all": "It has all members that it needs; nothing is preempted for more",
}


def make_room_or_why(draft: Draft, unit: Unit, policy: Policy) -> GangPlacement | Reason:
    """Make room in the draft (`make_room`), or say why that would not help."""
    found = make_room(draft, unit, policy)
    return _reason(found) if isinstance(found, NoEvictions) else found


def _reason(no: NoEvictions) -> Reason:
    if (text := _FORBIDDEN.get(no.why)) is not None:
        return Reason("EvictionForbidden", Tier.POLICY, text)
    preemption, victims = no.preemption, no.victims
    assert preemption is not None
    if no.why == "no layer":
        unknown = next(rule.layer for rule in preemption.rules.unknown if rule.must)
        return reason.layer_unknown(unknown, preemption.draft.nodes.tree.topology.names())
    assert victims is not None
    if no.why == "no victims":
        text = "No task of lower priority is running"
        if victims.protected:
            are = "is" if victims.protected == 1 else "are"
            tasks = plural(victims.protected, "task")
            text = f"The {tasks} of lower priority {are} protected from preemption for now"
        return Reason("NoVictims", Tier.CAPACITY, text, {"victims": 0, "protected": victims.protected})
    if no.why == "no quota":
        refusal = preemption.draft.queues.admitted(preemption.ask.job.queue_user, preemption.needed)
        assert isinstance(refusal, Reason)
        return refusal
    assert no.domains is not None
    return _not_enough(preemption, victims, no.domains)


def _not_enough(preemption: Preemption, victims: Victims, domains: EvictionDomains) -> Reason:
    """Everybody would leave in vain."""
    best, domain = _best(preemption, domains)
    layer = preemption.draft.nodes.tree.layer(preemption.rules.top or 0)
    where = f" (in {layer} {'/'.join(domain)})" if domain else ""
    leave = f"Preempting the {plural(len(victims), 'task')} of lower priority"
    text = f"{leave} would make room for {best} of {plural(preemption.count, 'member')}{where}"
    if best >= preemption.count:
        text = f"{leave} would not make room for {plural(preemption.count, 'member')} together"
    text += _who_stays(preemption)
    numbers = {
        "wanted": preemption.count, "best": best, "layer": layer, "domain": list(domain), "victims": len(victims),
        "protected": victims.protected,
    }  # fmt: skip
    return Reason("EvictionsNotEnough", Tier.CAPACITY, text, numbers)


def _who_stays(preemption: Preemption) -> str:
    """The tasks that nobody may preempt for it: protected ones, and those that are not less urgent; with their jobs."""
    draft, job = preemption.draft, preemption.ask.job
    tenants = draft.tenants
    here = draft.here & ~tenants.promise
    here[[tenants.slots[key] for key in tenants.of_job.get(job.id, {})]] = False
    is_lower = tenants.priority < job.priority
    protected = np.flatnonzero(here & is_lower & (tenants.evictable_at > draft.now)).tolist()
    urgent = np.flatnonzero(here & ~is_lower).tolist()
    told = ""
    if protected:
        many = plural(len(protected), "other task")
        told += f"; {many} of lower priority may not be evicted ({_jobs(preemption, protected)})"
    if urgent:
        many, keep = (
            plural(len(urgent), "task"),
            "keeps its place" if len(urgent) == 1 else "keep their places",
        )
        told += f"; {many} of the same or a higher priority {keep} ({_jobs(preemption, urgent)})"
    return told


def _jobs(preemption: Preemption, slots: list[int]) -> str:
    found = (preemption.draft.tenants.tenants[slot] for slot in slots)
    ids = list(dict.fromkeys(each.job for each in found if each is not None))
    return ", ".join(ids[:JOBS_SHOWN]) + (", …" if len(ids) > JOBS_SHOWN else "")


def _best(preemption: Preemption, domains: EvictionDomains) -> tuple[int, tuple[str, ...]]:
    """How many members find room in the best domain when everybody has left, and its path."""
    tree, top = preemption.draft.nodes.tree, preemption.rules.top or 0
    total = np.zeros(tree.size(top), dtype=np.int64)
    domain = tree.up(tree.node_level, domains.free_after.rows, top)
    for slots, part in zip(domains.most, preemption.needed, strict=True):
        inside = np.bincount(domain, slots, minlength=len(total)).astype(np.int64)
        total += np.minimum(inside, part.need)
    if preemption.pinned is not None:
        total[np.isin(np.arange(len(total)), preemption.pinned, invert=True)] = 0
    if not len(total):
        return 0, ()
    at = int(total.argmax())
    return int(total[at]), tree.path(top, at)
