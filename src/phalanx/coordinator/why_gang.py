"""Why a gang finds no room: the verdict of the code that places it, the slots of every domain, and what nodes say.

Everything is tried in a draft on the live columns, which is undone before this returns.
"""

from __future__ import annotations

from msgspec import Struct

from phalanx.api.schema.jobs import DomainSlots
from phalanx.core.cluster.gangs import GangState
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.explain import fixes
from phalanx.core.explain.never import gang_never
from phalanx.core.explain.nodes import Change
from phalanx.core.explain.reserved import held_back
from phalanx.core.explain.trial import Trials
from phalanx.core.model.job import Job
from phalanx.core.model.plan import Policy, Snapshot
from phalanx.core.model.queue import Queues
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.table import NodeTable
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.gang.place import place_gang
from phalanx.core.placement.preempt.make_room import make_room


class GangVerdict(Struct, frozen=True):
    """What stands in a gang's way, the dominant reason first; nothing if it would be placed now."""

    reasons: list[Reason]
    needed: int
    domains: list[DomainSlots]


def gang_verdict(snapshot: Snapshot, unit: GangState, policy: Policy) -> GangVerdict:
    """Try to place the gang as it would be placed now, and with no quota in the way."""
    needed = sum(each.need for each in unit.wanted())
    room = quota = _tried(snapshot, unit)
    if unit.job.queue in snapshot.queues.quotas:
        room = _tried(_without_quotas(snapshot), unit)
    found = sorted([no for no in (room, quota) if no is not None], key=lambda no: no.tier)
    if room is not None and room.tier == Tier.CAPACITY:
        found += _nobody_to_evict(snapshot, unit, policy)
    if not found:
        kept = held_back(snapshot, unit, policy)
        found = [] if kept is None else [kept]
    found = [no for number, no in enumerate(found) if no.code not in {each.code for each in found[:number]}]
    return GangVerdict(found, needed, [] if room is None else domains_of(snapshot.nodes, room))


def change_to_fit(nodes: NodeTable, job: Job) -> Change | None:
    """The nearest change of what a gang asks for with which it could ever run here; it was tried."""
    return fixes.other_gang(
        job,
        nodes.topology,
        lambda changed: never(nodes, changed) is None,
        "would fit",
    )


def change_to_start(
    state: ClusterState, snapshot: Snapshot, unit: GangState, trials: Trials
) -> Change | None:
    """The nearest change with which it would start now: of what it asks for, or of what is in its way."""
    with Draft(snapshot) as draft:
        found = None
        if not unit.bound():  # a smaller gang would be another one, and some of this one run already
            found = fixes.other_gang(
                unit.job,
                snapshot.nodes.topology,
                lambda changed: fixes.fits(draft, fixes.whole_unit(changed)) and trials.start(changed),
                "would start now",
            )
        return found or fixes.other_cluster(state, draft, unit)


def domains_of(nodes: NodeTable, no: Reason) -> list[DomainSlots]:
    """The slots of every domain that a reason counted, the most first."""
    slots: object = no.numbers.get("domains")
    if not isinstance(slots, dict):
        return []
    layer = str(no.numbers.get("layer", ""))
    tree = nodes.tree
    level = tree.level(layer)
    sizes = {}
    if level is not None:
        sizes = {
            "/".join(tree.path(level, number)): len(tree.rows(level, number))
            for number in range(tree.size(level))
        }
    return [
        DomainSlots(layer, path.split("/") if path else [], count, sizes.get(path, 0))
        for path, count in slots.items()
    ]


def never(nodes: NodeTable, job: Job) -> Reason | None:
    """Why a job could not start whole even if nothing else ran; None for one that is no gang."""
    gang = JobState(job, 0, [0] * 6).gang
    return None if gang is None else gang_never(nodes, gang)


def _tried(snapshot: Snapshot, unit: GangState) -> Reason | None:
    with Draft(snapshot) as draft:
        found = place_gang(draft, unit)
    return found if isinstance(found, Reason) else None


def _nobody_to_evict(snapshot: Snapshot, unit: GangState, policy: Policy) -> list[Reason]:
    """Why no room is made for it either."""
    with Draft(snapshot) as draft:
        found = make_room(draft, unit, policy)
    return [found] if isinstance(found, Reason) else []


def _without_quotas(snapshot: Snapshot) -> Snapshot:
    free = Queues()
    free.usage = snapshot.queues.usage
    nodes, waiting, tenants = snapshot.nodes, snapshot.waiting, snapshot.tenants
    return Snapshot(nodes, waiting, snapshot.gain, tenants, free, snapshot.now, snapshot.memory)
