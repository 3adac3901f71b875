"""What becomes of a task when its attempt has ended."""

from __future__ import annotations

import pytest

from phalanx.core.cluster.decide.endings import backoff_s
from phalanx.core.cluster.decision import Disposed
from phalanx.core.cluster.inputs import Cancel, Tick
from phalanx.core.cluster.state import Timers
from phalanx.core.model.orders import UNCHARGED, Disposition, Ended, Exit, Returned, Status, Why
from tests.support.builders import Cluster, a_cluster, a_job


def end(cluster: Cluster, job: str, why: Why, code: int | None = None) -> None:
    attempt = cluster.state.jobs[job].live[0]
    cluster.tell(attempt.node, Ended(attempt.key, Exit(why, code)))


@pytest.mark.parametrize("why", sorted(UNCHARGED))
def test_what_the_task_did_not_do_is_not_charged(why: Why) -> None:
    cluster = a_cluster(n1={})
    job = a_job(max_retries=0)
    cluster.submit(job)
    end(cluster, job.id, why)
    assert cluster.status(job) == Status.ASSIGNED
    assert cluster.state.jobs[job.id].charged == {}


@pytest.mark.parametrize("why", [Why.TIMEOUT, Why.REFUSED, Why.STUCK])
def test_what_would_only_happen_again_is_not_tried_again(why: Why) -> None:
    cluster = a_cluster(n1={})
    job = a_job(max_retries=9)
    cluster.submit(job)
    end(cluster, job.id, why)
    assert cluster.status(job) == Status.FAILED


@pytest.mark.parametrize("why", [Why.EXITED, Why.SIGNALLED, Why.OOM])
def test_what_the_task_did_is_tried_again_as_often_as_was_asked(why: Why) -> None:
    cluster = a_cluster(n1={})
    job = a_job(max_retries=1)
    cluster.submit(job)
    end(cluster, job.id, why, 1)
    assert cluster.status(job) == Status.ASSIGNED
    end(cluster, job.id, why, 1)
    assert cluster.status(job) == Status.FAILED


def test_losses_have_a_limit_of_their_own_and_giving_back_has_none() -> None:
    cluster = Cluster(Timers(loss_limit=2))
    cluster.add_node("n1")
    job = a_job(max_retries=0)
    cluster.submit(job)
    for _ in range(5):
        cluster.tell("n1", Returned(cluster.state.jobs[job.id].live[0].key))
    for _ in range(2):
        end(cluster, job.id, Why.FENCED)
    assert cluster.status(job) == Status.ASSIGNED
    end(cluster, job.id, Why.LOST)
    assert cluster.status(job) == Status.FAILED


def test_a_node_without_room_for_a_process_costs_a_task_nothing_but_time() -> None:
    cluster = Cluster(Timers(loss_limit=2))
    cluster.add_node("n1")
    job = a_job(max_retries=0)
    cluster.submit(job)
    end(cluster, job.id, Why.EXHAUSTED)
    assert cluster.status(job) == Status.ASSIGNED  # the first time at once
    for wait_s in (1.0, 2.0, 4.0, 8.0):
        end(cluster, job.id, Why.EXHAUSTED)
        assert cluster.status(job) == Status.PENDING
        cluster.now += wait_s
        cluster.beat("n1")
        cluster.give(Tick())
        assert cluster.status(job) == Status.ASSIGNED
    cluster.ended("n1", cluster.state.jobs[job.id].live[0].key)
    assert cluster.status(job) == Status.COMPLETED


def test_the_backoff_doubles_up_to_its_limit() -> None:
    state = Cluster().state
    assert [backoff_s(state, failures) for failures in range(1, 9)] == [0, 1, 2, 4, 8, 16, 30, 30]
    assert backoff_s(state, 10_000) == 30


def test_success_before_the_start_was_told_is_success() -> None:
    cluster = a_cluster(n1={})
    job = a_job()
    cluster.submit(job)
    cluster.ended("n1", (job.id, 0, 1))
    assert cluster.status(job) == Status.COMPLETED
    assert cluster.state.jobs[job.id].first_started_at == cluster.now


def test_a_start_told_after_the_end_changes_nothing() -> None:
    cluster = a_cluster(n1={})
    job = a_job()
    cluster.submit(job)
    cluster.ended("n1", (job.id, 0, 1))
    answer = cluster.started("n1", (job.id, 0, 1))
    assert isinstance(answer, Disposed)
    assert answer.disposition == Disposition.STALE_ATTEMPT


def test_what_is_running_cannot_be_given_back() -> None:
    cluster = a_cluster(n1={})
    job = a_job()
    cluster.submit(job)
    cluster.started("n1", (job.id, 0, 1))
    answer = cluster.tell("n1", Returned((job.id, 0, 1)))
    assert isinstance(answer, Disposed)
    assert answer.disposition == Disposition.DUPLICATE
    assert cluster.status(job) == Status.RUNNING


def test_a_cancelled_task_that_failed_is_not_tried_again() -> None:
    cluster = a_cluster(n1={})
    job = a_job(max_retries=9)
    cluster.submit(job)
    cluster.give(Cancel(job.id))
    cluster.ended("n1", (job.id, 0, 1), code=1)
    cluster.now += 100.0
    cluster.give(Tick())
    assert cluster.status(job) == Status.CANCELLED
    assert cluster.state.jobs[job.id].live == {}


def test_the_first_failure_gives_an_array_its_exit_code() -> None:
    cluster = a_cluster(n1={"cores": 3})
    job = a_job(array="1-3", max_retries=0)
    cluster.submit(job)
    cluster.ended("n1", (job.id, 1, 1), code=7)
    cluster.ended("n1", (job.id, 0, 1), code=3)
    cluster.ended("n1", (job.id, 2, 1))
    assert cluster.state.jobs[job.id].first_code == 7
    assert cluster.state.jobs[job.id].ended_at == cluster.now


def test_a_job_ended_when_its_last_task_did_and_not_when_that_was_told() -> None:
    cluster = a_cluster(n1={"cores": 2})
    job = a_job(array="1-2", max_retries=0)
    cluster.submit(job)
    began, cluster.now = cluster.now, cluster.now + 60.0  # no report could be sent for a minute
    for position, took_s in ((0, 15.0), (1, 5.0)):
        exit = Exit(Why.EXITED, 0, started_at=began, ended_at=began + took_s)
        cluster.tell("n1", Ended((job.id, position, 1), exit))
    assert cluster.state.jobs[job.id].ended_at == began + 15.0


def test_a_job_that_was_cancelled_ended_then() -> None:
    cluster = a_cluster(n1={})
    job = a_job(max_retries=9)
    cluster.submit(job)
    cluster.tell("n1", Ended((job.id, 0, 1), Exit(Why.EXITED, 1, cluster.now, cluster.now + 1.0)))
    cluster.now += 60.0
    cluster.give(Cancel(job.id))
    assert cluster.state.jobs[job.id].ended_at == cluster.now
