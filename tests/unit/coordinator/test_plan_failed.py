"""A plan that fails with one job, a defect of ours: the cluster continues without that job, and reports it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from phalanx.coordinator import turn as coordinator_turn
from phalanx.coordinator.why import why_reply
from phalanx.core.cluster.decide import gangs
from phalanx.core.cluster.inputs import Submit, Tick
from phalanx.core.cluster.invariants import check
from phalanx.core.explain import reserved
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Status
from phalanx.core.model.plan import Policy
from phalanx.core.model.resources import Grant
from phalanx.core.placement import engine
from phalanx.core.placement.gang.grants import try_gang
from phalanx.core.placement.reserve import reservation
from phalanx.core.placement.reserve.reservation import reserve
from tests.support.builders import Cluster, a_cluster, a_gang, a_group, a_job


def failing(act: Callable[..., Any], job: Job) -> Callable[..., Any]:
    """The same, but it fails with this job, after it has changed the draft."""

    def act_or_fail(draft: Any, unit: Any, *rest: Any, **more: Any) -> Any:
        if unit.job.id != job.id:
            return act(draft, unit, *rest, **more)
        draft.take(0, Grant(cores=1, memory_bytes=0), ("default", ""))
        raise ZeroDivisionError("planted")

    return act_or_fail


def a_small_cluster() -> Cluster:
    cluster = a_cluster(n1={"cores": 4})
    cluster.plans_may_fail = True
    return cluster


def test_the_others_are_placed_and_the_job_says_why_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    gang, other = a_gang(a_group(2, cores=1)), a_job(cores=1)
    monkeypatch.setattr(engine, "try_gang", failing(try_gang, gang))
    cluster = a_small_cluster()
    cluster.submit(gang)
    cluster.submit(other)
    assert cluster.status(other) == Status.ASSIGNED
    reply = why_reply(
        cluster.state, cluster.state.jobs[gang.id], None, cluster.now, memory=cluster.engine.memory
    )
    assert (reply.dominant.code, reply.dominant.tier) == ("PlanFailed", "held")
    assert "ZeroDivisionError: planted" in reply.dominant.text


def test_it_is_tried_again_after_a_while_and_not_at_every_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    gang = a_gang(a_group(2, cores=1))
    monkeypatch.setattr(engine, "try_gang", failing(try_gang, gang))
    cluster = a_small_cluster()
    cluster.submit(gang)
    cluster.submit(a_job(cores=1))
    assert sum(len(turn.failures) for turn in cluster.turns) == 1
    monkeypatch.setattr(engine, "try_gang", try_gang)
    cluster.give(Tick())
    assert cluster.status(gang) == Status.PENDING
    cluster.now += coordinator_turn.FAILED_FOR_S
    cluster.give(Tick())
    assert cluster.status(gang) == Status.ASSIGNED


def test_the_head_is_the_one_for_which_no_place_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    head, behind = a_job(cores=4), a_job(cores=1)
    monkeypatch.setattr(reservation, "reserve", failing(reserve, head))
    cluster = a_small_cluster()
    cluster.submit(a_job(cores=3))
    cluster.submit(head)
    cluster.submit(behind)
    assert cluster.status(behind) == Status.ASSIGNED
    assert [failed.job for turn in cluster.turns for failed in turn.failures] == [head.id]


def test_what_is_planned_again_and_refused_again_waits_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan and check disagree about a job, a defect of ours: without an end the coordinator would plan for ever."""
    gang, other = a_gang(a_group(2, cores=1)), a_job(cores=1)
    monkeypatch.setattr(gangs, "_may_be_placed", lambda _state, job, _placement: job.job.id != gang.id)
    cluster = a_small_cluster()
    cluster.submit(gang)
    turns = 1
    while cluster.turns[-1].more:
        cluster.give()
        turns += 1
    assert turns <= 3 and [failed.job for turn in cluster.turns for failed in turn.failures] == [gang.id]
    cluster.submit(other)
    assert cluster.status(other) == Status.ASSIGNED
    reply = why_reply(
        cluster.state, cluster.state.jobs[gang.id], None, cluster.now, memory=cluster.engine.memory
    )
    assert reply.dominant.code == "PlanFailed" and "planned and refused twice" in reply.dominant.text
    monkeypatch.undo()
    cluster.now += coordinator_turn.FAILED_FOR_S
    cluster.give(Tick())
    assert cluster.status(gang) == Status.ASSIGNED


def test_a_turn_ends_when_every_plan_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(engine._Pass, "_place", fail)
    cluster = a_small_cluster()
    jobs = [a_job(cores=1, memory_bytes=number) for number in range(1, 2 * coordinator_turn.FAILURES_MAX)]
    for job in jobs:
        cluster.submit(job)
    cluster.give(Tick())
    assert all(cluster.status(job) == Status.PENDING for job in jobs)


def test_who_stands_behind_many_that_fail_is_placed_in_the_next_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gangs = [
        a_gang(a_group(2, cores=1, memory_bytes=number))
        for number in range(1, 3 * coordinator_turn.FAILURES_MAX)
    ]
    for gang in gangs:
        monkeypatch.setattr(engine, "try_gang", failing(engine.try_gang, gang))  # type: ignore[attr-defined]
    cluster, other = a_small_cluster(), a_job(cores=1)
    cluster.give(*(Submit(job) for job in (*gangs, other)))
    assert (cluster.turns[-1].more, cluster.status(other)) == (True, Status.PENDING)
    cluster.give()
    assert cluster.status(other) == Status.ASSIGNED


def test_a_plan_that_fails_and_leaves_something_behind_ends_the_term(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(turn: engine._Pass, *_: Any) -> None:
        turn.draft.nodes.take(0, Grant(cores=1, memory_bytes=0))
        raise ZeroDivisionError("planted")

    cluster = a_small_cluster()
    monkeypatch.setattr(engine._Pass, "_place", fail)
    with pytest.raises(AssertionError, match="has left its traces"):
        cluster.submit(a_job(cores=1))


def test_an_answer_that_fails_leaves_the_columns_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    head = a_job(cores=4)
    cluster = a_small_cluster()
    cluster.submit(a_job(cores=3))
    cluster.submit(head)
    cluster.submit(a_job(cores=1))
    monkeypatch.setattr(reserved, "reserve", failing(reserve, head))
    with pytest.raises(ZeroDivisionError):
        why_reply(
            cluster.state, cluster.state.jobs[head.id], None, cluster.now, Policy(), cluster.engine.memory
        )
    assert check(cluster.state) == []
