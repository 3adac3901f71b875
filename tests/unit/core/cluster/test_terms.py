"""A new term may have another clock: waits that were made with the old one are never longer than they could be now."""

from __future__ import annotations

import pytest

from phalanx.core.cluster.events import BackoffsEnded, TermOpened
from phalanx.core.cluster.invariants import check
from phalanx.core.cluster.state import Timers
from phalanx.core.cluster.transitions import apply
from phalanx.core.model.orders import Status, Why
from tests.support.builders import Cluster, a_cluster, a_gang, a_group, a_job

HOURS = 7 * 3600.0


def new_term(cluster: Cluster, step_s: float) -> None:
    cluster.now += step_s
    apply(cluster.state, TermOpened(at=cluster.now, epoch=cluster.state.epoch + 1))
    assert check(cluster.state) == []


@pytest.mark.parametrize("step_s", [-HOURS, HOURS])
def test_a_backoff_lasts_no_longer_than_the_longest(step_s: float) -> None:
    cluster = a_cluster(n1={})
    job = a_job()
    cluster.submit(job)
    for number in (1, 2):
        cluster.started("n1", (job.id, 0, number))
        cluster.ended("n1", (job.id, 0, number), code=1, why=Why.EXITED)
    assert cluster.status(job) == Status.PENDING
    new_term(cluster, step_s)
    apply(cluster.state, BackoffsEnded(at=cluster.now + Timers().backoff_max_s))
    assert cluster.state.jobs[job.id].delayed == {}


def test_an_exclusion_lasts_no_longer_after_a_failover() -> None:
    cluster = a_cluster(n1={})
    node = cluster.state.nodes["n1"]
    node.excluded_until = cluster.now + 60.0
    cluster.state.excluded["n1"] = None
    new_term(cluster, -HOURS)
    assert node.excluded_until == cluster.now + Timers().breaker_pause_s


@pytest.mark.parametrize("step_s", [-HOURS, HOURS])
def test_a_gang_has_its_whole_wait_at_the_barrier_again(step_s: float) -> None:
    cluster = a_cluster(n1={"cores": 2})
    job = a_gang(a_group(2), wait_s=60.0)
    cluster.submit(job)
    new_term(cluster, step_s)
    forming = cluster.state.jobs[job.id].forming
    assert forming is not None
    assert forming.formed_at == cluster.now
