"""The order in which those who wait are asked, and who is passed over: the plan over single tasks."""

from __future__ import annotations

from phalanx.core.model.lane import Lane
from phalanx.core.model.plan import Policy
from phalanx.core.model.resources import Grant
from phalanx.core.placement.engine import HELD_MAX, place_one
from tests.unit.core.yard import Yard

FIFO = Policy(backfill="none")


def test_a_plan_changes_nothing() -> None:
    yard = Yard(n1=4)
    yard.waits("a", cores=3)
    assert yard.placed() == {"a": ["n1"]}
    assert yard.free() == {"n1": 4}


def test_the_order_is_by_rank_over_all_classes() -> None:
    yard = Yard(n1=8)
    for job, cores, priority in (("a", 1, 0), ("b", 2, 0), ("c", 1, 5), ("d", 2, 5), ("e", 1, 0)):
        yard.waits(job, cores=cores, priority=priority)
    assert list(yard.placed()) == ["c", "d", "a", "b", "e"]


def test_a_class_that_found_no_room_is_asked_again_only_when_room_may_have_appeared() -> None:
    yard = Yard(n1=2)
    yard.runs("old", "n1", 2, until=2000.0)
    yard.waits("a")
    assert yard.placed() == {}
    gain = yard.gain
    yard.end("old")
    yard.gain = gain
    assert yard.placed() == {}
    yard.gain += 1
    assert yard.placed() == {"a": ["n1"]}


def test_a_pass_asks_no_task_behind_the_first_that_finds_no_room() -> None:
    yard = Yard(n1=1)
    first, second = yard.waits("a", tasks=1_000_000), yard.waits("b")
    asked: list[int] = []
    second.ready = lambda most: asked.append(most) or iter(())  # type: ignore[method-assign, func-returns-value]
    assert yard.placed() == {"a": ["n1"]}
    assert asked == []
    assert len(first.left) == 1_000_000


def test_a_pass_that_was_cut_short_says_so() -> None:
    yard = Yard(n1=8)
    yard.waits("a", tasks=8)
    cut = yard.plan(Policy(placements_max=3))
    assert (len(cut.placements), cut.more) == (3, True)
    assert not yard.plan(Policy(placements_max=9)).more


def test_a_queue_that_holds_all_it_may_does_not_stop_the_others() -> None:
    yard = Yard(n1=8)
    yard.quota("lab", cores=2)
    yard.waits("a", cores=1, tasks=3, queue="lab")
    yard.waits("b", cores=1)
    assert yard.go() == {"a": ["n1", "n1"], "b": ["n1"]}


def test_a_unit_without_quota_is_not_the_head_that_nobody_may_delay() -> None:
    yard = Yard(n1=4)
    yard.runs("old", "n1", 2, until=2000.0)
    yard.quota("lab", cores=0)
    yard.waits("capped", cores=4, queue="lab")
    yard.waits("long", cores=2, limit=90_000.0)
    assert yard.placed() == {"long": ["n1"]}


def test_quota_is_asked_again_when_room_may_have_appeared() -> None:
    yard = Yard(n1=8)
    yard.quota("lab", tasks=1)
    yard.waits("a", queue="lab")
    yard.waits("b", queue="lab")
    assert yard.go() == {"a": ["n1"]}
    assert yard.go() == {}
    yard.end("a")
    assert yard.go() == {"b": ["n1"]}


def test_nobody_passes_the_first_without_backfill() -> None:
    yard = Yard(n1=4)
    yard.runs("old", "n1", 2, until=2000.0)
    yard.waits("large", cores=4)
    yard.waits("small", cores=1, limit=1.0)
    assert yard.placed(FIFO) == {}
    yard.gain += 1
    assert yard.placed() == {"small": ["n1"]}


def test_one_that_cannot_run_on_the_nodes_there_are_stops_nobody_even_without_backfill() -> None:
    yard = Yard(n1=4)
    yard.runs("old", "n1", 2, until=2000.0)
    yard.waits("giant", cores=64)
    yard.waits("long", cores=2, limit=1e6)
    assert yard.placed(FIFO) == {"long": ["n1"]}
    yard.gain += 1
    assert yard.placed() == {"long": ["n1"]}


def test_one_whose_only_node_is_closed_stops_nobody() -> None:
    yard = Yard(n1=4, n2=4)
    yard.nodes.set_open("n2", False)
    yard.waits("away", cores=1, target="n2")
    yard.waits("long", cores=4)
    assert yard.placed(FIFO) == {"long": ["n1"]}


def test_behind_one_that_cannot_run_the_next_without_room_is_the_head() -> None:
    yard = Yard(n1=4)
    yard.runs("old", "n1", 2, until=2000.0)
    yard.waits("giant", cores=64)
    yard.waits("large", cores=4)
    yard.waits("long", cores=2, limit=1e6)
    assert yard.placed() == {}


def test_held_back_units_are_asked_again_when_the_head_is_gone() -> None:
    yard = Yard(n1=4)
    yard.runs("old", "n1", 2, until=2000.0)
    yard.waits("large", cores=4)
    yard.waits("long", cores=2, limit=1e6)
    assert yard.placed() == {}
    yard.forget("large")
    assert yard.placed() == {"long": ["n1"]}


def test_held_back_units_are_asked_again_when_another_is_the_head() -> None:
    yard = Yard(n1=4)
    yard.runs("old", "n1", 2, until=2000.0)
    yard.waits("large", cores=4)
    yard.waits("less-large", cores=3)
    yard.waits("long", cores=1, limit=1e6)
    assert yard.placed() == {}
    yard.forget("large")
    assert yard.placed() == {"long": ["n1"]}


def test_held_back_units_are_not_asked_again_while_nothing_has_changed() -> None:
    yard = Yard(n1=4)
    yard.runs("old", "n1", 2, until=2000.0)
    yard.waits("large", cores=4)
    long = yard.waits("long", cores=2, limit=1e6)
    assert yard.placed() == {}
    asked: list[int] = []
    long.ready = lambda most: asked.append(most) or iter(())  # type: ignore[method-assign, func-returns-value]
    assert yard.placed() == {} and asked == []
    yard.gain += 1
    assert yard.placed() == {} and asked != []


def test_a_short_one_of_the_same_class_passes_a_long_one_that_is_held_back() -> None:
    yard = Yard(n1=4)
    yard.runs("old", "n1", 2, until=2000.0)
    yard.waits("large", cores=4)
    yard.waits("long", cores=1, limit=1e6)
    yard.waits("short", cores=1, limit=1000.0)
    assert yard.placed() == {"short": ["n1"]}


def test_a_plan_looks_only_so_far_behind_those_it_holds_back() -> None:
    yard = Yard(n1=4)
    yard.runs("old", "n1", 2, until=2000.0)
    yard.waits("large", cores=4)
    for number in range(HELD_MAX):
        yard.waits(f"long-{number}", cores=1, limit=1e6)
    yard.waits("short", cores=1, limit=1000.0)
    assert yard.placed() == {}
    yard.forget("long-0")
    yard.gain += 1
    assert yard.placed() == {"short": ["n1"]}


def a_lane(unit_job: str, yard: Yard, node: str) -> None:
    unit = yard.units[unit_job]
    lane = Lane(7, node, Grant(1, 0))
    lane.attempts[unit_job, 99, 1] = None
    unit.lanes[node, 7] = lane  # type: ignore[union-attr]
    unit.typical_run_s = 0.01  # type: ignore[union-attr]


def test_short_tasks_of_the_first_without_room_queue_in_their_lanes() -> None:
    yard = Yard(n1=1)
    yard.runs("a", "n1", 1)
    yard.waits("a", tasks=50)
    a_lane("a", yard, "n1")
    placements = yard.plan().placements
    assert len(placements) == 9  # ten of them end within a tenth of a second, and one runs already
    assert {each.lane for each in placements} == {7}


def test_tasks_of_which_only_so_many_may_run_do_not_queue() -> None:
    yard = Yard(n1=1)
    yard.runs("a", "n1", 1)
    yard.waits("a", tasks=50, at_once=4)
    a_lane("a", yard, "n1")
    assert yard.placed() == {}


def test_only_the_first_without_room_queues_in_its_lanes() -> None:
    yard = Yard(n1=2)
    yard.runs("a", "n1", 2)
    yard.waits("first", cores=2)
    yard.waits("a", tasks=50)
    a_lane("a", yard, "n1")
    assert yard.placed() == {}


def test_nobody_queues_in_lanes_behind_a_gang_that_waits() -> None:
    yard = Yard(n1=2)
    yard.runs("a", "n1", 2)
    yard.waits_whole("gang", 2)
    yard.waits("a", tasks=50)
    a_lane("a", yard, "n1")
    assert yard.placed() == {}


def test_short_tasks_queue_in_their_lanes_when_the_quota_is_used_up() -> None:
    yard = Yard(n1=4)
    yard.quota("default", tasks=1)
    yard.runs("a", "n1", 1)
    yard.waits("a", tasks=50)
    a_lane("a", yard, "n1")
    assert {each.lane for each in yard.plan().placements} == {7}


def test_one_task_is_placed_whoever_else_waits() -> None:
    yard = Yard(n1=4)
    yard.runs("old", "n1", 2, until=2000.0)
    yard.waits("large", cores=4)
    unit = yard.waits("now", cores=2, limit=1e6)
    placement = place_one(yard.snapshot(), unit, Policy())
    assert placement is not None and placement.node == "n1"


def test_one_task_is_not_placed_without_room_or_quota() -> None:
    yard = Yard(n1=4)
    yard.quota("lab", cores=1)
    assert place_one(yard.snapshot(), yard.waits("a", cores=5), Policy()) is None
    assert place_one(yard.snapshot(), yard.waits("b", cores=2, queue="lab"), Policy()) is None
