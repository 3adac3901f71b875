"""The columns over all nodes, and the units that wait for a place."""

from __future__ import annotations

import pytest

from phalanx.core.cluster.jobs import JobState
from phalanx.core.model.columns import KINDS_MAX
from phalanx.core.model.plan import Policy, Snapshot
from phalanx.core.model.queues import Queues
from phalanx.core.model.resources import Grant, Request, Target
from phalanx.core.model.score import Score
from phalanx.core.model.table import NodeTable
from phalanx.core.model.tenants import Tenants
from phalanx.core.model.waiting import Waiting
from phalanx.core.placement.best_node import BestNode
from phalanx.core.placement.engine import plan
from tests.support.builders import GIB, a_capacity, a_job


def a_table(*cores: int, gpus: int = 0) -> NodeTable:
    table = NodeTable()
    for number, count in enumerate(cores, start=1):
        table.put(f"n{number}", a_capacity(cores=count, gpus=gpus))
        table.set_open(f"n{number}", True)
    return table


def test_only_open_nodes_with_enough_of_everything_are_candidates() -> None:
    table = a_table(2, 4, 8)
    table.set_open("n3", False)
    assert (table.slots(Request(cores=3)).column > 0).tolist() == [False, True, False]
    assert (table.slots(Request(cores=1, memory_bytes=17 * GIB)).column > 0).any() == False  # noqa: E712
    assert (table.slots(Request(cores=1, target=Target("n1"))).column > 0).tolist() == [True, False, False]
    assert not (table.slots(Request(target=Target("elsewhere"))).column > 0).any()


def test_a_node_that_is_away_could_still_come_back() -> None:
    table = a_table(2, 8)
    table.set_open("n2", False)
    assert table.could_ever(Request(cores=8))
    assert not table.could_ever(Request(cores=8, target=Target("n1")))


def test_device_columns_follow_what_is_taken_and_given_back() -> None:
    table = a_table(8, gpus=2)
    asked = Request(gpus=2, gpu_type="h100")
    assert (table.slots(asked).column > 0).all()
    table.take(0, Grant(1, 0, (1,)))
    assert not (table.slots(asked).column > 0).any()
    table.give_back(0, Grant(1, 0, (1,)))
    assert (table.slots(asked).column > 0).all()


def test_users_cannot_make_columns_without_end() -> None:
    table = a_table(8, gpus=1)
    for number in range(2 * KINDS_MAX):
        table.slots(Request(gpus=1, gpu_type=f"type-{number}"))
    assert len(table.columns._devices) <= KINDS_MAX
    assert (table.slots(Request(gpus=1, gpu_type="h100")).column > 0).all()


@pytest.mark.parametrize(
    ("score", "order"),
    [("most-free-cores", "n2 n3 n1 n2 n3 n1 n2 n3"), ("pack", "n1 n1 n2 n2 n2 n3 n3 n3")],
)
def test_the_best_spot_is_what_the_score_says_and_the_earlier_node_wins_a_tie(
    score: Score, order: str
) -> None:
    table = a_table(4, 6, 6)
    spots = BestNode(table, Request(cores=2), score)
    found = []
    while (spot := spots.best()) is not None:
        row, grant = spot
        table.take(row, grant)
        spots.taken(row)
        found.append(table.names[row])
    assert found == order.split()


def test_the_queue_is_by_priority_then_arrival_across_classes() -> None:
    waiting = Waiting()
    jobs = [a_job(), a_job(cores=2), a_job(priority=5), a_job(cores=2, priority=5), a_job()]
    for arrival, job in enumerate(jobs):
        waiting.add(JobState(job, arrival, [0] * 6).groups[0])
    seen = Snapshot(a_table(8), waiting, 0, Tenants(), Queues(), 0.0)
    proposed = plan(seen, Policy()).placements
    assert [each.job for each in proposed] == [jobs[n].id for n in (2, 3, 0, 1, 4)]
    assert len(waiting.classes) == 2


def test_a_job_waits_once_and_leaves_nothing_behind() -> None:
    waiting, unit = Waiting(), JobState(a_job(), 1, [0] * 6).groups[0]
    waiting.add(unit)
    waiting.add(unit)
    assert (len(waiting), unit in waiting) == (1, True)
    waiting.discard(unit)
    waiting.discard(unit)
    assert (len(waiting), waiting.classes) == (0, {})
