"""Attempts that wait for their image: not given up, and a gang does not lose patience meanwhile."""

from __future__ import annotations

from phalanx.core.cluster.inputs import Heartbeat, Tick
from phalanx.core.model.orders import AttemptKey, Phase, Ready
from tests.support.builders import Cluster, a_cluster, a_gang, a_group, a_job


def beat(cluster: Cluster, node: str, listed: list[tuple[AttemptKey, Phase]]) -> None:
    seen_at = cluster.now
    cluster.now += 5.0
    beat = Heartbeat(node, "a", listed, cluster.lease(node), seen_at=seen_at, starts_expire=True)
    cluster.give(beat)
    cluster.give(Tick())


def test_one_that_is_prepared_for_long_is_kept_and_has_as_long_to_start_afterwards_as_any_other() -> None:
    cluster = a_cluster(n1={})
    job = a_job(max_retries=0)
    cluster.submit(job)
    key, stuck_s = (job.id, 0, 1), cluster.state.rules.stuck_after_s
    while cluster.now < 3 * stuck_s:
        beat(cluster, "n1", [(key, Phase.PREPARING)])
        assert cluster.state.live(key).preparing
    beat(cluster, "n1", [(key, Phase.QUEUED)])
    ready_at = cluster.now
    assert not cluster.state.live(key).preparing
    while cluster.state.attempt(key) is not None:
        beat(cluster, "n1", [(key, Phase.QUEUED)])
    assert stuck_s < cluster.now - ready_at <= stuck_s + 5.0


def test_a_gang_waits_for_images_beyond_its_patience_and_then_counts_anew() -> None:
    cluster = a_cluster(n1={"cores": 2}, n2={"cores": 2})
    job = a_gang(a_group(tasks=2, cores=2), wait_s=10.0)
    cluster.submit(job)
    live = cluster.state.jobs[job.id].live
    first, second = live[0], live[1]
    cluster.tell(first.node, Ready(first.key))
    for _ in range(6):
        beat(cluster, first.node, [(first.key, Phase.READY)])
        beat(cluster, second.node, [(second.key, Phase.PREPARING)])
    assert cluster.state.jobs[job.id].forming is not None
    beat(cluster, second.node, [(second.key, Phase.QUEUED)])
    beat(cluster, second.node, [(second.key, Phase.QUEUED)])
    assert cluster.state.attempt(second.key) is not None, "ten seconds are not over"
    beat(cluster, second.node, [(second.key, Phase.QUEUED)])
    beat(cluster, second.node, [(second.key, Phase.QUEUED)])
    assert cluster.state.jobs[job.id].forming is None
