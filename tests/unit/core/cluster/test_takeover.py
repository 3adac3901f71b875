"""A more urgent job takes over what was set aside for a less urgent one while the victims still leave (M3)."""

from __future__ import annotations

from phalanx.coordinator.why import why_reply
from phalanx.core.cluster.events import RoomPromised
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.explain.story import sentence
from phalanx.core.model.job import Job
from phalanx.core.model.orders import AttemptKey, Status, Stop, Why
from phalanx.core.model.queues import Quota
from tests.support.builders import Cluster, a_cluster, a_gang, a_group, a_job


def a_full_cluster(queue: str = "default") -> tuple[Cluster, list[Job]]:
    """Two nodes of two cores, each held by a job of no priority."""
    cluster = a_cluster(n1={"cores": 2}, n2={"cores": 2})
    low = [a_job(name, cores=2, priority=0, queue=queue) for name in ("n1", "n2")]
    for job in low:
        cluster.submit(job)
        cluster.started(*held(cluster, job))
    cluster.now += 100.0
    return cluster, low


def held(cluster: Cluster, job: Job, position: int = 0) -> tuple[str, AttemptKey]:
    attempt = cluster.state.jobs[job.id].live[position]
    return attempt.node, attempt.key


def leave(cluster: Cluster, *jobs: Job) -> None:
    for job in jobs:
        cluster.ended(*held(cluster, job), code=-15, why=Why.EVICTED)


def stops(cluster: Cluster) -> list[AttemptKey]:
    return [order.key for _, order in cluster.orders if isinstance(order, Stop)]


def promises(cluster: Cluster) -> list[RoomPromised]:
    return [event for turn in cluster.turns for event in turn.events if isinstance(event, RoomPromised)]


def test_a_more_urgent_gang_takes_over_and_nobody_is_asked_twice():
    cluster, low = a_full_cluster()
    mid = a_gang(a_group(2, cores=2), priority=500)
    cluster.submit(mid)
    assert cluster.state.jobs[mid.id].promise is not None
    asked = stops(cluster)
    assert len(asked) == 2
    cluster.now += 0.5
    high = a_gang(a_group(2, cores=2), priority=1000)
    cluster.submit(high)
    assert cluster.state.jobs[mid.id].promise is None
    said = why_reply(cluster.state, cluster.state.jobs[high.id], None, cluster.now).dominant
    assert said.code == "WaitingVictims"
    assert stops(cluster) == asked, "those who leave already are not asked again"
    leave(cluster, *low)
    assert [cluster.status(high, position) for position in range(2)] == [Status.ASSIGNED] * 2
    assert cluster.status(mid) == Status.PENDING
    promise = promises(cluster)[-1]
    assert (promise.displaced, len(promise.awaited)) == ((mid.id,), 2)
    assert mid.id in sentence(promise)


def test_nobody_else_is_evicted_though_others_could_be():
    cluster, low = a_full_cluster()
    cluster.add_node("n3", cores=2)
    other = a_job("n3", cores=2, priority=0)
    cluster.submit(other)
    cluster.started(*held(cluster, other))
    mid = a_gang(a_group(2, cores=2), priority=500)
    cluster.submit(mid)
    spared = next(job for job in (*low, other) if cluster.state.jobs[job.id].live[0].ending is None)
    high = a_gang(a_group(2, cores=2), priority=1000)
    cluster.submit(high)
    last = promises(cluster)[-1]
    assert (last.job, last.victims, last.displaced, len(last.awaited)) == (high.id, (), (mid.id,), 2)
    assert cluster.state.jobs[spared.id].live[0].ending is None


def test_a_single_task_takes_over_only_what_it_needs_and_the_rest_is_promised_again():
    cluster, low = a_full_cluster()
    mid = [a_job(cores=2, priority=500) for _ in range(2)]
    for job in mid:
        cluster.submit(job)
    high = a_job(cores=2, priority=1000)
    cluster.submit(high)
    kept = [job for job in mid if cluster.state.jobs[job.id].promise is not None]
    assert len(kept) == 1
    assert promises(cluster)[-1].awaited != ()
    leave(cluster, *low)
    assert cluster.status(high) == Status.ASSIGNED
    assert [cluster.status(job) for job in kept] == [Status.ASSIGNED]


def test_whoever_is_no_more_urgent_takes_nothing_over():
    cluster, low = a_full_cluster()
    mid = a_gang(a_group(2, cores=2), priority=500)
    cluster.submit(mid)
    cluster.submit(a_gang(a_group(2, cores=2), priority=500))
    leave(cluster, *low)
    assert cluster.status(mid) == Status.ASSIGNED


def test_a_takeover_that_still_needs_somebody_to_leave_asks_only_that_one():
    cluster, low = a_full_cluster()
    cluster.submit(a_job("n1", cores=2, priority=500))
    asked = stops(cluster)
    high = a_gang(a_group(2, cores=2), priority=1000)
    cluster.submit(high)
    assert len(asked) == 1 and len(stops(cluster)) == 2
    leave(cluster, *low)
    assert cluster.status(high) == Status.ASSIGNED


def test_a_quota_is_kept_though_those_who_leave_still_use_it():
    cluster, low = a_full_cluster(queue="lab")
    cluster.state.queues.quotas["lab"] = Quota(tasks=2)
    mid = a_gang(a_group(2, cores=2), priority=500, queue="lab")
    cluster.submit(mid)
    high = a_gang(a_group(2, cores=2), priority=1000, queue="lab")
    cluster.submit(high)
    assert cluster.state.jobs[high.id].promise is not None
    leave(cluster, *low)
    assert cluster.status(high) == Status.ASSIGNED


def test_a_takeover_is_remembered_by_an_image():
    cluster, _ = a_full_cluster()
    cluster.submit(a_gang(a_group(2, cores=2), priority=500))
    high = a_gang(a_group(2, cores=2), priority=1000)
    cluster.submit(high)
    kept = decode_state(encode_state(cluster.state), cluster.state.rules).jobs[high.id].promise
    assert kept is not None and len(kept.victims) == 2
