"""Objects of Kubernetes keep their namespace and name: an index over the jobs in memory (M10)."""

from __future__ import annotations

from msgspec import structs

from phalanx.core.cluster.events import JobForgotten
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import Cancel
from phalanx.core.cluster.state import ClusterState, Timers
from phalanx.core.cluster.transitions import apply
from phalanx.core.model.job import Job, is_object
from tests.support.builders import a_gang, a_group, a_job
from tests.support.core_cluster import CoreCluster

PODS = ("default/pod-1", "default/pod-2")


def a_named_gang() -> Job:
    gang = a_gang(a_group(1, name="a", objects=("default/head",)), a_group(2, name="b", objects=PODS))
    assert gang.gang is not None
    return structs.replace(gang, gang=structs.replace(gang.gang, id="default/gang-a,default/gang-b"))


def called(state: ClusterState, name: str, user: str = "") -> tuple[str, int | None] | None:
    found = state.called(name, user)
    return None if found is None else (found[0].job.id, found[1])


def test_a_gang_is_known_by_each_of_its_podgroups_and_a_task_by_its_pod():
    cluster, gang = CoreCluster(n1={"cores": 8}), a_named_gang()
    cluster.submit(gang)
    assert (
        called(cluster.state, "default/gang-a") == called(cluster.state, "default/gang-b") == (gang.id, None)
    )
    assert called(cluster.state, "default/pod-2") == (gang.id, 2)
    assert called(cluster.state, "default/head") == (gang.id, 0)
    assert called(cluster.state, "other/pod-2") is None
    assert gang.task_name(1) == "default/pod-1"


def test_a_name_given_again_means_the_newest_that_is_not_over():
    cluster = CoreCluster(n1={"cores": 8})
    first, second, third = (a_job(object="default/hello") for _ in range(3))
    for job in (first, second, third):
        cluster.submit(job)
    assert called(cluster.state, "default/hello") == (third.id, None)
    cluster.give(Cancel(third.id))
    assert called(cluster.state, "default/hello") == (second.id, None)
    cluster.give(Cancel(first.id))
    cluster.give(Cancel(second.id))
    assert called(cluster.state, "default/hello") == (third.id, None)


def test_each_user_has_names_of_his_own():
    cluster = CoreCluster(n1={"cores": 8})
    alices, bobs = (a_job(object="default/train", user=user) for user in ("alice", "bob"))
    cluster.submit(alices)
    cluster.submit(bobs)
    assert called(cluster.state, "default/train", "alice") == (alices.id, None)
    assert called(cluster.state, "default/train", "bob") == (bobs.id, None)
    assert called(cluster.state, "default/train", "carol") is None
    cluster.give(Cancel(alices.id))
    apply(cluster.state, JobForgotten(at=1.0, job=alices.id))
    assert called(cluster.state, "default/train", "alice") is None
    assert list(cluster.state.names.objects["default/train"]) == ["bob"]


def test_the_index_is_rebuilt_from_an_image_and_forgets_what_leaves_memory():
    cluster, gang = CoreCluster(n1={"cores": 8}), a_named_gang()
    cluster.submit(gang)
    state = decode_state(encode_state(cluster.state), Timers())
    assert called(state, "default/pod-2") == (gang.id, 2)
    cluster.give(Cancel(gang.id))
    apply(cluster.state, JobForgotten(at=1.0, job=gang.id))
    assert cluster.state.names.objects == {}


def test_jobs_without_names_cost_the_index_nothing():
    cluster = CoreCluster(n1={"cores": 8})
    cluster.submit(a_job(array="1-1000"))
    cluster.submit(a_gang(a_group(2)))
    assert cluster.state.names.objects == {}


def test_what_names_an_object():
    long = "a" * 63 + "/" + "b" * 253
    assert all(map(is_object, ("default/pod-1", "kube-system/a.b-c", long)))
    wrong = (
        "pod-1",
        "a/b/c",
        "/x",
        "x/",
        "Default/x",
        "a/b_c",
        "a/-b",
        "a/b-",
        "a.b/c",
        long + "b",
        "a/b\n",
        "a/ü",
    )
    assert not any(map(is_object, wrong))
