"""The cluster as a state machine: what follows from what, with the invariants checked after every turn."""

from __future__ import annotations

import pytest

from phalanx.core.cluster.decision import Accepted, Disposed, Refused
from phalanx.core.cluster.inputs import Cancel, Tick
from phalanx.core.model.orders import Disposition, Start, Status, Stop, Why
from phalanx.core.model.plan import Policy
from phalanx.core.model.score import Score
from tests.support.builders import GIB, Cluster, a_cluster, a_job


def test_a_job_runs_from_submit_to_completed() -> None:
    cluster = a_cluster(n1={})
    job = a_job()
    assert isinstance(cluster.submit(job), Accepted)
    assert cluster.status(job) == Status.ASSIGNED
    assert [type(order) for _, order in cluster.orders] == [Start]
    cluster.started("n1", (job.id, 0, 1))
    assert cluster.status(job) == Status.RUNNING
    cluster.ended("n1", (job.id, 0, 1))
    assert cluster.status(job) == Status.COMPLETED


def test_a_report_told_twice_changes_nothing_the_second_time() -> None:
    cluster = a_cluster(n1={})
    job = a_job()
    cluster.submit(job)
    first = cluster.ended("n1", (job.id, 0, 1))
    again = cluster.ended("n1", (job.id, 0, 1))
    assert isinstance(first, Disposed)
    assert first.disposition == Disposition.ACCEPTED
    assert isinstance(again, Disposed)
    assert again.disposition == Disposition.DUPLICATE


def test_stale_reports_are_told_apart_and_change_nothing() -> None:
    cluster = a_cluster(n1={}, n2={})
    job = a_job("n1", max_retries=3)
    cluster.submit(job)
    cluster.ended("n1", (job.id, 0, 1), code=1)
    verdicts = [
        cluster.ended("n1", (job.id, 0, 2), epoch=0),
        cluster.ended("n1", (job.id, 0, 2), life="b"),
        cluster.ended("n2", (job.id, 0, 2)),
        cluster.ended("n1", (job.id, 0, 1)),
        cluster.ended("n1", ("0" * 26, 0, 1)),
    ]
    assert [v.disposition for v in verdicts if isinstance(v, Disposed)] == [
        Disposition.STALE_EPOCH,
        Disposition.STALE_LEASE,
        Disposition.STALE_ATTEMPT,
        Disposition.STALE_ATTEMPT,
        Disposition.UNKNOWN,
    ]
    assert cluster.status(job) == Status.ASSIGNED


def test_failures_are_retried_with_backoff_and_then_final() -> None:
    cluster = a_cluster(n1={})
    job = a_job(max_retries=2)
    cluster.submit(job)
    cluster.ended("n1", (job.id, 0, 1), code=3)
    assert cluster.status(job) == Status.ASSIGNED, "the first retry is at once"
    cluster.ended("n1", (job.id, 0, 2), code=3)
    assert cluster.status(job) == Status.PENDING
    cluster.now += 1.0
    cluster.give(Tick())
    cluster.ended("n1", (job.id, 0, 3), code=3)
    assert cluster.status(job) == Status.FAILED


def test_a_lost_node_is_not_charged_to_the_task_but_has_its_own_limit() -> None:
    cluster = a_cluster(n1={}, n2={})
    job = a_job(max_retries=0)
    cluster.submit(job)
    for number in range(1, 7):
        attempt = cluster.state.jobs[job.id].live[0]
        assert attempt.key[2] == number
        other = "n2" if attempt.node == "n1" else "n1"
        for _ in range(7):
            cluster.now += 5.0
            cluster.beat(other)
            cluster.give(Tick())
        cluster.add_node(attempt.node, life=f"life-{number}")
        if number == 1:
            assert cluster.state.nodes[attempt.node].incarnation == "life-1"
        cluster.state.nodes[other].incarnation = "a"
        cluster.state.nodes[attempt.node].incarnation = "a"
    assert cluster.status(job) == Status.FAILED
    assert cluster.state.jobs[job.id].why[0] == Why.LOST


def test_cancel_of_a_placed_task_tells_the_runner_and_a_late_success_changes_nothing() -> None:
    cluster = a_cluster(n1={"cores": 1})
    job, behind = a_job(), a_job()
    cluster.submit(job)
    cluster.submit(behind)
    cluster.give(Cancel(job.id))
    assert cluster.status(job) == Status.CANCELLED
    assert isinstance(cluster.orders[-1][1], Stop)
    assert cluster.status(behind) == Status.PENDING, "the core is held until the end is confirmed"
    cluster.ended("n1", (job.id, 0, 1), code=0)
    assert cluster.status(job) == Status.CANCELLED
    assert cluster.status(behind) == Status.ASSIGNED


def test_a_request_no_node_could_hold_is_refused_with_numbers() -> None:
    cluster = a_cluster(n1={"cores": 8}, n2={"cores": 4})
    answer = cluster.submit(a_job(cores=9))
    assert isinstance(answer, Refused)
    assert answer.kind == "never"
    assert (answer.reason.numbers["wanted"], answer.reason.numbers["total"]) == (9, 8)
    assert not cluster.state.jobs


@pytest.mark.parametrize(("score", "node"), [("pack", "n2"), ("most-free-cores", "n1")])
def test_auto_placement_takes_the_node_that_the_score_names_and_that_fits_in_memory_too(
    score: Score, node: str
) -> None:
    cluster = Cluster(policy=Policy(score=score))
    cluster.add_node("n1", cores=8, memory=4 * GIB)
    cluster.add_node("n2", cores=4, memory=16 * GIB)
    small, large = a_job(), a_job(memory_bytes=8 * GIB)
    cluster.submit(small)
    cluster.submit(large)
    assert cluster.state.jobs[small.id].live[0].node == node
    assert cluster.state.jobs[large.id].live[0].node == "n2"


def test_priority_goes_before_arrival() -> None:
    cluster = a_cluster(n1={"cores": 1})
    first, low, high = a_job(), a_job(), a_job(priority=5)
    for job in (first, low, high):
        cluster.submit(job)
    cluster.ended("n1", (first.id, 0, 1))
    assert cluster.status(high) == Status.ASSIGNED
    assert cluster.status(low) == Status.PENDING


def test_an_array_limit_holds() -> None:
    cluster = a_cluster(n1={"cores": 8})
    job = a_job(array="1-10%3")
    cluster.submit(job)
    assert len(cluster.state.jobs[job.id].live) == 3
    cluster.ended("n1", (job.id, 0, 1))
    assert sorted(cluster.state.jobs[job.id].live) == [1, 2, 3]


def test_short_tasks_queue_in_the_lanes_of_their_own_job() -> None:
    cluster = a_cluster(n1={"cores": 1})
    job = a_job(array="1-100")
    cluster.submit(job)
    for position in range(5):
        cluster.ended("n1", (job.id, position, 1))
    state = cluster.state.jobs[job.id]
    assert len(state.live) > 1
    assert len(cluster.state.nodes["n1"].lanes) == 1


def test_a_returned_node_is_quarantined_until_its_older_attempts_have_ended() -> None:
    cluster = a_cluster(n1={"cores": 1}, n2={"cores": 1})
    job = a_job("n1")
    cluster.submit(job)
    for _ in range(7):
        cluster.now += 5.0
        cluster.beat("n2")
        cluster.give(Tick())
    old = (job.id, 0, 1)
    cluster.add_node("n1", life="b", held=(old,), cores=1)
    assert cluster.status(job) == Status.PENDING, "its core is not given out while the old attempt lives"
    cluster.ended("n1", old, life="b", code=0)
    assert cluster.status(job) == Status.ASSIGNED
    assert cluster.state.jobs[job.id].live[0].key == (job.id, 0, 2)
