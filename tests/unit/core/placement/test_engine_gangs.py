"""Gangs in the plan: whole or not at all, with a reservation like others, and which may hold a part."""

from __future__ import annotations

from phalanx.core.explain.reserved import forecast
from phalanx.core.model.plan import Policy
from tests.support.planned_cluster import PlannedCluster

CALM = Policy(evicts=False)


def test_a_gang_is_placed_whole() -> None:
    cluster = PlannedCluster(n1=2, n2=2)
    cluster.waits_whole("gang", 4)
    (gang_placement,) = cluster.plan().gang_placements
    assert (gang_placement.job, gang_placement.victims, len(gang_placement.members)) == ("gang", (), 4)


def test_a_gang_that_does_not_fit_whole_gets_nothing() -> None:
    cluster = PlannedCluster(n1=2, n2=1)
    cluster.waits_whole("gang", 4)
    assert cluster.plan(CALM).gang_placements == []
    assert cluster.free() == {"n1": 2, "n2": 1}


def test_gangs_and_tasks_stand_in_one_order() -> None:
    cluster = PlannedCluster(n1=4)
    cluster.waits("a", cores=2)
    cluster.waits_whole("gang", 2)
    cluster.waits("b", cores=1)
    assert cluster.placed(CALM) == {"a": ["n1"], "gang": ["n1", "n1"]}


def test_a_gang_that_waits_is_not_starved_by_small_tasks() -> None:
    cluster = PlannedCluster(n1=2, n2=2)
    cluster.runs("old", "n1", 2, until=2000.0)
    cluster.waits_whole("gang", 4)
    cluster.waits("small", cores=1, tasks=10, limit=1e6)
    cluster.waits("short", cores=1, tasks=10, limit=1000.0)
    assert cluster.go(CALM) == {"short": ["n2", "n2"]}
    cluster.now = 2000.0
    cluster.end("short")
    cluster.end("old")
    assert sorted(cluster.go(CALM)["gang"]) == ["n1", "n1", "n2", "n2"]


def test_a_must_rule_decides_when_a_gang_can_start_and_where() -> None:
    cluster = PlannedCluster()
    for name, rack in (("n1", "r1"), ("n2", "r1"), ("n3", "r2"), ("n4", "r2")):
        cluster.add_node(name, 1, rack=rack)
    cluster.runs("old-1", "n1", until=2000.0)
    cluster.runs("old-2", "n3", until=1500.0)
    cluster.runs("old-3", "n4", until=3000.0)
    unit = cluster.waits_whole("gang", 2, must="rack")
    found = forecast(cluster.snapshot(), unit, CALM)
    assert found is not None and (found.at, found.nodes) == (2000.0, ("n1", "n2"))


def test_a_must_rule_that_can_never_hold_stops_nobody() -> None:
    cluster = PlannedCluster()
    for name, rack in (("n1", "r1"), ("n2", "r2")):
        cluster.add_node(name, 2, rack=rack)
    cluster.waits_whole("gang", 3, must="rack")
    cluster.waits("long", tasks=4, limit=1e6)
    assert sorted(cluster.placed(CALM)["long"]) == ["n1", "n1", "n2", "n2"]


def test_a_layer_that_nobody_declared_stops_nobody() -> None:
    cluster = PlannedCluster(n1=2)
    cluster.waits_whole("gang", 2, must="galaxy")
    cluster.waits("long", limit=1e6)
    assert cluster.placed(CALM) == {"long": ["n1"]}


def test_a_long_gang_goes_where_it_does_not_delay_the_head() -> None:
    cluster = PlannedCluster()
    cluster.add_node("n1", 1, rack="r1")
    cluster.add_node("n2", 1, rack="r1")
    cluster.runs("old", "n1", until=2000.0)
    cluster.waits_whole("head", 2, must="rack")
    cluster.waits_whole("long", 1, limit=1e6)
    assert cluster.placed(CALM) == {}, "the only free node is kept for the head"
    cluster.add_node("n3", 1, rack="r2")
    assert cluster.placed(CALM) == {"long": ["n3"]}


def test_a_head_with_a_must_rule_is_not_moved_out_of_its_domain() -> None:
    cluster = PlannedCluster()
    for name, rack in (("n1", "r1"), ("n2", "r1"), ("n3", "r2")):
        cluster.add_node(name, 1, rack=rack)
    cluster.runs("old-2", "n2", until=2000.0)
    cluster.runs("old-3", "n3", until=2000.0)
    cluster.waits_whole("head", 2, must="rack")
    cluster.waits("long", limit=1e6)
    assert cluster.placed(CALM) == {}


def test_a_head_with_a_must_rule_moves_within_its_domain() -> None:
    cluster = PlannedCluster()
    for name in ("n1", "n2", "n3"):
        cluster.add_node(name, 1, rack="r1")
    cluster.runs("old-2", "n2", until=2000.0)
    cluster.runs("old-3", "n3", until=2000.0)
    cluster.waits_whole("head", 2, must="rack")
    cluster.waits("long", limit=1e6)
    assert cluster.placed(CALM) == {"long": ["n1"]}


def test_a_head_with_a_must_rule_moves_to_another_domain_if_it_can_at_the_same_time() -> None:
    cluster = PlannedCluster()
    for name, rack in (("n1", "r1"), ("n2", "r1"), ("n3", "r2"), ("n4", "r2")):
        cluster.add_node(name, 1, rack=rack)
    cluster.runs("old-1", "n1", until=2000.0)
    cluster.runs("old-3", "n3", until=2000.0)
    cluster.waits_whole("head", 2, must="rack")
    cluster.waits("long", target="n2", limit=1e6)
    cluster.waits("longer", target="n4", limit=1e6)
    assert cluster.placed(CALM) == {"long": ["n2"]}


def test_a_long_gang_passes_if_the_head_can_stand_elsewhere_at_the_same_time() -> None:
    cluster = PlannedCluster(**{f"n{number}": 1 for number in range(8)})
    for number in range(5):
        cluster.runs(f"old-{number}", f"n{number}", until=2000.0)
    cluster.waits_whole("head", 6)
    cluster.waits_whole("long", 2, limit=1e6)
    cluster.waits_whole("longer", 1, limit=1e6)
    assert list(cluster.placed(CALM)) == ["long"]


def test_a_gang_that_is_held_back_leaves_the_draft_as_it_was() -> None:
    cluster = PlannedCluster(n1=2, n2=2)
    cluster.runs("old", "n1", 2, until=2000.0)
    cluster.waits("head", cores=2, target="n2")
    cluster.runs("old-2", "n2", 1, until=2000.0)
    cluster.waits_whole("long", 1, limit=1e6)
    cluster.waits("short", cores=1, limit=500.0)
    assert cluster.placed(CALM) == {"short": ["n2"]}
    assert cluster.free() == {"n1": 0, "n2": 1}


def test_a_gang_over_its_quota_is_passed_over_and_is_no_head() -> None:
    cluster = PlannedCluster(n1=4)
    cluster.quota("lab", cores=2)
    cluster.waits_whole("gang", 3, queue="lab")
    cluster.waits("long", cores=4, limit=1e6)
    assert cluster.placed(CALM) == {"long": ["n1"]}


def test_a_gang_that_need_not_start_whole_keeps_what_there_is() -> None:
    cluster = PlannedCluster(n1=2)
    cluster.runs("old", "n1", 1, until=2000.0)
    unit = cluster.waits_whole("gang", 2, strict=False)
    unit.may_hold_part = True
    proposal = cluster.plan(CALM)
    assert [len(gang_placement.members) for gang_placement in proposal.gang_placements] == [1]
    assert proposal.more, "what is left of it is looked at at once"


def test_a_gang_holds_no_part_while_another_holds_one() -> None:
    cluster = PlannedCluster(n1=2)
    cluster.runs("old", "n1", 1, until=2000.0)
    cluster.waits_whole("gang", 2, strict=False)
    assert cluster.placed(CALM) == {}


def test_only_the_first_of_those_that_need_not_start_whole_holds_a_part() -> None:
    cluster = PlannedCluster(n1=2, n2=1)
    cluster.runs("old", "n1", 2, until=2000.0)
    first = cluster.waits_whole("first", 2, strict=False)
    second = cluster.waits_whole("second", 3, strict=False)
    first.may_hold_part = second.may_hold_part = True
    assert list(cluster.placed(CALM)) == ["first"]


def test_not_the_second_even_if_nothing_of_the_first_finds_a_place() -> None:
    cluster = PlannedCluster(n1=2, n2=1)
    cluster.runs("old", "n1", 2, until=2000.0)
    first = cluster.waits_whole("first", 1, cores=2, strict=False)
    second = cluster.waits_whole("second", 3, strict=False)
    first.may_hold_part = second.may_hold_part = True
    assert cluster.placed(CALM) == {}


def test_no_part_is_held_behind_a_head_that_waits() -> None:
    cluster = PlannedCluster(n1=3)
    cluster.runs("old", "n1", 1, until=2000.0)
    cluster.waits("head", cores=3)
    unit = cluster.waits_whole("gang", 3, strict=False)
    unit.may_hold_part = True
    assert cluster.placed(CALM) == {}


def test_what_is_left_of_a_gang_waits_as_the_head() -> None:
    cluster = PlannedCluster(n1=3)
    cluster.runs("old", "n1", 2, until=2000.0)
    unit = cluster.waits_whole("gang", 3, strict=False)
    unit.may_hold_part = True
    assert cluster.go(CALM) == {"gang": ["n1"]}
    cluster.waits("long", limit=1e6)
    cluster.end("old")
    assert cluster.go(CALM) == {"gang": ["n1", "n1"]}
