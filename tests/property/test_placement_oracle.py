"""The brute force itself: answers known by hand, and the same answers from an even more simple-minded search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from phalanx.core.model.job import Gather
from phalanx.core.model.resources import Device, Grant, Request, Target
from phalanx.core.model.tenants import NEVER, Tenant
from phalanx.core.model.waiting import Part
from tests.property.eviction_oracle import can_make_room, fewest_broken, keeps_gangs_whole, removals, smaller
from tests.property.placement_cases import a_case
from tests.property.placement_laws import common, rule_laws
from tests.property.placement_oracle import Counts, Errand, Picture, Search, Spot, admitted, fits
from tests.property.placement_stage import Case, SmallUnit, errand_of

LAYERS = ("cluster", "spine", "block", "node")


def a_spot(path: str, cores: int = 8, devices: int = 0, is_open: bool = True) -> Spot:
    words = tuple(path.split("/"))
    return Spot(
        words[-1], words, is_open, cores, 100, tuple(Device(index, "h100") for index in range(devices))
    )


def a_picture(*spots: Spot, tenants: tuple[Tenant, ...] = (), **needed: tuple[int, ...]) -> Picture:
    return Picture(LAYERS, spots, tenants, needed, 100.0)


def a_tenant(job: str, row: int, devices: tuple[int, ...], lane: int, **facts: object) -> Tenant:
    known: dict[str, object] = {"group": 0, "priority": 0, "evictable_at": 0.0, "is_promise": False} | facts
    return Tenant(
        key=(f"n{row}", lane), job=job, queue="default", node_row=row, grant=Grant(1, 0, devices),
        ends_at=NEVER, since=0.0, **known,  # type: ignore[arg-type]
    )  # fmt: skip


def an_errand(count: int, *gather: Gather, least: int = 0, gpus: int = 1, **facts: object) -> Errand:
    wanted = (Part(Request(cores=1, gpus=gpus), least or count, count),)
    return Errand("new", wanted, gather, priority=5, **facts)  # type: ignore[arg-type]


def seed_003(*devices: int) -> Picture:
    """Two spines of two blocks of two nodes, as seed 003 draws them; so many devices are free on each node."""
    paths = ("s1/b1", "s1/b1", "s1/b2", "s1/b2", "s2/b3", "s2/b3", "s2/b4", "s2/b4")
    spots = (
        a_spot(f"{path}/n{number}", devices=free)
        for number, (path, free) in enumerate(zip(paths, devices, strict=True))
    )
    return a_picture(*spots)


@pytest.mark.parametrize(
    ("count", "layer", "homes"),
    [
        (4, "node", 8),
        (5, "block", 4),
        (8, "block", 4),
        (9, "spine", 2),
        (16, "spine", 2),
        (17, "cluster", 1),
        (33, None, 0),
    ],
)
def test_the_lowest_layer_of_seed_003(count: int, layer: str | None, homes: int):
    search = Search(seed_003(*[4] * 8), an_errand(count))
    assert search.lowest((count,)) == layer
    assert search.can_place() == (layer is not None)
    if layer is not None:
        assert len(search.homes(layer, (count,))) == homes


def test_a_spine_that_is_too_full_is_no_home():
    search = Search(seed_003(4, 1, 1, 1, 4, 4, 4, 4), an_errand(9))
    assert search.homes("spine", (9,)) == [("s2",)]


def test_a_must_rule_rules_out_what_lies_across():
    picture = seed_003(2, 2, 2, 2, 2, 2, 2, 2)
    assert Search(picture, an_errand(5, Gather("spine", must=True))).can_place()
    assert not Search(picture, an_errand(5, Gather("block", must=True))).can_place()
    assert not Search(picture, an_errand(1, Gather("Block", must=True))).can_place()
    assert Search(picture, an_errand(5, Gather("row"), Gather("block"))).can_place()


def test_the_same_name_under_two_parents_is_two_domains():
    picture = a_picture(a_spot("s1/b1/n0", devices=1), a_spot("s2/b1/n1", devices=1))
    assert not Search(picture, an_errand(2, Gather("block", must=True))).can_place()


def test_bound_members_pin_the_others():
    picture = seed_003(0, 0, 0, 1, 4, 4, 4, 4)
    assert Search(picture, an_errand(1, Gather("spine", must=True), bound=(0,))).can_place()
    assert not Search(picture, an_errand(2, Gather("spine", must=True), bound=(0,))).can_place()
    assert not Search(picture, an_errand(1, Gather("spine", must=True), bound=(0, 7))).can_place()


def test_multiples_are_kept_in_every_domain():
    picture = seed_003(3, 0, 3, 0, 0, 0, 0, 0)
    assert Search(picture, an_errand(4, Gather("block", multiple=2))).lowest((4,)) == "spine"
    assert not Search(picture, an_errand(6, Gather("block", multiple=2))).can_place()
    assert Search(picture, an_errand(6, Gather("block", multiple=3))).can_place()
    assert not Search(picture, an_errand(3, Gather("cluster", multiple=2))).can_place()
    assert Search(picture, an_errand(3, Gather("cluster", multiple=2), least=1)).can_place()


def test_a_member_that_is_replaced_makes_the_multiple_full_again():
    picture = seed_003(1, 0, 2, 0, 0, 0, 0, 0)
    search = Search(picture, an_errand(1, Gather("block", multiple=2), bound=(0, 2, 2)))
    assert search.homes("node", (1,)) == [("s1", "b1", "n0")]


def test_closed_nodes_and_other_targets_hold_nothing():
    closed = a_picture(a_spot("s1/b1/n0", devices=4, is_open=False))
    assert not Search(closed, an_errand(1)).can_place()
    aimed = Errand("new", (Part(Request(gpus=1, target=Target("n7")), 1, 1),))
    assert Search(seed_003(*[4] * 8), aimed).homes("node", (1,)) == [("s2", "b4", "n7")]


def test_devices_are_counted_for_all_groups_together():
    free = Picture(LAYERS, (a_spot("s/b/n", devices=2),), (), {}, 0.0).free(0)
    one_more = Device(2, "a100")
    free = replace(free, devices=(*free.devices, one_more))
    special, any_kind = Part(Request(gpus=1, gpu_type="a100"), 0, 9), Part(Request(gpus=1), 0, 9)
    assert fits(free, (special, any_kind), (1, 2))
    assert not fits(free, (special, any_kind), (2, 0))
    assert not fits(free, (special, any_kind), (1, 3))


def test_a_gang_goes_whole_or_gives_up_its_surplus():
    gang = tuple(a_tenant("old", 0, (lane,), lane) for lane in range(3))
    picture = a_picture(a_spot("s/b/n0", devices=4), tenants=gang, old=(2,))
    keys = [each.key for each in gang]
    assert keeps_gangs_whole(picture, frozenset(keys[:1])) == []
    assert keeps_gangs_whole(picture, frozenset(keys[:2])) == ["old"]
    assert keeps_gangs_whole(picture, frozenset(keys)) == []


def test_room_is_made_by_surplus_before_anybody_is_broken():
    gang = tuple(a_tenant("old", 0, (lane,), lane) for lane in range(3))
    picture = a_picture(a_spot("s/b/n0", devices=3), tenants=gang, old=(2,))
    assert fewest_broken(picture, an_errand(1)) == 0
    assert fewest_broken(picture, an_errand(2)) == 1
    assert fewest_broken(picture, an_errand(4)) is None
    assert not can_make_room(picture, an_errand(4))


def test_a_protected_member_protects_all_but_the_surplus_of_its_gang():
    protected = a_tenant("old", 0, (0,), 0, evictable_at=NEVER)
    others = tuple(a_tenant("old", 0, (lane,), lane) for lane in (1, 2))
    picture = a_picture(a_spot("s/b/n0", devices=3), tenants=(protected, *others), old=(2,))
    assert sorted(removals(picture, an_errand(1))) == sorted(frozenset([each.key]) for each in others)
    assert not can_make_room(picture, an_errand(2))


def test_nobody_of_equal_priority_has_to_leave():
    picture = a_picture(a_spot("s/b/n0", devices=1), tenants=(a_tenant("old", 0, (0,), 0, priority=5),))
    assert not can_make_room(picture, an_errand(1))


def test_sparing_some_of_the_victims():
    gang = tuple(a_tenant("old", 0, (lane,), lane) for lane in range(3))
    alone = a_tenant("lone", 0, (3,), 3)
    picture = a_picture(a_spot("s/b/n0", devices=4), tenants=(*gang, alone), old=(2,))
    every = frozenset(each.key for each in picture.tenants)
    spared = {frozenset(every - fewer) for fewer in smaller(picture, every)}
    whole = frozenset(each.key for each in gang)
    assert spared == {frozenset([alone.key]), whole, *(whole - {key} for key in whole)}


def test_the_same_answers_by_trying_every_member_on_every_node():
    tried = [seed for seed in range(300) if _is_tiny(a_case(seed))]
    assert len(tried) > 100
    for seed in tried:
        case = a_case(seed)
        errand = errand_of(case.units[0])
        divisions = _every_division(case.picture, errand)
        for goal in (errand.need, errand.most):
            depths = [
                len(common(case.picture, placed)) for counts, placed in divisions if _reaches(counts, goal)
            ]
            lowest = case.picture.layers[max(depths)] if depths else None
            assert Search(case.picture, errand).lowest(goal) == lowest, seed


def _is_tiny(case: Case) -> bool:
    errand = errand_of(case.units[0])
    return any(errand.need) and sum(errand.most) <= 4 and len(case.picture.spots) <= 6


def _reaches(counts: Counts, goal: Counts) -> bool:
    return all(a >= b for a, b in zip(counts, goal, strict=True))


def _every_division(picture: Picture, errand: Errand) -> list[tuple[Counts, dict[int, Counts]]]:
    """Every way to put every member somewhere or nowhere, of those that keep the rules."""
    members = [group for group, most in enumerate(errand.most) for _ in range(most)]
    found = []
    for where in product(range(-1, len(picture.spots)), repeat=len(members)):
        placed: dict[int, Counts] = {}
        for group, row in zip(members, where, strict=True):
            if row >= 0:
                counts = list(placed.get(row, (0,) * len(errand.most)))
                counts[group] += 1
                placed[row] = tuple(counts)
        total = tuple(map(sum, zip(*placed.values(), strict=True)))
        if (
            placed
            and admitted(picture, errand, total)
            and not any(True for _ in rule_laws(picture, errand, placed))
            and _all_fit(picture, errand, placed)
        ):
            found.append((total, placed))
    return found


def _all_fit(picture: Picture, errand: Errand, placed: dict[int, Counts]) -> bool:
    return all(
        picture.spots[row].is_open and fits(picture.free(row), errand.wanted, counts)
        for row, counts in placed.items()
    )


def test_the_cases_have_everything_in_them():
    seen = Counter(feature for seed in range(150) for feature in _features(a_case(seed, True, knotty=True)))
    for feature in (
        "promise", "leaving", "protected", "never evicted", "other queue", "closed node", "overdrawn node",
        "missing label", "quota", "bound member", "target", "labels", "multiple", "must", "prefer", "surplus",
        "unknown layer", "may not evict", "single task", "several groups", "fewer needed", "own indexes",
        "part of a core",
    ):  # fmt: skip
        assert seen[feature] >= 2, feature


def _features(case: Case) -> Iterator[str]:
    picture = case.picture
    for tenant in picture.tenants:
        yield from ["promise"] * tenant.is_promise + ["leaving"] * tenant.is_leaving
        yield from ["other queue"] * (tenant.queue == "other")
        yield from ["protected"] * (picture.now < tenant.evictable_at < NEVER)
        yield from ["never evicted"] * (tenant.evictable_at == NEVER and not tenant.is_leaving)
    for row, spot in enumerate(picture.spots):
        yield from ["closed node"] * (not spot.is_open) + ["overdrawn node"] * (picture.free(row).cores < 0)
        yield from ["missing label"] * any(word.startswith("~") for word in spot.path)
    for job, needed in picture.needed.items():
        held = Counter(tenant.group for tenant in picture.of_job(job))
        yield from ["surplus"] * any(held[group] > least for group, least in enumerate(needed))
    yield from ["quota"] * bool(picture.quotas)
    for unit in case.units:
        yield from _features_of(unit, picture)


def _features_of(unit: SmallUnit, picture: Picture) -> Iterator[str]:
    errand = errand_of(unit)
    yield from ["bound member"] * bool(errand.bound) + ["may not evict"] * (not errand.may_evict)
    yield from ["single task"] * (not unit.is_gang) + ["several groups"] * (len(errand.wanted) > 1)
    for wanted, group in zip(errand.wanted, unit.job.groups, strict=True):
        yield from ["target"] * (wanted.request.target is not None) + ["labels"] * bool(wanted.request.labels)
        yield from ["fewer needed"] * (wanted.need < wanted.most) + ["own indexes"] * bool(group.indexes)
        yield from ["part of a core"] * (wanted.request.cores % 1 > 0)
    for rule in errand.gather:
        yield from ["multiple"] * (rule.multiple > 1) + ["must" if rule.must else "prefer"]
        yield from ["unknown layer"] * (rule.layer not in picture.layers)
