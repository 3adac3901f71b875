"""Scores by name: `pack` keeps what is large whole (P4, M16), `most-free-cores` is seed 000's rule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.core.model.amounts import magnitude
from phalanx.core.model.plan import Policy
from phalanx.core.model.score import _MEMORY_BITS, _magnitudes
from tests.support.planned_cluster import PlannedCluster

SPREAD = Policy(score="most-free-cores")


def four_of_eight() -> PlannedCluster:
    cluster = PlannedCluster()
    for number in range(1, 5):
        cluster.add_node(f"n{number}", 64, gpus=8, rack="r1")
    return cluster


def a_mixed_cluster() -> PlannedCluster:
    """The largest node first, so that a rule that takes the first or the emptiest one takes that."""
    cluster = PlannedCluster()
    cluster.add_node("big", 128, gpus="h100 " * 8)
    cluster.add_node("small", 32, gpus="t4 " * 4)
    cluster.add_node("plain", 64)
    return cluster


def test_four_small_tasks_leave_three_of_four_nodes_whole() -> None:
    cluster = four_of_eight()
    cluster.waits("array", gpus=1, tasks=4)
    assert cluster.go() == {"array": ["n1"] * 4}
    cluster.waits_whole("gang", 2, gpus=8, must="rack")
    assert set(cluster.go()["gang"]) <= {"n2", "n3", "n4"}


def test_by_the_rule_of_seed_000_four_small_tasks_take_all_four_nodes() -> None:
    cluster = four_of_eight()
    cluster.waits("array", gpus=1, tasks=4)
    assert cluster.placed(SPREAD) == {"array": ["n1", "n2", "n3", "n4"]}


def test_a_gpu_task_takes_the_smallest_type_that_suffices() -> None:
    cluster = a_mixed_cluster()
    cluster.waits("one", gpus=1, tasks=5)
    assert cluster.placed() == {"one": ["small"] * 4 + ["big"]}
    assert cluster.placed(SPREAD)["one"] == ["big"] * 5


def test_a_task_without_gpus_leaves_nodes_with_free_gpus_alone() -> None:
    cluster = a_mixed_cluster()
    cluster.waits("cpu", cores=32, tasks=5)
    assert cluster.placed() == {"cpu": ["plain", "plain", "small", "big", "big"]}
    assert cluster.placed(SPREAD)["cpu"][0] == "big"


def test_a_node_whose_gpus_are_all_taken_is_used_before_one_with_free_gpus() -> None:
    cluster = PlannedCluster()
    cluster.add_node("free", 8, gpus="t4")
    cluster.add_node("taken", 16, gpus="h100")
    cluster.runs("old", "taken", 1, gpus=(0,))
    cluster.waits("cpu", cores=8)
    assert cluster.placed() == {"cpu": ["taken"]}


def test_of_one_type_the_fewest_free_devices_then_cores_then_memory_decide() -> None:
    cluster = PlannedCluster()
    cluster.add_node("n1", 32, gpus=4)
    cluster.add_node("n2", 16, gpus=4)
    cluster.add_node("n3", 64, gpus=4)
    cluster.runs("old", "n3", 1, gpus=(0,))
    cluster.waits("a", gpus=2)
    assert cluster.go() == {"a": ["n3"]}
    cluster.waits("b", gpus=2)
    assert cluster.go() == {"b": ["n2"]}
    cluster.nodes.put(
        "n4",
        cluster.nodes.ledgers[0].capacity.__class__(32, 999, (), cluster.nodes.ledgers[0].capacity.devices),
    )
    cluster.nodes.set_open("n4", True)
    cluster.waits("c", gpus=4)
    assert cluster.go() == {"c": ["n4"]}


def test_on_a_node_with_two_types_the_smaller_devices_are_given_out_first() -> None:
    cluster = PlannedCluster()
    cluster.add_node("both", 64, gpus="h100 h100 t4 t4 t4")
    cluster.waits("two", gpus=2, tasks=2)
    assert [each.grant.devices for each in cluster.plan().placements] == [(2, 3), (0, 1)]


def test_when_its_small_devices_are_taken_a_mixed_node_is_no_better_than_another() -> None:
    cluster = PlannedCluster()
    cluster.add_node("both", 8, gpus="h100 h100 t4")
    cluster.add_node("mid", 64, gpus="a100 a100")
    cluster.waits("one", gpus=1, tasks=4)
    assert cluster.placed() == {"one": ["both", "mid", "mid", "both"]}


def test_a_gang_takes_the_smallest_type_of_nodes_that_hold_it() -> None:
    cluster = a_mixed_cluster()
    cluster.waits_whole("gang", 2, gpus=2)
    assert cluster.placed() == {"gang": ["small", "small"]}
    cluster = a_mixed_cluster()
    cluster.waits_whole("cpu", 2, cores=16)
    assert cluster.placed() == {"cpu": ["plain", "plain"]}


def test_a_gang_leaves_the_precious_nodes_of_its_domain_alone() -> None:
    cluster = PlannedCluster()
    for number in range(2):
        cluster.add_node(f"gpu{number}", 64, gpus=8, rack="r1")
    for number in range(4):
        cluster.add_node(f"cpu{number}", 8, rack="r1")
    cluster.waits_whole("four", 4, cores=8, must="rack")
    assert sorted(cluster.placed()["four"]) == ["cpu0", "cpu1", "cpu2", "cpu3"]
    cluster.forget("four")
    cluster.waits_whole("five", 5, cores=8, must="rack")
    assert cluster.placed() == {"five": ["gpu0"] * 5}
    assert cluster.placed(SPREAD) == {"five": ["gpu0"] * 5}


def test_a_gang_uses_the_smaller_type_of_a_rack_with_two() -> None:
    cluster = PlannedCluster()
    for number in range(2):
        cluster.add_node(f"h{number}", 64, gpus="h100 h100", rack="r1")
        cluster.add_node(f"t{number}", 64, gpus="t4 t4", rack="r1")
    cluster.waits_whole("gang", 4, gpus=1, must="rack")
    assert sorted(cluster.placed()["gang"]) == ["t0", "t0", "t1", "t1"]


def test_of_two_racks_the_one_of_the_smaller_type_is_taken_though_it_is_roomier() -> None:
    cluster = PlannedCluster()
    for number in range(2):
        cluster.add_node(f"h{number}", 64, gpus="h100 h100", rack="r1")
    for number in range(3):
        cluster.add_node(f"t{number}", 64, gpus="t4 t4", rack="r2")
    cluster.waits_whole("gang", 4, gpus=1, must="rack")
    assert sorted(cluster.placed()["gang"]) == ["t0", "t0", "t1", "t1"]
    assert {each[0] for each in cluster.placed(SPREAD)["gang"]} == {"h"}


@pytest.mark.parametrize("score", ["pack", "most-free-cores"])
def test_who_stays_beside_the_head_is_placed_by_the_same_score(score: str) -> None:
    cluster = PlannedCluster(kept=4, wide=8, tight=2)
    cluster.runs("old", "kept", 4, until=2000.0)
    cluster.waits("large", cores=10)
    cluster.waits("head", cores=4, target="kept")
    cluster.waits("long", cores=1, limit=1e6)
    found = cluster.placed(Policy(score=score))  # type: ignore[arg-type]
    assert found == {"long": ["tight" if score == "pack" else "wide"]}


@given(st.lists(st.integers(0, 1 << 52), min_size=1))
def test_magnitudes_of_many_are_those_of_one_and_keep_their_order(amounts: list[int]) -> None:
    many = _magnitudes(np.array(amounts, dtype=np.int64), _MEMORY_BITS).tolist()
    assert many == [magnitude(amount, _MEMORY_BITS) for amount in amounts]
    assert sorted(many) == [magnitude(amount, _MEMORY_BITS) for amount in sorted(amounts)]
