"""A VPS in the state: it stays on its first node, goes on after losses and failures, and keeps its port."""

from __future__ import annotations

from phalanx.core.cluster.decision import brief
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import Cancel, Evict
from phalanx.core.cluster.state import Timers
from phalanx.core.model.job import Job, Vps
from phalanx.core.model.orders import VPS_PORTS, Exit, Start, Started, Status, Why, vps_port
from phalanx.core.model.resources import Target
from tests.support.builders import a_job
from tests.support.core_cluster import CoreCluster

KEYS = ("ssh-ed25519 AAAA ada",)


def a_vps(target: str | None = None, vps: Vps | None = None) -> Job:
    return a_job(target, max_retries=60_000, vps=vps or Vps("upload", KEYS))


def running(cluster: CoreCluster, job: Job, node: str = "n1") -> None:
    cluster.place(job, 0, node)
    cluster.report(job, 0, Started)


def starts(cluster: CoreCluster) -> list[Start]:
    return [order for _, order in cluster.orders if isinstance(order, Start)]


def test_a_vps_without_a_target_is_placed_again_where_it_was_first():
    cluster = CoreCluster(n1={}, n2={})
    job = a_vps()
    held = cluster.submit(job)
    running(cluster, job)
    assert held.job.groups[0].request.target == Target("n1")
    assert held.groups[0].request.target == Target("n1")
    cluster.give(Evict(job.id, None, "user ada"))
    cluster.confirm_stops()
    assert cluster.statuses(job) == [Status.PENDING]
    unit = held.groups[0]
    assert unit in cluster.state.waiting
    assert cluster.state.waiting.classes[unit.kind].kind == unit.kind
    again = decode_state(encode_state(cluster.state), Timers())
    assert again.jobs[job.id].job.groups[0].request.target == Target("n1")


def test_a_vps_outlasts_losses_of_its_node_and_failures_of_its_server():
    cluster = CoreCluster(n1={})
    job = a_vps("n1")
    cluster.submit(job)
    for number in range(cluster.state.rules.loss_limit + 5):
        running(cluster, job)
        cluster.ends(job, 0, -1, Why.LOST if number % 2 else Why.EXITED)
        assert cluster.statuses(job) == [Status.PENDING]
        cluster.now += 1000.0


def test_a_vps_that_was_refused_before_it_ever_ran_fails_and_later_it_is_tried_again():
    cluster = CoreCluster(n1={})
    new, old = a_vps(), a_vps()
    for job in (new, old):
        cluster.submit(job)
    running(cluster, old)
    cluster.ends(old, 0, 1)
    cluster.now += 1000.0
    for job in (new, old):
        cluster.place(job, 0, "n1")
        cluster.report(job, 0, Exit(Why.REFUSED, None, message="no such program"))
    assert (cluster.statuses(new), cluster.statuses(old)) == ([Status.FAILED], [Status.PENDING])


def test_the_port_stays_over_restarts_and_is_another_after_a_failure():
    cluster = CoreCluster(n1={})
    job = a_vps("n1")
    cluster.submit(job)
    running(cluster, job)
    cluster.give(Evict(job.id, None, "user ada"))
    cluster.confirm_stops()
    running(cluster, job)
    cluster.ends(job, 0, 98)
    cluster.now += 1000.0
    running(cluster, job)
    first, restarted, failed = (each.port for each in starts(cluster))
    assert first == restarted == vps_port(job.id, 0)
    assert failed == vps_port(job.id, 1) != first
    assert {first, failed} <= {*VPS_PORTS}


def test_a_vps_without_ssh_has_no_port_and_a_job_neither():
    cluster = CoreCluster(n1={})
    for job in (a_vps(vps=Vps("disabled")), a_job()):
        cluster.submit(job)
        cluster.place(job, 0, "n1")
    assert [each.port for each in starts(cluster)] == [0, 0]


def test_the_brief_says_that_it_is_a_vps_and_who_may_log_in():
    assert brief(a_vps(), 0).vps == Vps("upload", KEYS)
    assert brief(a_job(), 0).vps is None


def test_a_cancelled_vps_is_over_for_good():
    cluster = CoreCluster(n1={})
    job = a_vps()
    held = cluster.submit(job)
    running(cluster, job)
    cluster.give(Cancel(job.id))
    cluster.confirm_stops()
    assert held.is_over
    assert not cluster.waits(held)
