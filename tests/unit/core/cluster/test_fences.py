"""Fences: a message of an old epoch, incarnation, lease or attempt changes nothing; its answer has the current one.

Cases C31, C32, C34 and C40 of the contract, a test for each sentence. The same on processes: tests/e2e.
"""

from __future__ import annotations

import pytest

from phalanx.coordinator.restore import restore
from phalanx.coordinator.turn import Engine, leases_only
from phalanx.core.cluster.decision import Accepted, Disposed, Refused
from phalanx.core.cluster.events import NodeJoined, TermOpened, decode, encode
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import Cancel, Heartbeat, Hello, Tell, Tick
from phalanx.core.cluster.transitions import apply
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Disposition, Ended, Exit, Status, Stop, Why
from phalanx.store.protocol import Batch, Loaded
from tests.support.builders import Cluster, a_capacity, a_cluster, a_job

DONE = Exit(Why.NONE, 0)


def running(cluster: Cluster) -> Job:
    """A job whose first attempt runs on n1."""
    job = a_job()
    cluster.submit(job)
    cluster.started("n1", (job.id, 0, 1))
    return job


def said(answer: object) -> Disposition:
    assert isinstance(answer, Disposed)
    return answer.disposition


def silence(cluster: Cluster, seconds: float, *others: str) -> None:
    for _ in range(int(seconds)):
        cluster.now += 1.0
        for node in others:
            cluster.beat(node)
        cluster.give(Tick())


def next_term(cluster: Cluster) -> Cluster:
    """The next coordinator: it reads everything from the log."""
    events = [event for turn in cluster.turns for event in turn.events if (turn.batch()) is not None]
    log = [Batch(len(events), encode(events))]
    follower = Cluster()
    follower.engine = Engine(restore(Loaded(None, 0, log), follower.state.rules))
    follower.now = cluster.now
    apply(follower.state, TermOpened(at=cluster.now, epoch=cluster.state.epoch + 1))
    return follower


# C31: the epoch.


def test_an_end_under_the_epoch_before_is_refused() -> None:
    cluster = a_cluster(n1={})
    job = running(cluster)
    cluster.state.epoch = 2
    assert said(cluster.ended("n1", (job.id, 0, 1), epoch=1)) == Disposition.STALE_EPOCH


def test_an_end_under_the_epoch_before_leaves_the_task_as_it_is() -> None:
    cluster = a_cluster(n1={})
    job = running(cluster)
    cluster.state.epoch = 2
    before = encode_state(cluster.state)
    cluster.ended("n1", (job.id, 0, 1), epoch=1)
    assert encode_state(cluster.state) == before


def test_the_answer_to_a_stale_end_names_the_epoch_in_force() -> None:
    cluster = a_cluster(n1={})
    job = running(cluster)
    cluster.state.epoch = 2
    answer = cluster.ended("n1", (job.id, 0, 1), epoch=1)
    assert isinstance(answer, Disposed)
    assert answer.epoch == 2


def test_the_same_end_under_the_right_epoch_is_accepted_once_and_then_a_duplicate() -> None:
    cluster = a_cluster(n1={})
    job = running(cluster)
    cluster.state.epoch = 2
    answers = [cluster.ended("n1", (job.id, 0, 1), epoch=epoch) for epoch in (1, 2, 2)]
    assert list(map(said, answers)) == [Disposition.STALE_EPOCH, Disposition.ACCEPTED, Disposition.DUPLICATE]


def test_a_duplicate_commits_nothing_a_second_time() -> None:
    cluster = a_cluster(n1={})
    job = running(cluster)
    cluster.ended("n1", (job.id, 0, 1))
    before = encode_state(cluster.state)
    cluster.ended("n1", (job.id, 0, 1), code=7)
    assert encode_state(cluster.state) == before
    assert cluster.status(job) == Status.COMPLETED


# C32: attempt, assignee, lease.


def test_a_report_of_an_older_attempt_is_stale() -> None:
    cluster = a_cluster(n1={})
    job = running(cluster)
    cluster.ended("n1", (job.id, 0, 1), code=1)
    assert said(cluster.ended("n1", (job.id, 0, 1))) == Disposition.STALE_ATTEMPT
    assert cluster.status(job) == Status.ASSIGNED


def test_a_report_of_who_was_not_given_the_attempt_is_stale() -> None:
    cluster = a_cluster(n1={}, n2={"cores": 16})
    job = running(cluster)
    assert said(cluster.ended("n2", (job.id, 0, 1))) == Disposition.STALE_ATTEMPT
    assert cluster.status(job) == Status.RUNNING


def test_whoever_was_not_given_the_attempt_cannot_repeat_its_end_either() -> None:
    cluster = a_cluster(n1={}, n2={"cores": 16})
    job = running(cluster)
    cluster.ended("n1", (job.id, 0, 1))
    assert said(cluster.ended("n2", (job.id, 0, 1))) == Disposition.STALE_ATTEMPT
    assert said(cluster.ended("n1", (job.id, 0, 1))) == Disposition.DUPLICATE


@pytest.mark.parametrize("generation", [0, 2])
def test_a_report_under_another_lease_is_stale_and_told_which_one_is_in_force(generation: int) -> None:
    cluster = a_cluster(n1={})
    job = running(cluster)
    answer = cluster.tell("n1", Ended((job.id, 0, 1), DONE), generation=generation)
    assert isinstance(answer, Disposed)
    assert (answer.disposition, answer.generation) == (Disposition.STALE_LEASE, 1)
    assert cluster.status(job) == Status.RUNNING


def test_a_report_of_another_life_is_stale() -> None:
    cluster = a_cluster(n1={})
    job = running(cluster)
    assert said(cluster.ended("n1", (job.id, 0, 1), life="b")) == Disposition.STALE_LEASE


def test_a_report_of_a_node_or_a_job_that_nobody_knows_is_told_so() -> None:
    cluster = a_cluster(n1={})
    assert said(cluster.tell("n9", Ended(("0" * 26, 0, 1), DONE))) == Disposition.STALE_LEASE
    assert said(cluster.tell("n1", Ended(("0" * 26, 0, 1), DONE))) == Disposition.UNKNOWN


# C34: a runner falls silent.


def test_what_a_silent_node_ran_is_placed_elsewhere() -> None:
    cluster = a_cluster(n1={}, n2={"cores": 16})
    job, waiting = running(cluster), a_job("n1")
    cluster.submit(waiting)
    silence(cluster, 31, "n2")
    assert [cluster.state.jobs[each.id].losses for each in (job, waiting)] == [{0: 1}, {0: 1}]
    assert cluster.state.jobs[job.id].live[0].node == "n2"
    assert cluster.status(waiting) == Status.PENDING


def test_the_next_heartbeat_of_a_lost_node_is_refused_and_names_the_generation_in_force() -> None:
    cluster = a_cluster(n1={})
    silence(cluster, 31)
    (answer,) = cluster.give(Heartbeat("n1", "a", [], 1))
    assert isinstance(answer, Refused)
    assert (answer.reason.code, answer.reason.numbers) == ("StaleLease", {"generation": 2})


def test_a_lost_node_that_says_hello_gets_a_higher_generation() -> None:
    cluster = a_cluster(n1={})
    silence(cluster, 31)
    cluster.add_node("n1")
    assert cluster.lease("n1") == 3


def test_a_late_end_from_a_lost_node_is_refused_before_and_after_it_is_back() -> None:
    cluster = a_cluster(n1={}, n2={"cores": 16})
    job = running(cluster)
    silence(cluster, 31, "n2")
    late = Ended((job.id, 0, 1), DONE)
    assert said(cluster.tell("n1", late, generation=1)) == Disposition.STALE_LEASE
    cluster.add_node("n1", held=((job.id, 0, 1),))
    assert said(cluster.tell("n1", late, generation=1)) == Disposition.STALE_LEASE
    assert said(cluster.tell("n1", late)) == Disposition.STALE_ATTEMPT
    assert cluster.status(job) == Status.ASSIGNED


# The generation itself.


def test_a_broken_connection_keeps_the_generation_and_a_new_life_gets_the_next() -> None:
    cluster = a_cluster(n1={})
    cluster.add_node("n1")
    assert cluster.lease("n1") == 1
    cluster.add_node("n1", life="b")
    assert cluster.lease("n1") == 2


def test_the_generation_outlives_the_coordinator() -> None:
    """Otherwise a report of the former term could equal one of this."""
    cluster = a_cluster(n1={})
    cluster.add_node("n1", life="b")
    follower = next_term(cluster)
    assert follower.lease("n1") == 2
    follower.add_node("n1", life="c")
    assert follower.lease("n1") == 3


def test_an_image_keeps_the_generation() -> None:
    cluster = a_cluster(n1={})
    cluster.add_node("n1", life="b")
    assert decode_state(encode_state(cluster.state), cluster.state.rules).nodes["n1"].generation == 2


def test_a_log_from_before_generations_counts_them_as_it_is_read() -> None:
    joined = NodeJoined(at=1.0, node="n1", incarnation="a", origin="o", capacity=a_capacity())
    (old,) = decode(encode([joined]))
    cluster = Cluster()
    apply(cluster.state, old)
    apply(cluster.state, old)
    assert cluster.lease("n1") == 2


def test_a_heartbeat_under_another_lease_renews_nothing_even_while_nothing_can_be_written() -> None:
    cluster = a_cluster(n1={})
    assert leases_only(cluster.state, [Heartbeat("n1", "a", [], 2)], 1.0) == []
    assert leases_only(cluster.state, [Heartbeat("n1", "a", [], 1)], 1.0) == [Accepted()]


# C40: cancel.


def test_cancelled_tasks_are_cancelled_wherever_they_were() -> None:
    cluster = a_cluster(n1={"cores": 2})
    job = a_job(array="1-3")
    cluster.submit(job)
    cluster.started("n1", (job.id, 0, 1))
    cluster.give(Cancel(job.id))
    assert [cluster.status(job, position) for position in range(3)] == [Status.CANCELLED] * 3


def test_the_runner_of_a_cancelled_task_is_told_to_stop_it() -> None:
    cluster = a_cluster(n1={})
    job = running(cluster)
    cluster.give(Cancel(job.id))
    assert [order.key for _, order in cluster.orders if isinstance(order, Stop)] == [(job.id, 0, 1)]


def test_a_late_success_of_a_cancelled_task_only_frees_what_it_held() -> None:
    cluster = a_cluster(n1={})
    job = running(cluster)
    cluster.give(Cancel(job.id))
    assert said(cluster.ended("n1", (job.id, 0, 1))) == Disposition.ACCEPTED
    assert cluster.status(job) == Status.CANCELLED
    assert cluster.state.table.ledger("n1").is_empty


def test_what_was_cancelled_stays_so_under_the_next_coordinator() -> None:
    cluster = a_cluster(n1={})
    job = running(cluster)
    cluster.give(Cancel(job.id))
    follower = next_term(cluster)
    follower.give(Hello("n1", "a", "origin-n1", a_capacity(), []))
    answer = follower.give(Tell("n1", "a", 2, Ended((job.id, 0, 1), DONE), 1))[0]
    assert said(answer) == Disposition.ACCEPTED
    assert follower.status(job) == Status.CANCELLED
