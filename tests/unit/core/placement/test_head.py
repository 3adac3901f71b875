"""The head of the queue is not passed (P5): what is kept for it when no job has a time limit."""

from __future__ import annotations

import pytest

from phalanx.core.explain.reserved import held_back, kept_now, room_kept
from phalanx.core.model.plan import Backfill, Policy
from phalanx.core.model.reason import Reason
from phalanx.core.placement.draft import Draft
from tests.support.planned_cluster import PlannedCluster


def two_racks() -> PlannedCluster:
    """Two racks of two nodes of 8 GPUs, each held by a gang of 4 × 4 without a time limit."""
    cluster = PlannedCluster()
    for number in range(1, 5):
        cluster.add_node(f"n{number}", 64, gpus=8, rack=f"r{(number + 1) // 2}")
    for gang, nodes in (("first", ("n1", "n2")), ("second", ("n3", "n4"))):
        for node in nodes:
            for devices in ((0, 1, 2, 3), (4, 5, 6, 7)):
                cluster.runs(gang, node, 1, gpus=devices)
    cluster.waits_whole("head", 4, gpus=4, must="rack")
    cluster.waits("singles", gpus=1, tasks=16)
    assert cluster.go() == {}
    return cluster


def one_ends(cluster: PlannedCluster, job: str) -> dict[str, list[str]]:
    """One task of a job ends, and a plan follows."""
    cluster._leave(min(cluster.tenants.of_job[job]))
    cluster.gain += 1
    return cluster.go()


def test_a_rack_that_empties_task_by_task_goes_to_the_head_and_not_to_singles_behind_it() -> None:
    cluster = two_racks()
    assert [one_ends(cluster, "second") for _ in range(3)] == [{}, {}, {}]
    assert sorted(one_ends(cluster, "second")["head"]) == ["n3", "n3", "n4", "n4"]


def test_the_nodes_are_chosen_when_something_is_free_and_kept_from_then_on() -> None:
    cluster = two_racks()
    one_ends(cluster, "second")
    assert [kept.nodes for kept in cluster.kept.values()] == [("n3", "n4")]
    assert [one_ends(cluster, "first") for _ in range(2)] == [
        {"singles": ["n1"] * 4},
        {"singles": ["n1"] * 4},
    ]
    assert [kept.nodes for kept in cluster.kept.values()] == [("n3", "n4")]
    assert [one_ends(cluster, "second") for _ in range(2)] == [{}, {}]
    assert sorted(one_ends(cluster, "second")["head"]) == ["n3", "n3", "n4", "n4"]


def test_room_at_once_elsewhere_is_taken_and_nothing_is_kept_any_more() -> None:
    cluster = two_racks()
    one_ends(cluster, "second")
    cluster.forget("singles")
    for key in sorted(cluster.tenants.of_job["first"]):
        cluster._leave(key)
    cluster.gain += 1
    assert sorted(cluster.go()["head"]) == ["n1", "n1", "n2", "n2"]
    assert cluster.kept == {}


def test_only_one_rack_is_kept() -> None:
    cluster = two_racks()
    one_ends(cluster, "second")
    placed = one_ends(cluster, "first")
    assert placed == {"singles": ["n1"] * 4}


def test_of_two_racks_the_one_that_lacks_less_is_kept() -> None:
    """Three of four members would find room in the one, two in the other, on a whole node of it."""
    cluster = PlannedCluster()
    for number in range(1, 9):
        cluster.add_node(f"n{number}", 64, gpus=8, rack=f"r{(number + 3) // 4}")
    for node in ("n2", "n3", "n4"):
        cluster.runs("old", node, 1, gpus=tuple(range(8)))
    for node, devices in (("n5", 4), ("n6", 4), ("n7", 4), ("n8", 8)):
        cluster.runs("old", node, 1, gpus=tuple(range(devices)))
    cluster.waits_whole("head", 4, gpus=4, must="rack")
    unit = cluster.waits("single", gpus=1)
    cluster.go()
    assert [kept.nodes[:3] for kept in cluster.kept.values()] == [("n5", "n6", "n7")]
    assert unit.left == []


def test_a_node_that_is_nearly_free_is_kept_for_one_task_that_needs_all_of_it() -> None:
    cluster = PlannedCluster()
    cluster.add_node("n1", 64, gpus=8)
    cluster.add_node("n2", 64, gpus=8)
    cluster.runs("old", "n1", 1, gpus=(0, 1, 2))
    cluster.runs("old", "n2", 1, gpus=(0,))
    cluster.waits("head", gpus=8)
    cluster.waits("singles", gpus=1, tasks=9)
    assert cluster.go() == {"singles": ["n1"] * 5}
    assert one_ends(cluster, "old") == {"singles": ["n1"] * 3}
    assert one_ends(cluster, "old") == {"head": ["n2"]}


def test_the_next_task_of_an_array_has_other_nodes_kept_than_those_its_sibling_has_taken() -> None:
    cluster = PlannedCluster()
    for node in ("n1", "n2"):
        cluster.add_node(node, 64, gpus=8)
        cluster.runs(f"old-{node}", node, 1, gpus=(0,))
    cluster.waits("head", gpus=8, tasks=2)
    cluster.waits("singles", gpus=1)
    assert cluster.go() == {"singles": ["n2"]}
    assert [kept.nodes for kept in cluster.kept.values()] == [("n1",)]
    cluster.waits("more", gpus=1)
    assert one_ends(cluster, "old-n1") == {"head": ["n1"]}
    cluster.waits("others", gpus=2)
    assert cluster.go() == {}
    assert [kept.nodes for kept in cluster.kept.values()] == [("n2",)]


def test_a_node_that_is_gone_is_kept_no_longer() -> None:
    cluster = PlannedCluster()
    for node in ("n1", "n2"):
        cluster.add_node(node, 64, gpus=8)
    cluster.runs("old", "n1", 1, gpus=(0,))
    cluster.runs("old", "n2", 1, gpus=(0, 1))
    cluster.waits("head", gpus=8)
    cluster.waits("single", gpus=7)
    cluster.go()
    assert [kept.nodes for kept in cluster.kept.values()] == [("n1",)]
    cluster.nodes.set_open("n1", False)
    cluster.gain += 1
    cluster.waits("other", gpus=1)
    assert cluster.go() == {}
    assert [kept.nodes for kept in cluster.kept.values()] == [("n2",)]


def test_one_who_makes_no_difference_may_enter() -> None:
    """The head needs two cores and the leaving task has three, so one core that is free now does not matter."""
    cluster = PlannedCluster(n1=4)
    cluster.runs("old", "n1", 3)
    cluster.waits("head", cores=2)
    cluster.waits("small", cores=1)
    assert cluster.placed() == {"small": ["n1"]}
    cluster = PlannedCluster(n1=4)
    for number in range(3):
        cluster.runs(f"old-{number}", "n1", 1)
    cluster.waits("head", cores=2)
    cluster.waits("small", cores=1)
    assert cluster.placed() == {}


def test_cores_that_the_head_does_not_need_are_given_out_on_nodes_where_it_lacks_devices() -> None:
    cluster = PlannedCluster()
    cluster.add_node("n1", 64, gpus=2)
    cluster.runs("old", "n1", 1, gpus=(0,))
    cluster.waits("head", gpus=2, cores=8)
    cluster.waits("cpu", cores=55)
    cluster.waits("gpu", gpus=1)
    assert cluster.placed() == {"cpu": ["n1"]}


def test_who_is_over_soon_may_go_first() -> None:
    cluster = two_racks()
    cluster.waits("short", gpus=1, limit=600.0)
    cluster.waits("long", gpus=1, limit=601.0)
    assert one_ends(cluster, "second") == {"short": ["n3"]}


def kept_for(cluster: PlannedCluster, name: str) -> Reason | None:
    """What is reported as kept for a waiting job."""
    snapshot = cluster.snapshot()
    with Draft(snapshot) as draft:
        found = kept_now(snapshot, draft, cluster.units[name], Policy(), {})
    return None if found is None else room_kept(found)


def test_the_head_is_told_what_is_kept_and_those_behind_that_they_would_delay_it() -> None:
    cluster = two_racks()
    one_ends(cluster, "second")
    kept = kept_for(cluster, "head")
    assert kept is not None and kept.code == "RoomKept"
    assert (
        "rack r2 (n3, n4) is reserved for it; 12 of the 16 GPUs that it needs there are still in use"
        in kept.text
    )
    assert kept.numbers == {"nodes": ["n3", "n4"], "lacks": {"GPUs": 12}, "unlimited": 3}
    assert kept_for(cluster, "singles") is None
    behind = held_back(cluster.snapshot(), cluster.units["singles"], Policy())
    assert behind is not None and behind.code == "ReservedForOther"
    assert "it would delay head" in behind.text and "rack r2 (n3, n4) is kept" in behind.text


def test_the_head_is_told_when_it_starts_at_the_latest_if_limits_say_so() -> None:
    cluster = PlannedCluster(n1=4)
    cluster.runs("old", "n1", 4, until=1600.0)
    cluster.waits("head", cores=4)
    cluster.go()
    kept = kept_for(cluster, "head")
    assert kept is not None and (kept.numbers["nodes"], kept.numbers["seconds"]) == (["n1"], 600.0)


@pytest.mark.parametrize("backfill", ["easy", "none"])
def test_a_gang_that_needs_a_member_back_is_not_held_behind_a_head_that_waits_for_its_places(
    backfill: Backfill,
) -> None:
    """Found by the simulator (seed 908): the others would hold their places until it is there, and the head wait."""
    cluster = PlannedCluster(n1=8)
    cluster.runs("gang", "n1", 3)
    cluster.waits_whole("head", 1, cores=8)
    unit = cluster.waits_whole("gang", 1, cores=2)
    assert cluster.go(Policy(backfill=backfill)) == {}
    unit.comes_back = True
    cluster.gain += 1
    assert cluster.go(Policy(backfill=backfill)) == {"gang": ["n1"]}


def test_no_node_is_let_go_because_another_one_empties_first() -> None:
    """Found by a property test: its free core went to a task behind, and the head waited for another."""
    cluster = PlannedCluster(n1=4, n2=2)
    cluster.runs("long", "n1", 1)
    cluster.runs("first", "n1", 3)
    cluster.runs("second", "n2", 1)
    cluster.waits_whole("head", 2, cores=2)
    cluster.waits("single", 1, tasks=3)
    assert cluster.go() == {}
    assert [kept.nodes for kept in cluster.kept.values()] == [("n1", "n2")]
    assert one_ends(cluster, "first") == {"single": ["n1"]}
    assert [kept.nodes for kept in cluster.kept.values()] == [("n1", "n2")]
    assert one_ends(cluster, "second")["head"] == ["n1", "n2"]
