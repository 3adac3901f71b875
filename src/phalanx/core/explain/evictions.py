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
    if victims.protected:
        text += f"; {plural(victims.protected, 'other task')} of lower priority may not be evicted"
    numbers = {
        "wanted": preemption.count, "best": best, "layer": layer, "domain": list(domain), "victims": len(victims),
        "protected": victims.protected,
    }  # fmt: skip
    return Reason("EvictionsNotEnough", Tier.CAPACITY, text, numbers)


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
