"""Each law can fail: an engine with a planted mistake is found within a few seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from phalanx.core.explain.evictions import make_room_or_why
from phalanx.core.explain.shortage import place_gang
from phalanx.core.model.job import Gang
from phalanx.core.model.plan import GangPlacement, Policy
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.tenants import Tenant
from phalanx.core.model.topology import Topology
from phalanx.core.placement.draft import Draft, Mark
from tests.property.placement_cases import a_case
from tests.property.placement_laws import Trial
from tests.property.placement_stage import SmallGang, SmallUnit

SEEDS = range(300)


def tenants(draft: Draft) -> Iterator[Tenant]:
    for tenant in draft.tenants.tenants:
        if tenant is not None and tenant.key not in draft.gone:
            yield tenant


def enlisted_anew(draft: Draft, mark: Mark, gang_placement: GangPlacement, unit: SmallUnit) -> GangPlacement:
    """Another gang placement instead of the last one, as if the engine had chosen it."""
    draft.rollback(mark)
    for tenant in list(tenants(draft)):
        if tenant.key in gang_placement.victims or (
            tenant.is_promise and tenant.job in gang_placement.displaced
        ):
            draft.evict(tenant)
    for member in gang_placement.members:
        draft.take(draft.nodes.rows[member.node], member.grant, unit.job.queue_user)
    draft.enlist(gang_placement)
    return gang_placement


def changed(unit: SmallGang, **facts: Any) -> SmallGang:
    return SmallGang(**{**vars(unit), **facts})


def one_too_few(draft: Draft, unit: SmallGang) -> GangPlacement | Reason:
    asks = tuple(replace(each, need=max(0, each.need - 1), most=max(0, each.most - 1)) for each in unit.asks)
    return place_gang(draft, changed(unit, asks=asks))


def without_rules(draft: Draft, unit: SmallGang) -> GangPlacement | Reason:
    return place_gang(draft, changed(unit, job=replace(unit.job, gang=Gang())))


def on_closed_nodes(draft: Draft, unit: SmallGang) -> GangPlacement | Reason:
    table = draft.nodes
    closed = [name for name in table.names if not table.is_open(name)]
    for name in closed:
        table.set_open(name, True)
    try:
        return place_gang(draft, unit)
    finally:
        for name in closed:
            table.set_open(name, False)


def blind_to_layers(draft: Draft, unit: SmallGang) -> GangPlacement | Reason:
    declared = draft.nodes.topology
    draft.nodes.set_topology(Topology(()))
    try:
        return place_gang(draft, changed(unit, job=replace(unit.job, gang=Gang())))
    finally:
        draft.nodes.set_topology(declared)


def ranks_by_chance(draft: Draft, unit: SmallGang) -> GangPlacement | Reason:
    mark = draft.mark()
    answer = place_gang(draft, unit)
    if isinstance(answer, Reason) or len(unit.asks) > 1 or len(answer.members) < 3:
        return answer
    first, second, *others = answer.members
    swapped = (replace(first, position=second.position), replace(second, position=first.position), *others)
    return enlisted_anew(draft, mark, replace(answer, members=swapped), unit)


def never_any_room(draft: Draft, unit: SmallGang) -> GangPlacement | Reason:
    return Reason("WaitingCapacity", Tier.CAPACITY, "nothing fits")


def traces_of_a_no(draft: Draft, unit: SmallGang) -> GangPlacement | Reason:
    answer = place_gang(draft, unit)
    if isinstance(answer, Reason) and (tenant := next(iter(tenants(draft)), None)):
        draft.evict(tenant)
    return answer


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (one_too_few, "wanted"),
        (without_rules, "must-gather violated"),
        (on_closed_nodes, "closed node used"),
        (blind_to_layers, "not the lowest layer"),
        (ranks_by_chance, "ranks are scattered"),
        (never_any_room, "unschedulable though"),
        (traces_of_a_no, "left its traces"),
    ],
)
def test_a_mistake_in_placing_is_found(
    mistake: Callable[[Draft, SmallGang], GangPlacement | Reason], words: str
):
    complaint = ""
    for seed in SEEDS:
        found = Trial(a_case(seed), mistake).complaints()
        complaint = next((each for each in found if words in each), "")
        if complaint:
            break
    assert complaint


def one_victim_more(draft: Draft, unit: SmallUnit, policy: Policy) -> GangPlacement | Reason:
    mark = draft.mark()
    answer = make_room_or_why(draft, unit, policy)
    if isinstance(answer, Reason) or not answer.victims:
        return answer
    nodes = {member.node for member in answer.members}
    for tenant in tenants(draft):
        if (
            tenant.key[0] in nodes
            and tenant.priority < unit.job.priority
            and tenant.evictable_at <= draft.now
            and tenant.job not in draft.tenants.needed
        ):
            more = replace(answer, victims=(*answer.victims, tenant.key))
            return enlisted_anew(draft, mark, more, unit)
    return answer


@contextmanager
def _swapped(draft: Draft, needed: dict[str, tuple[int, ...]]) -> Iterator[None]:
    true, draft.tenants.needed = draft.tenants.needed, needed
    try:
        yield
    finally:
        draft.tenants.needed = true


def gangs_like_any_other(draft: Draft, unit: SmallUnit, policy: Policy) -> GangPlacement | Reason:
    with _swapped(draft, {}):
        return make_room_or_why(draft, unit, policy)


def minimum_off_by_one(draft: Draft, unit: SmallUnit, policy: Policy) -> GangPlacement | Reason:
    less = {job: tuple(max(0, each - 1) for each in needed) for job, needed in draft.tenants.needed.items()}
    with _swapped(draft, less):
        return make_room_or_why(draft, unit, policy)


def equals_too(draft: Draft, unit: SmallUnit, policy: Policy) -> GangPlacement | Reason:
    higher = replace(unit.job, priority=unit.job.priority + 1)
    return make_room_or_why(draft, type(unit)(**{**vars(unit), "job": higher}), policy)


def never_evicts(draft: Draft, unit: SmallUnit, policy: Policy) -> GangPlacement | Reason:
    return Reason("WaitingCapacity", Tier.CAPACITY, "nobody may leave")


def hides_its_victims(draft: Draft, unit: SmallUnit, policy: Policy) -> GangPlacement | Reason:
    answer = make_room_or_why(draft, unit, policy)
    return answer if isinstance(answer, Reason) else replace(answer, victims=answer.victims[1:])


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (one_victim_more, "too many victims"),
        (gangs_like_any_other, "left under its minimum"),
        (minimum_off_by_one, "left under its minimum"),
        (equals_too, "may not be evicted"),
        (never_evicts, "no room made though"),
        (hides_its_victims, "are not all free"),
    ],
)
def test_a_mistake_in_evicting_is_found(
    mistake: Callable[[Draft, SmallUnit, Policy], GangPlacement | Reason], words: str
):
    complaint = ""
    for seed in SEEDS:
        found = Trial(a_case(seed, crowded=True), place_gang, mistake).complaints()
        complaint = next((each for each in found if words in each), "")
        if complaint:
            break
    assert complaint
