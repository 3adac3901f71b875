"""Evictions in the plan: when victims are searched, and how often."""

from __future__ import annotations

import pytest

from phalanx.core.cluster.inputs import Tick
from phalanx.core.model.orders import Status
from phalanx.core.model.plan import GangPlacement, Policy
from phalanx.core.placement import engine
from phalanx.core.placement.preempt import make_room as preempt_make_room
from tests.support.builders import a_cluster, a_gang, a_group, a_job
from tests.support.planned_cluster import PlannedCluster


def a_full_cluster() -> PlannedCluster:
    cluster = PlannedCluster(n1=2, n2=2)
    cluster.runs("low", "n1", 2, until=9000.0)
    cluster.runs("high", "n2", 2, until=9000.0, priority=50)
    return cluster


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jobs for which victims were searched, in order."""
    asked: list[str] = []
    real = preempt_make_room.make_room

    def make_room(draft, unit, policy):
        asked.append(unit.job.id)
        return real(draft, unit, policy)

    monkeypatch.setattr(engine, "make_most_room", make_room)
    return asked


def victims(gang_placements: list[GangPlacement]) -> dict[str, tuple[tuple[str, int], ...]]:
    return {gang_placement.job: gang_placement.victims for gang_placement in gang_placements}


def test_a_gang_takes_the_place_of_a_less_urgent_job() -> None:
    cluster = a_full_cluster()
    cluster.waits_whole("gang", 2, priority=10)
    assert victims(cluster.plan().gang_placements) == {"gang": (("low", 0),)}


def test_a_single_task_takes_the_place_of_a_less_urgent_job() -> None:
    cluster = a_full_cluster()
    cluster.waits("task", cores=2, priority=10)
    assert victims(cluster.plan().gang_placements) == {"task": (("low", 0),)}


def test_nobody_is_evicted_where_there_is_room() -> None:
    cluster = a_full_cluster()
    cluster.add_node("n3", 2)
    cluster.waits_whole("gang", 2, priority=10)
    assert victims(cluster.plan().gang_placements) == {"gang": ()}


@pytest.mark.parametrize("priority", [0, 10])
def test_only_who_is_more_urgent_than_somebody_looks_for_victims(
    monkeypatch: pytest.MonkeyPatch, priority: int
) -> None:
    asked = counted(monkeypatch)
    cluster = a_full_cluster()
    cluster.waits("task", cores=2, priority=priority)
    cluster.plan()
    assert asked == (["task"] if priority else [])


def test_neither_a_job_nor_a_cluster_that_evicts_nobody_looks_for_victims(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = counted(monkeypatch)
    cluster = a_full_cluster()
    cluster.waits("task", cores=2, priority=10, may_evict=False)
    cluster.plan()
    cluster.waits("other", cores=1, priority=10)
    cluster.plan(Policy(evicts=False))
    assert asked == []


def test_a_class_that_found_nobody_to_evict_looks_again_only_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = counted(monkeypatch)
    cluster = a_full_cluster()
    cluster.waits_whole("gang", 4, priority=10)
    cluster.plan()
    cluster.gain += 1
    cluster.plan()
    assert asked == ["gang"]
    cluster.now += 1.0
    cluster.plan()
    assert asked == ["gang", "gang"], "though no room has appeared"


def test_what_victims_leave_is_not_given_to_another() -> None:
    cluster = a_full_cluster()
    cluster.waits_whole("gang", 2, priority=10)
    cluster.waits("other", cores=2, priority=9)
    proposal = cluster.plan()
    assert victims(proposal.gang_placements) == {"gang": (("low", 0),)}
    assert proposal.placements == []


def test_a_job_that_gets_places_evicts_nobody_in_the_same_pass() -> None:
    cluster = a_full_cluster()
    cluster.add_node("n3", 1)
    cluster.waits("array", tasks=4, priority=10)
    proposal = cluster.plan()
    assert (len(proposal.placements), proposal.gang_placements) == (1, [])
    cluster.go()
    assert victims(cluster.plan().gang_placements) == {"array": (("low", 0),)}


def test_a_job_with_a_promise_gets_nothing_more_in_the_same_pass() -> None:
    cluster = a_full_cluster()
    cluster.waits("array", tasks=4, priority=10)
    proposal = cluster.plan()
    assert len(proposal.gang_placements) == 1 and proposal.placements == []


def test_another_group_of_a_job_with_a_promise_gets_nothing_in_the_same_pass() -> None:
    cluster = a_full_cluster()
    cluster.add_node("n3", 1)
    cluster.waits("job", cores=2, priority=10)
    cluster.waits("job", cores=1, priority=10)
    proposal = cluster.plan()
    assert len(proposal.gang_placements) == 1 and proposal.placements == []


def test_one_pass_works_out_only_so_often_whom_to_evict(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = counted(monkeypatch)
    cluster = PlannedCluster(n1=8)
    for number in range(8):
        cluster.runs(f"low-{number}", "n1", 1, until=9000.0)
    for number in range(8):
        cluster.waits(f"task-{number}", priority=10, queue=f"q{number}")
    proposal = cluster.plan(Policy(evictions_max=3))
    assert (len(proposal.gang_placements), len(asked), proposal.more) == (3, 3, True)
    cluster.go(Policy(evictions_max=3))
    assert set(victims(cluster.plan(Policy(evictions_max=3)).gang_placements)) == {
        "task-3",
        "task-4",
        "task-5",
    }


def test_looking_in_vain_asks_for_no_other_pass() -> None:
    cluster = a_full_cluster()
    for number in range(3):
        cluster.waits_whole(f"gang-{number}", 4, priority=10, queue=f"q{number}")
    assert not cluster.plan(Policy(evictions_max=2)).more


def test_an_urgent_job_evicts_within_the_quota_of_its_queue() -> None:
    cluster = PlannedCluster(n1=4)
    cluster.quota("default", cores=2)
    cluster.runs("low", "n1", 2, until=9000.0)
    cluster.waits("task", cores=2, priority=10)
    assert victims(cluster.plan().gang_placements) == {"task": (("low", 0),)}


def test_nobody_behind_the_head_evicts_what_the_head_waits_for() -> None:
    cluster = PlannedCluster(n1=4)
    cluster.runs("low", "n1", 2, until=2000.0)
    cluster.runs("high", "n1", 2, until=3000.0, priority=50)
    cluster.waits("head", cores=4, priority=10)
    cluster.waits("long", cores=2, priority=9, limit=1e6)
    assert cluster.plan().gang_placements == []
    cluster.waits("short", cores=2, priority=9, limit=100.0, queue="other")
    assert victims(cluster.plan().gang_placements) == {"short": (("low", 0),)}


def test_a_plan_with_evictions_changes_nothing() -> None:
    cluster = a_full_cluster()
    cluster.waits_whole("gang", 2, priority=10)
    cluster.plan()
    assert cluster.free() == {"n1": 0, "n2": 0}
    assert cluster.queues.usage["default"][1] == 4000


def test_a_gang_that_has_all_it_needs_evicts_nobody_for_a_surplus_member():
    cluster = a_cluster(n1={"cores": 2}, n2={"cores": 1})
    low, gang = a_job("n2"), a_gang(a_group(3, min=2), priority=5)
    cluster.submit(low)
    cluster.started("n2", (low.id, 0, 1))
    cluster.submit(gang)
    for key in [(gang.id, position, 1) for position in (0, 1)]:
        cluster.ready("n1", key)
    assert cluster.state.jobs[gang.id].satisfied
    for _ in range(20):
        cluster.now += 1.0
        cluster.beat("n1", *cluster.state.nodes["n1"].attempts)
        cluster.beat("n2", *cluster.state.nodes["n2"].attempts)
        cluster.give(Tick())
    assert cluster.state.jobs[low.id].live[0].ending is None
    assert cluster.status(gang, 2) == Status.PENDING
    cluster.ended("n2", (low.id, 0, 1))
    assert cluster.status(gang, 2) == Status.ASSIGNED, "where there is room, it comes by itself"
