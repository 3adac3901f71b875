"""Only on some nodes, not on others, and nodes for itself: every way in which work is placed keeps to it."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec import structs

from phalanx.core.cluster.decision import Accepted, Answer, Refused
from phalanx.core.cluster.inputs import Hello, SetQuota, Submit
from phalanx.core.explain.explain import explain
from phalanx.core.model.job import Gather, Job
from phalanx.core.model.orders import Status
from phalanx.core.model.plan import Policy
from phalanx.core.model.queues import Quota
from phalanx.core.model.resources import Capacity, Device
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


FOUR = {name: {"cores": 4, "gpus": 2} for name in ("n1", "n2", "n3", "n4")}


def places(cluster: Cluster, job: Job) -> list[int]:
    """How many tasks of a job each of its nodes has, the fewest first."""
    return sorted(Counter(where(cluster, job)).values())


def test_an_array_is_packed_unless_it_is_spread() -> None:
    cluster = a_cluster(**FOUR)
    packed, spread = a_job(array="0-3"), a_job(array="0-5", spread=True)
    cluster.submit(packed)
    assert places(cluster, packed) == [4]
    cluster.submit(spread)
    assert places(cluster, spread) == [2, 2, 2]  # the fourth node is full


def test_spread_tasks_go_where_their_job_has_the_fewest_and_then_where_most_is_free() -> None:
    cluster = a_cluster(**FOUR)
    for target in ("n1", "n2"):
        cluster.submit(a_job(target))
    first = a_job(array="0-3%2", spread=True)
    cluster.submit(first)
    assert where(cluster, first) == ["n3", "n4"]
    cluster.started("n3", (first.id, 0, 1))
    cluster.ended("n3", (first.id, 0, 1))
    assert where(cluster, first) == ["n4", "n3"]  # not n4 again, which has as much free
    second = a_job(array="0-3", spread=True)
    cluster.submit(second)
    assert places(cluster, second) == [1, 1, 1, 1]


def test_spread_tasks_take_the_smallest_devices_that_do() -> None:
    cluster = a_cluster()
    for name, memory in (("big", 80 << 30), ("small", 24 << 30)):
        devices = tuple(Device(index, "gpu", memory) for index in range(2))
        cluster.give(Hello(name, "a", f"origin-{name}", Capacity(4, 16 << 30, devices=devices), []))
    one, two = a_job(gpus=1, spread=True), a_job(array="0-1", gpus=1, spread=True)
    cluster.submit(one)
    assert where(cluster, one) == ["small"]
    cluster.submit(two)
    assert sorted(where(cluster, two)) == ["big", "small"]


def test_groups_of_a_spread_job_stand_on_different_nodes() -> None:
    cluster = a_cluster(**FOUR)
    groups = a_group(2, name="a", spread=True), a_group(2, name="b", spread=True)
    job = structs.replace(a_gang(*groups), gang=None)
    cluster.submit(job)
    assert places(cluster, job) == [1, 1, 1, 1]


@pytest.mark.parametrize(("tasks", "expected"), [(3, [1, 1, 1]), (6, [1, 1, 2, 2]), (16, [4, 4, 4, 4])])
def test_members_of_a_gang_are_spread(tasks: int, expected: list[int]) -> None:
    cluster = a_cluster(**FOUR)
    gang = a_gang(a_group(tasks, spread=True))
    cluster.submit(gang)
    assert places(cluster, gang) == expected


def test_a_gang_in_one_rack_is_spread_in_the_rack_with_the_most_nodes() -> None:
    racks = {"n1": "a", "n2": "a", "n3": "b", "n4": "b", "n5": "b"}
    cluster = a_cluster()
    for name, rack in racks.items():
        cluster.add_node(name, labels={"rack": rack}, cores=4)
    gang = a_gang(a_group(4, spread=True), gather=(Gather("rack", must=True),))
    cluster.submit(gang)
    assert sorted(set(where(cluster, gang))) == ["n3", "n4", "n5"]


def test_groups_of_a_gang_are_spread_and_packed_beside_each_other() -> None:
    cluster = a_cluster(**FOUR)
    gang = a_gang(a_group(4, name="a", gpus=1, spread=True), a_group(2, name="b", gpus=2, cores=0))
    cluster.submit(gang)
    assert len(where(cluster, gang)) == 6


def test_members_that_come_back_stand_where_none_of_the_others_is() -> None:
    cluster = a_cluster(**FOUR)
    gang = a_gang(a_group(3, spread=True, min=2))
    for node in ("n1", "n2"):
        cluster.submit(a_job(node, cores=4))
    cluster.submit(gang)
    assert places(cluster, gang) == [1, 2]


def test_spreading_is_told() -> None:
    cluster = a_cluster(**FOUR)
    job = a_job(array="0-5", spread=True)
    cluster.submit(job)
    found = explain(
        cluster.state, cluster.state.jobs[job.id], None, Policy(), cluster.state.snapshot(cluster.now)
    )
    told = [each.numbers for each in found.reasons if each.code == "Spread"]
    assert told == [{"host": "n1", "here": 2, "tasks": 6, "nodes": 4}]
