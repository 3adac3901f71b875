"""Scores by name: `pack` keeps what is large whole (P4, M16), `most-free-cores` is seed 000's rule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.core.model.plan import Policy
from phalanx.core.model.quantity import magnitude
from phalanx.core.model.score import _MEMORY_BITS, _magnitudes
from tests.unit.core.yard import Yard

SPREAD = Policy(score="most-free-cores")


def four_of_eight() -> Yard:
    yard = Yard()
    for number in range(1, 5):
        yard.add_node(f"n{number}", 64, gpus=8, rack="r1")
    return yard


def a_mixed_yard() -> Yard:
    """The largest node first, so that whoever takes the first or the emptiest one takes that."""
    yard = Yard()
    yard.add_node("big", 128, gpus="h100 " * 8)
    yard.add_node("small", 32, gpus="t4 " * 4)
    yard.add_node("plain", 64)
    return yard


def test_four_small_tasks_leave_three_of_four_nodes_whole() -> None:
    yard = four_of_eight()
    yard.waits("array", gpus=1, tasks=4)
    assert yard.go() == {"array": ["n1"] * 4}
    yard.waits_whole("gang", 2, gpus=8, must="rack")
    assert set(yard.go()["gang"]) <= {"n2", "n3", "n4"}


def test_by_the_rule_of_seed_000_four_small_tasks_take_all_four_nodes() -> None:
    yard = four_of_eight()
    yard.waits("array", gpus=1, tasks=4)
    assert yard.placed(SPREAD) == {"array": ["n1", "n2", "n3", "n4"]}


def test_a_gpu_task_takes_the_smallest_type_that_suffices() -> None:
    yard = a_mixed_yard()
    yard.waits("one", gpus=1, tasks=5)
    assert yard.placed() == {"one": ["small"] * 4 + ["big"]}
    assert yard.placed(SPREAD)["one"] == ["big"] * 5


def test_a_task_without_gpus_leaves_nodes_with_free_gpus_alone() -> None:
    yard = a_mixed_yard()
    yard.waits("cpu", cores=32, tasks=5)
    assert yard.placed() == {"cpu": ["plain", "plain", "small", "big", "big"]}
    assert yard.placed(SPREAD)["cpu"][0] == "big"


def test_a_node_whose_gpus_are_all_taken_is_used_before_one_with_free_gpus() -> None:
    yard = Yard()
    yard.add_node("free", 8, gpus="t4")
    yard.add_node("taken", 16, gpus="h100")
    yard.runs("old", "taken", 1, gpus=(0,))
    yard.waits("cpu", cores=8)
    assert yard.placed() == {"cpu": ["taken"]}


def test_of_one_type_the_fewest_free_devices_then_cores_then_memory_decide() -> None:
    yard = Yard()
    yard.add_node("n1", 32, gpus=4)
    yard.add_node("n2", 16, gpus=4)
    yard.add_node("n3", 64, gpus=4)
    yard.runs("old", "n3", 1, gpus=(0,))
    yard.waits("a", gpus=2)
    assert yard.go() == {"a": ["n3"]}
    yard.waits("b", gpus=2)
    assert yard.go() == {"b": ["n2"]}
    yard.nodes.put(
        "n4", yard.nodes.ledgers[0].capacity.__class__(32, 999, (), yard.nodes.ledgers[0].capacity.devices)
    )
    yard.nodes.set_open("n4", True)
    yard.waits("c", gpus=4)
    assert yard.go() == {"c": ["n4"]}


def test_on_a_node_with_two_types_the_smaller_devices_are_given_out_first() -> None:
    yard = Yard()
    yard.add_node("both", 64, gpus="h100 h100 t4 t4 t4")
    yard.waits("two", gpus=2, tasks=2)
    assert [each.grant.devices for each in yard.plan().placements] == [(2, 3), (0, 1)]


def test_when_its_small_devices_are_taken_a_mixed_node_is_no_better_than_another() -> None:
    yard = Yard()
    yard.add_node("both", 8, gpus="h100 h100 t4")
    yard.add_node("mid", 64, gpus="a100 a100")
    yard.waits("one", gpus=1, tasks=4)
    assert yard.placed() == {"one": ["both", "mid", "mid", "both"]}


def test_a_gang_takes_the_smallest_type_of_nodes_that_hold_it() -> None:
    yard = a_mixed_yard()
    yard.waits_whole("gang", 2, gpus=2)
    assert yard.placed() == {"gang": ["small", "small"]}
    yard = a_mixed_yard()
    yard.waits_whole("cpu", 2, cores=16)
    assert yard.placed() == {"cpu": ["plain", "plain"]}


def test_a_gang_leaves_the_precious_nodes_of_its_domain_alone() -> None:
    yard = Yard()
    for number in range(2):
        yard.add_node(f"gpu{number}", 64, gpus=8, rack="r1")
    for number in range(4):
        yard.add_node(f"cpu{number}", 8, rack="r1")
    yard.waits_whole("four", 4, cores=8, must="rack")
    assert sorted(yard.placed()["four"]) == ["cpu0", "cpu1", "cpu2", "cpu3"]
    yard.forget("four")
    yard.waits_whole("five", 5, cores=8, must="rack")
    assert yard.placed() == {"five": ["gpu0"] * 5}
    assert yard.placed(SPREAD) == {"five": ["gpu0"] * 5}


def test_a_gang_uses_the_smaller_type_of_a_rack_with_two() -> None:
    yard = Yard()
    for number in range(2):
        yard.add_node(f"h{number}", 64, gpus="h100 h100", rack="r1")
        yard.add_node(f"t{number}", 64, gpus="t4 t4", rack="r1")
    yard.waits_whole("gang", 4, gpus=1, must="rack")
    assert sorted(yard.placed()["gang"]) == ["t0", "t0", "t1", "t1"]


def test_of_two_racks_the_one_of_the_smaller_type_is_taken_though_it_is_roomier() -> None:
    yard = Yard()
    for number in range(2):
        yard.add_node(f"h{number}", 64, gpus="h100 h100", rack="r1")
    for number in range(3):
        yard.add_node(f"t{number}", 64, gpus="t4 t4", rack="r2")
    yard.waits_whole("gang", 4, gpus=1, must="rack")
    assert sorted(yard.placed()["gang"]) == ["t0", "t0", "t1", "t1"]
    assert {each[0] for each in yard.placed(SPREAD)["gang"]} == {"h"}


@pytest.mark.parametrize("score", ["pack", "most-free-cores"])
def test_who_stays_beside_the_head_is_placed_by_the_same_score(score: str) -> None:
    yard = Yard(kept=4, wide=8, tight=2)
    yard.runs("old", "kept", 4, until=2000.0)
    yard.waits("large", cores=10)
    yard.waits("head", cores=4, target="kept")
    yard.waits("long", cores=1, limit=1e6)
    found = yard.placed(Policy(score=score))  # type: ignore[arg-type]
    assert found == {"long": ["tight" if score == "pack" else "wide"]}


@given(st.lists(st.integers(0, 1 << 52), min_size=1))
def test_magnitudes_of_many_are_those_of_one_and_keep_their_order(amounts: list[int]) -> None:
    many = _magnitudes(np.array(amounts, dtype=np.int64)).tolist()
    assert many == [magnitude(amount, _MEMORY_BITS) for amount in amounts]
    assert sorted(many) == [magnitude(amount, _MEMORY_BITS) for amount in sorted(amounts)]
