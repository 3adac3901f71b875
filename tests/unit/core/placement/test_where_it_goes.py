"""Only on some nodes, not on others, and nodes for itself: every way in which work is placed keeps to it."""

from __future__ import annotations

import pytest

from phalanx.core.cluster.decision import Accepted, Answer, Refused
from phalanx.core.cluster.inputs import SetQuota, Submit
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Status
from phalanx.core.model.queues import Quota
from tests.support.builders import Cluster, a_cluster, a_gang, a_group, a_job

THREE = {name: {"cores": 4, "gpus": 2} for name in ("n1", "n2", "n3")}


def where(cluster: Cluster, job: Job) -> list[str]:
    return [each.node for each in cluster.state.jobs[job.id].live.values()]


def code(answer: Answer | None) -> str:
    return answer.reason.code if isinstance(answer, Refused) else "yes"


@pytest.mark.parametrize("asked", [{"nodes": ("n2",)}, {"exclude": ("n1", "n3")}])
def test_tasks_arrays_and_gangs_keep_to_the_nodes_they_may_use(asked: dict[str, tuple[str, ...]]) -> None:
    cluster = a_cluster(**THREE)
    jobs = [a_job(**asked), a_job(array="0-1", **asked), a_gang(a_group(1, **asked))]  # type: ignore[arg-type]
    for job in jobs:
        assert cluster.submit(job) == Accepted(job.tasks)
    assert [where(cluster, job) for job in jobs] == [["n2"], ["n2", "n2"], ["n2"]]
    late = a_job(**asked)  # type: ignore[arg-type]
    cluster.submit(late)
    assert cluster.status(late) == Status.PENDING


def test_nodes_that_nobody_knows_are_refused_unless_that_is_wanted() -> None:
    cluster = a_cluster(**THREE)
    for asked in ({"nodes": ("n9",)}, {"exclude": ("n9",)}):
        assert code(cluster.submit(a_job(**asked))) == "TargetNotFound"  # type: ignore[arg-type]
    later = a_job(nodes=("n9",))
    assert cluster.submit(later, allow_infeasible=True) == Accepted(1)
    cluster.add_node("n9")
    assert where(cluster, later) == ["n9"]
    assert code(cluster.submit(a_job(nodes=("n1",), cores=99))) == "ExceedsLargestNode"
    assert code(cluster.submit(a_job(target="n1", exclude=("n1",)))) == "NodeNotChosen"


def test_an_exclusive_task_takes_an_empty_node_and_all_of_it() -> None:
    cluster = a_cluster(**THREE)
    small, idle = a_job(target="n1"), a_job(target="n2", cores=0)
    for job in (small, idle):
        cluster.submit(job)
    alone, second = a_job(exclusive=True), a_job(exclusive=True)
    for job in (alone, second):
        cluster.submit(job)
    assert where(cluster, alone) == ["n3"]
    (attempt,) = cluster.state.jobs[alone.id].live.values()
    assert (attempt.grant.cores, attempt.grant.devices, attempt.grant.exclusive) == (4, (0, 1), True)
    assert cluster.status(second) == Status.PENDING
    for cores in (0, 1):
        other = a_job(target="n3", cores=cores)
        cluster.submit(other)
        assert cluster.status(other) == Status.PENDING
    answer = cluster.give(Submit(a_job(target="n3", cores=0), no_queue=True))[0]
    assert code(answer) == "NodeHeldWhole"
    answer = cluster.give(Submit(a_job(target="n1", exclusive=True), no_queue=True))[0]
    assert code(answer) == "NodeNotEmpty"
    cluster.ended("n3", attempt.key)
    assert where(cluster, second) == ["n3"]


def test_members_of_an_exclusive_gang_have_a_node_each() -> None:
    cluster = a_cluster(**THREE)
    gang = a_gang(a_group(2, exclusive=True), a_group(1, name="b", exclusive=True))
    cluster.submit(gang)
    assert sorted(where(cluster, gang)) == ["n1", "n2", "n3"]
    more = a_gang(a_group(1, exclusive=True))
    cluster.submit(more)
    assert cluster.status(more) == Status.PENDING


def test_an_array_of_exclusive_tasks_has_a_node_for_each() -> None:
    cluster = a_cluster(**THREE)
    array = a_job(array="0-4", exclusive=True)
    cluster.submit(array)
    assert sorted(where(cluster, array)) == ["n1", "n2", "n3"]


def test_room_is_made_by_evicting_everybody_on_a_node() -> None:
    cluster = a_cluster(n1={"cores": 4}, n2={"cores": 4})
    low = [a_job(target="n1"), a_job(target="n1", cores=0), a_job(target="n2", priority=9, cores=1)]
    for job in low:
        cluster.submit(job)
        cluster.started(job.groups[0].request.target.host, (job.id, 0, 1))  # type: ignore[union-attr]
    urgent = a_job(priority=5, exclusive=True)
    cluster.submit(urgent)
    promise = cluster.state.jobs[urgent.id].promise
    assert promise is not None
    assert {key[0] for key in promise.victims} == {low[0].id, low[1].id}
    for job in low[:2]:
        cluster.ended("n1", (job.id, 0, 1), code=-15)
    assert where(cluster, urgent) == ["n1"]


def test_one_that_has_a_node_for_itself_is_evicted_like_any_other() -> None:
    cluster = a_cluster(n1={"cores": 4})
    low = a_job(exclusive=True)
    cluster.submit(low)
    cluster.started("n1", (low.id, 0, 1))
    urgent = a_job(priority=5, cores=4, memory_bytes=16 * 1024**3)
    cluster.submit(urgent)
    assert cluster.state.jobs[urgent.id].promise is not None
    cluster.ended("n1", (low.id, 0, 1), code=-15)
    assert where(cluster, urgent) == ["n1"]


def test_a_quota_counts_whole_nodes() -> None:
    cluster = a_cluster(**THREE)
    cluster.give(SetQuota("q", Quota(cores=9)))
    array, gang = a_job(array="0-2", exclusive=True, queue="q"), a_gang(a_group(3, exclusive=True), queue="q")
    assert code(cluster.submit(gang)) == "ExceedsQuotaMax"
    cluster.submit(array)
    assert len(where(cluster, array)) == 2
    assert cluster.state.queues.usage["q"][1] == 8000


def test_a_shorter_task_goes_first_only_if_the_exclusive_head_is_not_delayed() -> None:
    cluster = a_cluster(n1={"cores": 4})
    running = a_job(time_limit_s=100.0)
    cluster.submit(running)
    cluster.started("n1", (running.id, 0, 1))
    head = a_job(exclusive=True)
    cluster.submit(head)
    short, long = a_job(time_limit_s=50.0), a_job(time_limit_s=5000.0)
    for job in (long, short):
        cluster.submit(job)
    assert [cluster.status(each) for each in (head, long, short)] == [
        Status.PENDING, Status.PENDING, Status.ASSIGNED,
    ]  # fmt: skip
