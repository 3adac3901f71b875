"""Gangs that may hold a part: only one at a time, only where the others could come, and no eviction for a surplus."""

from __future__ import annotations

from phalanx.core.cluster.events import PromiseWithdrawn, RoomPromised
from phalanx.core.cluster.inputs import Evict
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.transitions import apply
from phalanx.core.model.job import Gather, Job
from phalanx.core.model.orders import Status, Why
from tests.support.builders import Cluster, a_cluster, a_gang, a_group, a_job
from tests.support.core_cluster import CoreCluster

ON_ONE_NODE = (Gather("node", must=True),)


def held(cluster: Cluster, job: Job) -> dict[int, str]:
    return {position: attempt.node for position, attempt in cluster.state.jobs[job.id].live.items()}


def events(cluster: Cluster, kind: type[RoomPromised]) -> list[RoomPromised]:
    return [event for turn in cluster.turns for event in turn.events if isinstance(event, kind)]


def test_a_part_waits_only_where_the_rest_could_ever_come():
    """Seed 3141594626: two workers held places on a node without the devices that the chiefs need, again and again."""
    cluster = a_cluster(n1={"cores": 4}, n2={"cores": 8}, n3={"cores": 6, "gpus": 4})
    cluster.submit(a_job("n3", cores=5, gpus=4))
    gang = a_gang(
        a_group(3, name="chief", gpus=1), a_group(2, name="worker"), gather=ON_ONE_NODE, strict=False
    )
    cluster.submit(gang)
    assert set(held(cluster, gang).values()) <= {"n3"}


def test_a_part_of_one_shape_waits_only_where_the_rest_could_ever_come():
    cluster = a_cluster(n1={"cores": 3}, n2={"cores": 8})
    cluster.submit(a_job("n2", cores=6))
    gang = a_gang(a_group(4), gather=ON_ONE_NODE, strict=False)
    cluster.submit(gang)
    assert held(cluster, gang) == {0: "n2", 1: "n2"}


def test_nobody_is_evicted_for_a_surplus_while_its_gang_waits_at_the_barrier():
    """Seed 918273404: a gang that held all it needed evicted one more, for a member it could do without."""
    cluster = a_cluster(n1={"cores": 4})
    low = [a_job(cores=1) for _ in range(4)]
    for job in low:
        cluster.submit(job)
    gang = a_gang(a_group(4, min=2), strict=False, priority=5)
    cluster.submit(gang)
    (promised,) = events(cluster, RoomPromised)
    for job_id, position, _ in promised.victims:
        attempt = cluster.state.jobs[job_id].live[position]
        cluster.ended("n1", attempt.key, -15, Why.EVICTED)
    assert len(held(cluster, gang)) == 2
    assert len(events(cluster, RoomPromised)) == 1
    assert sum(cluster.status(job) == Status.ASSIGNED for job in low) == 2


def test_a_promise_that_would_make_a_second_gang_hold_a_part_is_withdrawn():
    """Seed 918273404: its other members were evicted while it waited for the one that leaves."""
    cluster = CoreCluster(n1={"cores": 4}, n2={"cores": 4})
    low, first = a_job("n1", cores=2), a_gang(a_group(3, cores=2), strict=False)
    second = a_gang(a_group(2, cores=2), strict=False, priority=5)
    for job in (low, first, second):
        cluster.submit(job)
    cluster.place(low, 0, "n1")
    cluster.gang_placement(second, {0: "n1"})
    cluster.evicting(second, {1: "n1"}, [("n1", 1)])
    cluster.give(Evict(second.id, 0, "user"))
    cluster.ends(second, 0, why=Why.EVICTED)
    cluster.gang_placement(first, {0: "n2"})
    cluster.confirm_stops()
    assert cluster.state.jobs[second.id].promise is not None
    cluster.redeem(second)
    assert cluster.state.jobs[second.id].live == {}
    assert isinstance(cluster.events[-1], PromiseWithdrawn)
    assert cluster.state.incomplete == {first.id}


def test_a_plan_that_would_make_a_second_gang_hold_a_part_is_refused():
    cluster = CoreCluster(n1={"cores": 4}, n2={"cores": 4})
    first, second = (a_gang(a_group(3, cores=2), strict=False) for _ in range(2))
    for job in (first, second):
        cluster.submit(job)
    cluster.gang_placement(first, {0: "n1"})
    cluster.gang_placement(second, {0: "n2"})
    assert cluster.state.jobs[second.id].live == {}


def test_a_promised_task_is_ready_in_a_replay_though_nobody_saw_its_backoff_end():
    """Seed 3141593629: another coordinator's clock was behind, and its log had a promise to a task in backoff."""
    cluster = a_cluster(n1={"cores": 1})
    urgent = a_job(cores=1, priority=5, max_retries=5)
    cluster.submit(urgent)
    low = a_job(cores=1)
    for _ in range(2):
        attempt = cluster.state.jobs[urgent.id].live[0]
        cluster.ended("n1", attempt.key, 1)
    assert cluster.state.jobs[urgent.id].delayed
    cluster.submit(low)
    cluster.now += 5.0
    cluster.give()
    (promised,) = events(cluster, RoomPromised)
    replayed = ClusterState(cluster.state.rules)
    for turn in cluster.turns:
        for event in turn.events:
            apply(replayed, event)
    assert promised.job == urgent.id
    assert replayed.jobs[urgent.id].is_ready(0) and not replayed.jobs[urgent.id].delayed
