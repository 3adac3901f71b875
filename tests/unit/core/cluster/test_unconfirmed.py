"""Attempts that a runner does not start: ordered again, declared lost in time, placed elsewhere, never alive twice."""

from __future__ import annotations

import pytest

from phalanx.core.cluster.events import TermOpened
from phalanx.core.cluster.inputs import Heartbeat, Hello, Tell
from phalanx.core.cluster.transitions import apply
from phalanx.core.model.orders import AttemptKey, Ended, Exit, Go, Phase, Ready, Start, Status, Stop, Why
from tests.support.builders import Cluster, a_capacity, a_cluster, a_gang, a_group, a_job

Listed = list[tuple[AttemptKey, Phase]]


def beat(cluster: Cluster, node: str, listed: Listed, expire: bool = True) -> None:
    """A heartbeat five seconds later, of a runner that has received everything that was sent before."""
    seen_at = cluster.now
    cluster.now += 5.0
    cluster.give(Heartbeat(node, "a", listed, cluster.lease(node), seen_at=seen_at, starts_expire=expire))


def silent_after(cluster: Cluster, key: AttemptKey, listed: Listed, expire: bool = True) -> float:
    """How long the node beats like this until the attempt is declared lost; 200 if it is not."""
    began, node = cluster.now, cluster.state.live(key).node
    while cluster.now - began < 200.0 and cluster.state.attempt(key) is not None:
        beat(cluster, node, listed, expire)
    return cluster.now - began


def test_one_that_the_runner_does_not_list_is_given_up_after_three_intervals_and_goes_elsewhere() -> None:
    cluster = a_cluster(n1={"cores": 4}, n2={"cores": 1})
    job = a_job(max_retries=0)
    cluster.submit(job)
    first = cluster.state.jobs[job.id].live[0]
    assert 15.0 < silent_after(cluster, first.key, []) <= 20.0
    again = cluster.state.jobs[job.id].live[0]
    assert (again.key[2], again.node != first.node) == (2, True)
    assert cluster.state.jobs[job.id].charged == {}


def test_the_order_is_told_again_while_it_may_have_been_lost_and_not_later() -> None:
    cluster = a_cluster(n1={})
    job = a_job()
    cluster.submit(job)
    silent_after(cluster, (job.id, 0, 1), [])
    starts = [order for _, order in cluster.orders if isinstance(order, Start)]
    assert len(starts) == 2
    assert not cluster.state.nodes["n1"].takes_work


def test_a_listing_that_was_made_before_the_order_arrived_gives_nothing_up() -> None:
    cluster = a_cluster(n1={})
    job = a_job()
    cluster.submit(job)
    placed_at = cluster.now
    for _ in range(2):
        cluster.now += 8.0
        cluster.give(Heartbeat("n1", "a", [], 1, seen_at=placed_at, starts_expire=True))
    assert cluster.state.attempt((job.id, 0, 1)) is not None


def test_one_that_is_listed_and_does_not_start_is_given_up_after_three_timeouts_and_goes_elsewhere() -> None:
    cluster = a_cluster(n1={"cores": 1}, n2={"cores": 1})
    job = a_job(max_retries=0)
    cluster.submit(job)
    first = cluster.state.jobs[job.id].live[0]
    assert 90.0 < silent_after(cluster, first.key, [(first.key, Phase.QUEUED)]) <= 95.0
    again = cluster.state.jobs[job.id].live[0]
    assert again.node != first.node
    assert ("n1", Stop(first.key, Why.UNCONFIRMED, 0.0)) in cluster.orders
    assert (cluster.state.jobs[job.id].charged, cluster.state.jobs[job.id].losses) == ({}, {0: 1})


def test_its_node_gets_no_work_until_the_runner_has_confirmed_the_end() -> None:
    cluster = a_cluster(n1={"cores": 1, "gpus": 1})
    job = a_job(gpus=1)
    cluster.submit(job)
    key = (job.id, 0, 1)
    silent_after(cluster, key, [(key, Phase.QUEUED)])
    assert cluster.status(job) == Status.PENDING, "its GPU might yet be taken there"
    beat(cluster, "n1", [(key, Phase.QUEUED)])
    assert cluster.orders[-1][1] == Stop(key, Why.CANCELLED, 2.0), "asked again with every heartbeat"
    cluster.give(Tell("n1", "a", 1, Ended(key, Exit(Why.UNCONFIRMED)), 1))
    assert cluster.status(job) == Status.ASSIGNED
    assert cluster.state.jobs[job.id].live[0].key == (job.id, 0, 2)


def test_a_lost_word_about_the_end_is_asked_for_again() -> None:
    cluster = a_cluster(n1={})
    job = a_job()
    cluster.submit(job)
    key = (job.id, 0, 1)
    silent_after(cluster, key, [])
    cluster.orders.clear()
    beat(cluster, "n1", [])
    assert [order.key for _, order in cluster.orders if isinstance(order, Stop)] == [key]


@pytest.mark.parametrize("listed", [True, False])
def test_it_fails_only_if_its_target_allows_no_other_node(listed: bool) -> None:
    cluster = a_cluster(n1={}, n2={})
    job = a_job("n1")
    cluster.submit(job)
    key = (job.id, 0, 1)
    silent_after(cluster, key, [(key, Phase.QUEUED)] if listed else [])
    state = cluster.state.jobs[job.id]
    assert cluster.status(job) == Status.FAILED
    assert "did not confirm start" in state.details[0][0]
    assert state.charged == {}


def test_an_older_runner_is_asked_and_its_answer_ends_it() -> None:
    cluster = a_cluster(n1={})
    job = a_job()
    cluster.submit(job)
    key = (job.id, 0, 1)
    assert silent_after(cluster, key, [(key, Phase.QUEUED)], expire=False) == 200.0
    assert cluster.orders[-1] == ("n1", Stop(key, Why.UNCONFIRMED, 0.0))
    cluster.ended("n1", key, code=-1, why=Why.UNCONFIRMED)
    assert cluster.state.jobs[job.id].live[0].key == (job.id, 0, 2)


def test_members_at_the_barrier_wait_for_each_other_and_not_for_their_runner() -> None:
    cluster = a_cluster(n1={"cores": 1}, n2={"cores": 1})
    job = a_gang(a_group(2), wait_s=1000.0)
    cluster.submit(job)
    keys = [attempt.key for attempt in cluster.state.jobs[job.id].live.values()]
    held = {attempt.node: attempt.key for attempt in cluster.state.jobs[job.id].live.values()}
    cluster.tell("n1", Ready(held["n1"]))
    for _ in range(16):  # the other one reports nothing, but its time is not over
        beat(cluster, "n1", [(held["n1"], Phase.READY)])
    assert [key for key in keys if cluster.state.attempt(key) is None] == []
    cluster.tell("n2", Ready(held["n2"]))
    assert all(attempt.released for attempt in cluster.state.jobs[job.id].live.values())
    released_at = cluster.now
    while cluster.state.attempt(held["n1"]) is not None:
        beat(cluster, "n1", [(held["n1"], Phase.READY)])
    assert 90.0 < cluster.now - released_at <= 95.0, "its time counts from when it might go"
    gos = [order for node, order in cluster.orders if isinstance(order, Go) and node == "n1"]
    assert 1 < len(gos) <= 1 + 30 / 5, "told again, but not so late that it could go after it was given up"


def test_a_new_term_gives_every_attempt_its_whole_time_again_whatever_its_clock_says() -> None:
    cluster = a_cluster(n1={})
    job = a_job()
    cluster.submit(job)
    key = (job.id, 0, 1)
    cluster.now += 3600.0
    apply(cluster.state, TermOpened(at=cluster.now, epoch=1))
    cluster.give(Hello("n1", "a", "origin-n1", a_capacity(), [(key, Phase.QUEUED)]))
    assert silent_after(cluster, key, [(key, Phase.QUEUED)]) > 90.0
