"""The order of the waiting units, and which are passed over: the plan over single tasks."""

from __future__ import annotations

from phalanx.core.model.lanes import Lane
from phalanx.core.model.plan import Policy
from phalanx.core.model.resources import Grant
from phalanx.core.placement.engine import HELD_MAX
from phalanx.core.placement.place_one import place_one
from tests.support.planned_cluster import PlannedCluster

FIFO = Policy(backfill="none")


def test_a_plan_changes_nothing() -> None:
    cluster = PlannedCluster(n1=4)
    cluster.waits("a", cores=3)
    assert cluster.placed() == {"a": ["n1"]}
    assert cluster.free() == {"n1": 4}


def test_the_order_is_by_rank_over_all_classes() -> None:
    cluster = PlannedCluster(n1=8)
    for job, cores, priority in (("a", 1, 0), ("b", 2, 0), ("c", 1, 5), ("d", 2, 5), ("e", 1, 0)):
        cluster.waits(job, cores=cores, priority=priority)
    assert list(cluster.placed()) == ["c", "d", "a", "b", "e"]


def test_a_class_that_found_no_room_is_asked_again_only_when_room_may_have_appeared() -> None:
    cluster = PlannedCluster(n1=2)
    cluster.runs("old", "n1", 2, until=2000.0)
    cluster.waits("a")
    assert cluster.placed() == {}
    gain = cluster.gain
    cluster.end("old")
    cluster.gain = gain
    assert cluster.placed() == {}
    cluster.gain += 1
    assert cluster.placed() == {"a": ["n1"]}


def test_a_pass_asks_no_task_behind_the_first_that_finds_no_room() -> None:
    cluster = PlannedCluster(n1=1)
    first, second = cluster.waits("a", tasks=1_000_000), cluster.waits("b")
    asked: list[int] = []
    second.ready = lambda most: asked.append(most) or iter(())  # type: ignore[method-assign, func-returns-value]
    assert cluster.placed() == {"a": ["n1"]}
    assert asked == []
    assert len(first.left) == 1_000_000


def test_a_pass_that_was_cut_short_says_so() -> None:
    cluster = PlannedCluster(n1=8)
    cluster.waits("a", tasks=8)
    cut = cluster.plan(Policy(openings_max=3))
    assert (len(cut.placements), cut.more) == (3, True)
    assert not cluster.plan(Policy(openings_max=9)).more


def test_a_queue_that_holds_all_it_may_does_not_stop_the_others() -> None:
    cluster = PlannedCluster(n1=8)
    cluster.quota("lab", cores=2)
    cluster.waits("a", cores=1, tasks=3, queue="lab")
    cluster.waits("b", cores=1)
    assert cluster.go() == {"a": ["n1", "n1"], "b": ["n1"]}


def test_a_unit_without_quota_is_not_the_head_that_nobody_may_delay() -> None:
    cluster = PlannedCluster(n1=4)
    cluster.runs("old", "n1", 2, until=2000.0)
    cluster.quota("lab", cores=0)
    cluster.waits("capped", cores=4, queue="lab")
    cluster.waits("long", cores=2, limit=90_000.0)
    assert cluster.placed() == {"long": ["n1"]}


def test_quota_is_asked_again_when_room_may_have_appeared() -> None:
    cluster = PlannedCluster(n1=8)
    cluster.quota("lab", tasks=1)
    cluster.waits("a", queue="lab")
    cluster.waits("b", queue="lab")
    assert cluster.go() == {"a": ["n1"]}
    assert cluster.go() == {}
    cluster.end("a")
    assert cluster.go() == {"b": ["n1"]}


def test_nobody_passes_the_first_without_backfill() -> None:
    cluster = PlannedCluster(n1=4)
    cluster.runs("old", "n1", 2, until=2000.0)
    cluster.waits("large", cores=4)
    cluster.waits("small", cores=1, limit=1.0)
    assert cluster.placed(FIFO) == {}
    cluster.gain += 1
    assert cluster.placed() == {"small": ["n1"]}


def test_one_that_cannot_run_on_the_nodes_there_are_stops_nobody_even_without_backfill() -> None:
    cluster = PlannedCluster(n1=4)
    cluster.runs("old", "n1", 2, until=2000.0)
    cluster.waits("giant", cores=64)
    cluster.waits("long", cores=2, limit=1e6)
    assert cluster.placed(FIFO) == {"long": ["n1"]}
    cluster.gain += 1
    assert cluster.placed() == {"long": ["n1"]}


def test_one_whose_only_node_is_closed_stops_nobody() -> None:
    cluster = PlannedCluster(n1=4, n2=4)
    cluster.nodes.set_open("n2", False)
    cluster.waits("away", cores=1, target="n2")
    cluster.waits("long", cores=4)
    assert cluster.placed(FIFO) == {"long": ["n1"]}


def test_behind_one_that_cannot_run_the_next_without_room_is_the_head() -> None:
    cluster = PlannedCluster(n1=4)
    cluster.runs("old", "n1", 2, until=2000.0)
    cluster.waits("giant", cores=64)
    cluster.waits("large", cores=4)
    cluster.waits("long", cores=2, limit=1e6)
    assert cluster.placed() == {}


def test_held_back_units_are_asked_again_when_the_head_is_gone() -> None:
    cluster = PlannedCluster(n1=4)
    cluster.runs("old", "n1", 2, until=2000.0)
    cluster.waits("large", cores=4)
    cluster.waits("long", cores=2, limit=1e6)
    assert cluster.placed() == {}
    cluster.forget("large")
    assert cluster.placed() == {"long": ["n1"]}


def test_held_back_units_are_asked_again_when_another_is_the_head() -> None:
    cluster = PlannedCluster(n1=4)
    cluster.runs("old", "n1", 2, until=2000.0)
    cluster.waits("large", cores=4)
    cluster.waits("less-large", cores=3)
    cluster.waits("long", cores=1, limit=1e6)
    assert cluster.placed() == {}
    cluster.forget("large")
    assert cluster.placed() == {"long": ["n1"]}


def test_held_back_units_are_not_asked_again_while_nothing_has_changed() -> None:
    cluster = PlannedCluster(n1=4)
    cluster.runs("old", "n1", 2, until=2000.0)
    cluster.waits("large", cores=4)
    long = cluster.waits("long", cores=2, limit=1e6)
    assert cluster.placed() == {}
    asked: list[int] = []
    long.ready = lambda most: asked.append(most) or iter(())  # type: ignore[method-assign, func-returns-value]
    assert cluster.placed() == {} and asked == []
    cluster.gain += 1
    assert cluster.placed() == {} and asked != []


def test_a_short_one_of_the_same_class_passes_a_long_one_that_is_held_back() -> None:
    cluster = PlannedCluster(n1=4)
    cluster.runs("old", "n1", 2, until=2000.0)
    cluster.waits("large", cores=4)
    cluster.waits("long", cores=1, limit=1e6)
    cluster.waits("short", cores=1, limit=1000.0)
    assert cluster.placed() == {"short": ["n1"]}


def test_a_plan_looks_only_so_far_behind_those_it_holds_back() -> None:
    cluster = PlannedCluster(n1=4)
    cluster.runs("old", "n1", 2, until=2000.0)
    cluster.waits("large", cores=4)
    for number in range(HELD_MAX):
        cluster.waits(f"long-{number}", cores=1, limit=1e6)
    cluster.waits("short", cores=1, limit=1000.0)
    assert cluster.placed() == {}
    cluster.forget("long-0")
    cluster.gain += 1
    assert cluster.placed() == {"short": ["n1"]}


def a_lane(unit_job: str, cluster: PlannedCluster, node: str) -> None:
    unit = cluster.units[unit_job]
    lane = Lane(7, node, Grant(1, 0))
    lane.attempts[unit_job, 99, 1] = None
    unit.lanes[node, 7] = lane  # type: ignore[union-attr]
    unit.typical_run_s = 0.01  # type: ignore[union-attr]


def test_short_tasks_of_the_first_without_room_queue_in_their_lanes() -> None:
    cluster = PlannedCluster(n1=1)
    cluster.runs("a", "n1", 1)
    cluster.waits("a", tasks=50)
    a_lane("a", cluster, "n1")
    placements = cluster.plan().placements
    assert len(placements) == 9  # ten of them end within a tenth of a second, and one runs already
    assert {each.lane for each in placements} == {7}


def test_tasks_of_which_only_so_many_may_run_do_not_queue() -> None:
    cluster = PlannedCluster(n1=1)
    cluster.runs("a", "n1", 1)
    cluster.waits("a", tasks=50, at_once=4)
    a_lane("a", cluster, "n1")
    assert cluster.placed() == {}


def test_only_the_first_without_room_queues_in_its_lanes() -> None:
    cluster = PlannedCluster(n1=2)
    cluster.runs("a", "n1", 2)
    cluster.waits("first", cores=2)
    cluster.waits("a", tasks=50)
    a_lane("a", cluster, "n1")
    assert cluster.placed() == {}


def test_those_held_back_for_a_head_whose_tasks_all_queue_in_lanes_are_asked_again_at_once() -> None:
    cluster = PlannedCluster(n1=2)
    cluster.runs("a", "n1", 1)
    cluster.waits("a", cores=2)
    a_lane("a", cluster, "n1")
    cluster.waits("b", cores=1)
    first = cluster.plan()
    assert [(each.job, each.lane) for each in first.placements] == [("a", 7)]
    assert first.more
    cluster.forget("a")
    assert [each.job for each in cluster.plan().placements] == ["b"]


def test_nobody_queues_in_lanes_behind_a_gang_that_waits() -> None:
    cluster = PlannedCluster(n1=2)
    cluster.runs("a", "n1", 2)
    cluster.waits_whole("gang", 2)
    cluster.waits("a", tasks=50)
    a_lane("a", cluster, "n1")
    assert cluster.placed() == {}


def test_short_tasks_queue_in_their_lanes_when_the_quota_is_used_up() -> None:
    cluster = PlannedCluster(n1=4)
    cluster.quota("default", tasks=1)
    cluster.runs("a", "n1", 1)
    cluster.waits("a", tasks=50)
    a_lane("a", cluster, "n1")
    assert {each.lane for each in cluster.plan().placements} == {7}


def test_one_task_is_placed_whoever_else_waits() -> None:
    cluster = PlannedCluster(n1=4)
    cluster.runs("old", "n1", 2, until=2000.0)
    cluster.waits("large", cores=4)
    unit = cluster.waits("now", cores=2, limit=1e6)
    placement = place_one(cluster.snapshot(), unit, Policy())
    assert placement is not None and placement.node == "n1"


def test_one_task_is_not_placed_without_room_or_quota() -> None:
    cluster = PlannedCluster(n1=4)
    cluster.quota("lab", cores=1)
    assert place_one(cluster.snapshot(), cluster.waits("a", cores=5), Policy()) is None
    assert place_one(cluster.snapshot(), cluster.waits("b", cores=2, queue="lab"), Policy()) is None
