"""The nearest fix for work that cannot start: what to ask for instead, or what to do. Each is tried before it is told.

Changes are tried with the scheduler's own code in a draft, the smallest loss first: other rules for where members
stand, fewer members that are needed, less for each of them, a node that is taken back, another job that ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

from msgspec import structs

from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.explain.nodes import Change
from phalanx.core.model import reason
from phalanx.core.model.gang import Gather
from phalanx.core.model.job import Group, Job
from phalanx.core.model.plan import GangPlacement
from phalanx.core.model.quantity import format_bytes
from phalanx.core.model.topology import Topology
from phalanx.core.model.waiting import Unit, WaitingGang, WaitingGroup
from phalanx.core.placement.best_node import BestNode
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.gang.place import place_gang

TRIES = 32  # of each kind
MIB = 1 << 20
Holds = Callable[[Job], bool]


def fits(draft: Draft, unit: Unit) -> bool:
    """Whether there is room for a whole gang, or for one task of a group. The draft is left as it was."""
    mark = draft.mark()
    try:
        if unit.is_gang:
            return isinstance(place_gang(draft, cast(WaitingGang, unit)), GangPlacement)
        request = cast(WaitingGroup, unit).request
        return (
            draft.queues.room(unit.job.queue, request) != 0
            and BestNode(draft.nodes, request).best() is not None
        )
    finally:
        draft.rollback(mark)


def other_gang(job: Job, topology: Topology, holds: Holds, when: str) -> Change | None:
    """The smallest change of what a gang asks for that would let it start."""
    for text, fields, changed in _changes(job, topology, holds):
        if holds(changed):
            return Change(f"it {when} {text}", fields)
    return None


def other_cluster(state: ClusterState, draft: Draft, unit: Unit) -> Change | None:
    """A drained node that would make room if it were taken back, or a job whose end would."""
    return _taken_back(state, draft, unit) or _end_of_another(draft, unit)


def whole_unit(job: Job) -> Unit:
    """A job as somebody who waits, for a try."""
    return JobState(job, 0, [0] * 6).units[0]


_Changes = Iterator[tuple[str, dict[str, object], Job]]


def _changes(job: Job, topology: Topology, holds: Holds) -> _Changes:
    yield from _other_layers(job, topology)
    yield from _fewer_members(job, holds)
    yield from _smaller_members(job, holds)


def _other_layers(job: Job, topology: Topology) -> _Changes:
    """A rule that must be kept, for a wider layer, and at last for none."""
    assert job.gang is not None
    names = topology.names()
    for rule in [each for each in job.gang.gather if each.must]:
        for layer in _instead_of(rule.layer, names):
            wider = _with_rule(job, rule, Gather(layer, True, rule.multiple))
            yield f"in one {layer} instead of one {rule.layer}", _gather_fields(wider), wider
        free = _with_rule(job, rule, None)
        yield f"if its members need not stand in one {rule.layer}", _gather_fields(free), free


def _instead_of(layer: str, names: list[str]) -> list[str]:
    """The layers around one, the nearest first; if there is none of that name, from the one that may be meant."""
    if layer in names:
        return names[1 : names.index(layer)][::-1]
    near = reason.layer_unknown(layer, names).numbers["nearest"]
    return names[1 : names.index(near) + 1][::-1] if near else []


def _fewer_members(job: Job, holds: Holds) -> _Changes:
    """A gang that needs fewer of one group, as many as there is room for."""
    for number, group in enumerate(job.groups):
        fewer = partial(_with_min, job, number)
        if count := _most(group.needed - 1, fewer, holds):
            of = f" of group {group.name}" if len(job.groups) > 1 else ""
            fields: dict[str, object] = {"min": count} if len(job.groups) == 1 else {}
            yield f"with a minimum of {count}{of} instead of {group.needed}", fields, fewer(count)


def _smaller_members(job: Job, holds: Holds) -> _Changes:
    """Members that ask for less of one thing, for as much as there is room for."""
    for field, word, unit in (("gpus", "GPUs", 1), ("cores", "cores", 1), ("memory_bytes", "memory", MIB)):
        asked = max(getattr(group.request, field) for group in job.groups)
        smaller = partial(_capped, job, field, unit)
        if count := _most(asked // unit - 1, smaller, holds):
            value = count * unit
            said = f"{value} {word} each instead of {asked}"
            if field == "memory_bytes":
                said = f"{format_bytes(value)} of memory each"
            at_most = "" if len(job.groups) == 1 else "at most "
            yield f"with {at_most}{said}", _fields(job, field, value), smaller(count)


def _most(limit: int, make: Callable[[int], Job], holds: Holds) -> int:
    """The largest number up to a limit whose job holds, if with one that holds every smaller one does; 0: none."""
    if limit < 1 or not holds(make(1)):
        return 0
    low, high = 1, limit + 1  # it holds at `low`, and perhaps not at `high`
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(make(middle)) else (low, middle)
    return low


def _fields(job: Job, field: str, value: int) -> dict[str, object]:
    """The change in the words of a job file, where one word says it."""
    if len(job.groups) > 1:
        return {}
    return {"memory": format_bytes(value)} if field == "memory_bytes" else {field: value}


def _taken_back(state: ClusterState, draft: Draft, unit: Unit) -> Change | None:
    drained = [name for name, node in state.nodes.items() if node.drain_reason is not None and node.connected]
    for name in drained[:TRIES]:
        draft.nodes.set_open(name, True)
        try:
            enough = fits(draft, unit)
        finally:
            draft.nodes.set_open(name, False)
        if enough:
            why = state.nodes[name].drain_reason
            return Change(
                f"it would start now if {name} took work again ({why})", {}, f"phalanx node resume {name}"
            )
    return None


def _end_of_another(draft: Draft, unit: Unit) -> Change | None:
    """The job whose end alone makes room: the fewer places it holds and the less urgent it is, the sooner named."""
    tenants = draft.tenants
    holders = sorted(
        (len(places), next(iter(places.values())).priority, id)
        for id, places in tenants.of_job.items()
        if id != unit.job.id
    )
    for _, _, id in holders[:TRIES]:
        mark = draft.mark()
        for tenant in tenants.of_job[id].values():
            if tenant.key not in draft.gone:
                draft.evict(tenant)
        enough = fits(draft, unit)
        draft.rollback(mark)
        if enough:
            return Change(f"it starts when {id} ends")
    return None


def _with_rule(job: Job, old: Gather, new: Gather | None) -> Job:
    assert job.gang is not None
    others = [
        rule for rule in job.gang.gather if rule is not old and (new is None or rule.layer != new.layer)
    ]
    gather = tuple(others if new is None else [*others, new])
    return structs.replace(job, gang=structs.replace(job.gang, gather=gather))


def _gather_fields(job: Job) -> dict[str, object]:
    assert job.gang is not None
    return {"gather": [structs.asdict(rule) for rule in job.gang.gather]}


def _with_min(job: Job, number: int, count: int) -> Job:
    return _with_group(job, number, structs.replace(job.groups[number], min=count))


def _capped(job: Job, field: str, unit: int, count: int) -> Job:
    """The job with nobody asking for more of one thing than so many units."""
    value = count * unit
    groups = tuple(
        structs.replace(
            group,
            request=structs.replace(group.request, **{field: min(value, getattr(group.request, field))}),
        )
        for group in job.groups
    )
    return structs.replace(job, groups=groups)


def _with_group(job: Job, number: int, group: Group) -> Job:
    return structs.replace(job, groups=(*job.groups[:number], group, *job.groups[number + 1 :]))
