"""Cluster files: our own, and what kubectl prints."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.api.schema.jobspec import GangSpec
from phalanx.core.model.resources import Capacity, Device
from phalanx.manifests.caution import ManifestError
from phalanx.manifests.cluster import ClusterSpec, spread
from phalanx.manifests.found import ParsedJob, Placed
from phalanx.manifests.read import read
from phalanx.manifests.taints import Taint
from tests.unit.manifests.documents import (
    GANG,
    Doc,
    a_node,
    a_pod,
    a_podgroup,
    a_running,
    pods,
    reading,
    warned,
)


def the_cluster(*documents: Doc, jobs: tuple[Doc, ...] = ()) -> ClusterSpec:
    cluster = reading(*jobs, cluster=documents).cluster
    assert cluster is not None
    return cluster


def native(text: str) -> ClusterSpec:
    cluster = read([], cluster=[("cluster.yaml", text)]).cluster
    assert cluster is not None
    return cluster


def refusal(text: str) -> str:
    with pytest.raises(ManifestError) as caught:
        native(text)
    return caught.value.detail


# What kubectl prints


def test_a_node_gives_what_is_allocatable():
    node = a_node(labels={"rack": "r1"}, cpu="7910m", memory="32Gi", gpu="2", pods="110")
    (made,) = the_cluster(node).nodes
    assert made.capacity == Capacity(
        7.91, 32 * 2**30, (), (Device(0, "gpu"), Device(1, "gpu")), {"rack": "r1"}
    )


def test_the_product_of_a_device_is_its_kind():
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"}
    (made,) = the_cluster(a_node(labels=labels, cpu=1, gpu=1)).nodes
    assert made.capacity.devices == (Device(0, "h100", 81559 << 20, name="NVIDIA-H100-80GB-HBM3"),)


def test_cordoned_and_unready_nodes_are_closed_and_taints_are_kept():
    unready = a_node("n2", cpu=1)
    unready["status"]["conditions"][0]["status"] = "Unknown"
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    soft = {"key": "soft", "effect": "PreferNoSchedule"}
    nodes = the_cluster(
        a_node("n1", spec={"unschedulable": True}, cpu=1),
        unready,
        a_node("n3", spec={"taints": [taint, soft]}, cpu=1),
    ).nodes
    assert [node.closed for node in nodes] == ["it is cordoned (unschedulable)", "it is not ready", ""]
    assert nodes[2].taints == (Taint("gpu", "yes"),)


def test_a_bound_pod_holds_its_place():
    pod = a_running("p", "n1", requests={"cpu": 2, "memory": "1Gi", "nvidia.com/gpu": 1}, priority=7)
    (job,) = the_cluster(a_node(cpu=8, memory="8Gi", gpu=2), pod).jobs
    assert (job.id, job.asked, job.spec.priority) == ("default/p", False, 7)
    assert job.placed == (Placed(0, "n1", 2, 2**30, 1, started_at=1767225610.0),)


def test_parts_of_cores_are_held_as_they_are():
    small = [a_running(f"p{n}", "n1", requests={"cpu": "300m"}) for n in range(4)]
    cluster = the_cluster(a_node(cpu="7900m"), *small, a_running("big", "n1", requests={"cpu": "2500m"}))
    assert cluster.nodes[0].capacity.cores == 7.9
    assert sorted(placed.cores for job in cluster.jobs for placed in job.placed) == [0.3, 0.3, 0.3, 0.3, 2.5]


def test_devices_shared_in_parts_are_counted_once():
    halves = [a_running(f"p{n}", "n1", requests={"koordinator.sh/gpu-core": 50}) for n in range(2)]
    cluster = the_cluster(a_node(cpu=1, gpu=4), *halves)
    assert len(cluster.nodes[0].capacity.devices) == 3
    assert [placed.gpus for job in cluster.jobs for placed in job.placed] == [0, 0]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_holds_nothing(phase: str):
    assert the_cluster(a_node(cpu=8), a_running("p", "n1", phase=phase)).jobs == []


def test_a_member_that_has_done_its_work_still_counts_for_its_gang():
    members = [a_running("p1", "n1", gang="g", phase="Succeeded"), a_running("p2", "n1", gang="g")]
    (job,) = the_cluster(a_node(cpu=8), a_podgroup(least=2), *members).jobs
    assert (job.done, [placed.position for placed in job.placed]) == ((0,), [1])


def test_a_pod_that_waits_in_the_cluster_is_a_job_that_waits():
    (job,) = the_cluster(a_node(cpu=8), a_pod("p")).jobs
    assert (job.placed, job.asked) == ((), False)


def test_a_gang_partly_placed_is_one_job_with_its_minimum():
    members = [a_running("p1", "n1", gang="g"), a_running("p2", "n1", gang="g"), a_pod("p3", gang="g")]
    (job,) = the_cluster(a_node(cpu=8), a_podgroup(least=2), *members).jobs
    assert isinstance(job.spec.gang, GangSpec)
    assert (job.id, job.spec.groups[0].tasks, job.spec.groups[0].min) == ("default/g", 3, 2)
    assert [placed.position for placed in job.placed] == [0, 1]


def test_a_gang_that_has_lost_members_needs_those_it_has():
    (job,) = the_cluster(a_node(cpu=8), a_podgroup(least=3), a_running("p1", "n1", gang="g")).jobs
    assert (job.spec.groups[0].tasks, job.spec.groups[0].min) == (1, 0)


def test_pods_of_one_owner_are_one_job_without_a_gang():
    owned = [a_running(f"p{n}", "n1") for n in range(3)]
    for pod in owned:
        pod["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "web", "controller": True}]
    (job,) = the_cluster(a_node(cpu=8), *owned).jobs
    assert (job.id, job.spec.gang, job.spec.groups[0].tasks) == ("default/web", False, 3)


def test_koordinators_key_says_which_job_a_pod_is_of():
    label = {"scheduling.koordinator.sh/questioned-object-key": "ns/job"}
    cluster = the_cluster(
        a_node(cpu=8), a_running("a", "n1", labels=label), a_running("b", "n1", labels=label)
    )
    assert [job.id for job in cluster.jobs] == ["ns/job"]


def test_nominated_and_leaving_pods_are_known_as_such():
    waiting = a_pod("p") | {"status": {"nominatedNodeName": "n1"}}
    leaving = a_running("q", "n1")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    first, second = the_cluster(a_node(cpu=8), waiting, leaving).jobs
    assert first.nominated == ((0, "n1"),)
    assert second.placed[0].ending


def test_new_members_of_a_gang_that_runs_join_it():
    made = reading(
        a_pod("p2", gang="g"), cluster=(a_node(cpu=8), a_podgroup(), a_running("p1", "n1", gang="g"))
    )
    assert made.jobs == []
    assert made.cluster is not None
    (job,) = made.cluster.jobs
    assert (job.asked, job.names) == (True, ("default/p1", "default/p2"))


def test_jobs_may_use_what_the_cluster_declares():
    high = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 9,
    }
    made = reading(
        *pods(2, "g", priorityClassName="high"), cluster=(a_node(cpu=1), a_podgroup(least=2), high)
    )
    assert [(job.priority, job.groups[0].tasks) for job in made.jobs] == [(9, 2)]


def test_a_pod_that_the_cluster_has_already_is_not_planned_again():
    made = reading(a_pod("p"), cluster=(a_node(cpu=1), a_running("p", "n1")))
    assert made.jobs == []
    assert "the cluster has it already" in str(made.warnings[0])


def test_what_is_wrong_in_a_cluster_is_passed_over_with_a_caution():
    bad = a_running("bad", "n1", requests={"cpu": "lots"})
    worse = a_running("worse", "n1", priority="high")
    gang = a_running("g1", "n1", annotations={f"{GANG}/name": "g", f"{GANG}/min-available": "?"})
    cluster = (a_node(cpu=8), bad, worse, gang)
    told = warned(cluster=cluster)
    assert "taken as 0" in told
    assert "cannot be read and is skipped" in told
    assert "ignored" in told
    assert [job.id for job in the_cluster(*cluster).jobs] == ["default/bad"]


def test_a_node_that_no_file_describes_is_closed():
    (node,) = the_cluster(a_running("p", "elsewhere", requests={"cpu": 2})).nodes
    assert (node.name, node.capacity.cores) == ("elsewhere", 2)
    assert "in none of the files" in node.closed


def test_a_node_with_more_on_it_than_it_has_is_told():
    cluster = (a_node(cpu=1), a_running("p", "n1", requests={"cpu": 4}))
    assert "more is taken on it than it has" in warned(cluster=cluster)
    assert the_cluster(*cluster).nodes[0].capacity.cores == 4


def test_fields_of_what_only_lies_in_a_cluster_need_no_word():
    assert warned(cluster=(a_node(cpu=8), a_running("p", "n1", hostname="h", labels={"app": "x"}))) == ""


def test_other_kinds_in_a_cluster_are_passed_over_with_a_caution():
    assert "is not read" in warned(cluster=({"kind": "Deployment", "metadata": {"name": "d"}},))


# Our own


def test_our_own_file_says_all_of_it():
    cluster = native("""
topology: [{layer: block, labels: [b]}, {layer: rack}]
queues: {team-a: {gpus: 4, tasks: 2}}
nodes:
  - {name: "n[08-10]", cores: 16, memory: 64GiB, gpus: 2, gpu_type: h100, gpu_memory: 80GiB, numa: 2}
  - {name: x1, cores: 4, devices: [{kind: a100, count: 1}, {kind: l4}], closed: broken}
running:
  - {name: low, gpus: 1, cores: 2, memory: 1GiB, gang: true, min: 2, places: ["n[08-09]", n10], started_at: 5}
waiting:
  - {name: next, gpus: 2}
now: 100
""")
    assert [node.name for node in cluster.nodes] == ["n08", "n09", "n10", "x1"]
    first, last = cluster.nodes[0], cluster.nodes[3]
    assert [(numa.id, numa.cores) for numa in first.capacity.numa] == [(0, 8), (1, 8)]
    assert first.capacity.devices == (Device(0, "h100", 80 << 30, 0), Device(1, "h100", 80 << 30, 1))
    assert (last.closed, [device.kind for device in last.capacity.devices]) == ("broken", ["a100", "l4"])
    low, waiting = cluster.jobs
    assert low.placed[2] == Placed(2, "n10", 2, 2**30, 1, 5.0)
    assert (low.spec.groups[0].tasks, low.spec.groups[0].min, waiting.placed) == (3, 2, ())
    assert (cluster.now, cluster.queues["team-a"].gpus) == (100.0, 4)
    assert cluster.topology is not None
    assert [(layer.name, layer.keys) for layer in cluster.topology.layers] == [
        ("block", ("b",)),
        ("rack", ("rack",)),
    ]


def test_places_may_be_counted():
    cluster = native("nodes: [{name: n1, cores: 8}]\nrunning: [{name: a, places: {n1: 3}}]\n")
    assert [placed.node for placed in cluster.jobs[0].placed] == ["n1"] * 3


def test_groups_have_places_of_their_own():
    cluster = native("""
nodes: [{name: n1, cores: 8}]
running:
  - {name: a, groups: [{name: x, tasks: 2, places: [n1]}, {name: y, places: [n1]}]}
""")
    assert [placed.position for placed in cluster.jobs[0].placed] == [0, 2]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nodes: [{name: n1}, {name: n1}]", "declared twice"),
        ("nodes: [{name: N1}]", "is not a name"),
        ("nodes: [{name: n1, core: 3}]", "nodes[0].core: is unknown"),
        ("nodes: [{name: n1, cores: -1}]", "out of range"),
        ("nodes: [{name: 'n[9-1]'}]", "is not a range"),
        ("nodes: [{name: n1, memory: lots}]", "is not a size"),
        (
            "nodes: [{name: n1, memory: 512}]",
            "memory: 512 without a unit is 512 bytes, and the least for a node",
        ),
        ("nodes: 3", "is not a list of mappings"),
        ("nodes: []\nnode: []", "node: is unknown"),
        ("nodes: []\nrunning: [{name: a, places: [n1]}]", "there is no node 'n1'"),
        ("nodes: [{name: n1, cores: 1}]\nrunning: [{name: a, cores: 2, places: [n1]}]", "has no room for it"),
        ("nodes: [{name: n1}]\nrunning: [{name: a, tasks: 1, places: [n1, n1]}]", "2 are given for 1 tasks"),
        ("nodes: [{name: n1}]\nrunning: [{name: a, place: [n1]}]", "did you mean 'places'?"),
        ("nodes: []\nqueues: {A: {}}", "is not a name of a queue"),
        ("nodes: []\nqueues: {a: {gpu: 1}}", "gpu: is unknown"),
        ("topology: [{layer: a}, {layer: a}]", "declared twice"),
        ("nodes: []\nnow: yesterday", "is not a time"),
        ("name: a\ncommand: [x]", "cluster.yaml:1: this is a job file, not a cluster file"),
    ],
)
def test_what_cannot_be_a_cluster_is_refused(text: str, why: str):
    assert why in refusal(text)


def test_ranges_of_names():
    assert spread("n[8-10].lab") == ["n8.lab", "n9.lab", "n10.lab"]
    assert spread("n1") == ["n1"]


def test_both_kinds_of_files_together():
    made: Any = read(
        [("j.yaml", "command: [x]")],
        cluster=[("a.yaml", "nodes: [{name: n1}]"), ("b.yaml", "nodes: [{name: n2}]")],
    )
    assert [node.name for node in made.cluster.nodes] == ["n1", "n2"]
    assert isinstance(made.found[0], ParsedJob)
