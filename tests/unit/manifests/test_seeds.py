"""Every manifest of seeds 002 and 003, word for word."""

from __future__ import annotations

import pytest

from phalanx.api.schema.groupspec import GatherSpec
from phalanx.api.schema.jobspec import GangSpec, RestartSpec
from phalanx.core.model.topology import Layer, Topology
from phalanx.manifests.caution import ManifestError
from phalanx.manifests.read import Manifests, read
from tests.unit.manifests.documents import SEEDS, pods, seed, text_of

NVIDIA = "network.topology.nvidia.com"


def planned(*names: str, more: str = "", cluster: tuple[str, ...] = ()) -> Manifests:
    texts = [(name, seed(name)) for name in names] + ([("more.yaml", more)] if more else [])
    return read(texts, cluster=[(name, seed(name)) for name in cluster], for_plan=True)


def members(gang: str, count: int) -> str:
    return text_of(*pods(count, gang, gang))


def test_no_manifest_of_a_seed_is_left_out():
    assert len(list(SEEDS.glob("003-*.yaml"))) == 11


def test_a_podgroup_with_its_pods():
    made = planned("003-podgroup", "003-pods")
    (job,) = made.jobs
    assert isinstance(job.gang, GangSpec)
    assert (job.name, job.gang.id, job.groups[0].tasks, job.groups[0].min) == (
        "gang-example",
        "default/gang-example",
        2,
        0,
    )
    assert job.groups[0].objects == ["default/pod-example1", "default/pod-example2"]
    assert made.warnings == []


def test_a_podgroup_without_pods_and_pods_without_a_podgroup_wait_for_each_other():
    for name in ("003-podgroup", "003-pods"):
        (incomplete,) = planned(name).incomplete
        assert incomplete.reason.code == "GangIncomplete"
        with pytest.raises(ManifestError):
            read([(name, seed(name))])


def test_a_gang_group_of_two():
    made = planned("003-ganggroup", more=members("gang-example1", 1) + "---\n" + members("gang-example2", 3))
    (job,) = made.jobs
    assert isinstance(job.gang, GangSpec)
    assert job.gang.id == "default/gang-example1,default/gang-example2"
    assert [(g.name, g.tasks, g.min) for g in job.groups] == [
        ("gang-example1", 1, 0),
        ("gang-example2", 3, 2),
    ]


def test_a_victim_is_a_pod_like_any_other():
    made = planned("003-victim")
    assert [job.name for job in made.jobs] == ["victim-1"]


def test_nominated_pods_are_read_although_one_has_lost_its_indentation():
    made = planned(cluster=("003-nominated",), more=text_of())
    assert made.cluster is not None
    assert "read as if they were inside" in str(made.warnings[0])
    assert made.incomplete[0].id == "default/hello-job"


def test_a_nominated_gang():
    podgroup = seed("003-podgroup").replace("gang-example", "hello-job")
    made = read([], cluster=[("g", podgroup), ("p", seed("003-nominated"))])
    assert made.cluster is not None
    (job,) = made.cluster.jobs
    assert job.nominated == ((0, "example-node"), (1, "example-node"))


def test_the_labels_of_a_node():
    made = planned(cluster=("003-node",))
    assert made.cluster is not None
    (node,) = made.cluster.nodes
    labels = node.capacity.labels
    assert [labels[f"{NVIDIA}/{layer}"] for layer in ("accelerator", "block", "spine", "datacenter")] == [
        "nvl1",
        "s1",
        "s2",
        "s3",
    ]


@pytest.mark.parametrize("name", ["003-topology", "003-topology-status"])
def test_the_network(name: str):
    made = planned(name)
    assert made.topology == Topology(
        (Layer("SpineLayer", (f"{NVIDIA}/spine",)), Layer("BlockLayer", (f"{NVIDIA}/block",))),
        "ClusterTopologyLayer",
        "NodeTopologyLayer",
    )
    assert made.warnings == []


def test_gather_as_preferred():
    made = planned(
        "003-prefer", "003-topology", more=members("gang-master", 1) + "---\n" + members("gang-worker", 2)
    )
    (job,) = made.jobs
    assert job.gather == [GatherSpec("SpineLayer"), GatherSpec("BlockLayer")]
    assert [group.name for group in job.groups] == ["gang-master", "gang-worker"]
    assert "AcceleratorLayer" in str(made.warnings[0])


def test_gather_as_demanded_although_the_layer_is_in_the_wrong_letters():
    made = planned(
        "003-must", "003-topology", more=members("gang-master", 1) + "---\n" + members("gang-worker", 2)
    )
    assert made.jobs[0].gather == [GatherSpec("SpineLayer", True)]
    assert "it is read as SpineLayer" in str(made.warnings[0])


def test_without_a_network_a_layer_is_left_as_it_is_written():
    made = planned("003-must", more=members("gang-master", 1) + "---\n" + members("gang-worker", 2))
    assert made.jobs[0].gather == [GatherSpec("spineLayer", True)]


def test_the_index_of_a_pod():
    made = planned("003-podgroup", "003-index")
    assert made.jobs[0].groups[0].indexes == [1, 2]


def test_recovering_from_eviction():
    text = (
        seed("002-restart")
        + "  command: python main.py\n  types: {worker: {count: 2, completions: 10, parallelisms: 2}}\n"
    )
    (job,) = read([("002.yaml", text)]).jobs
    assert job.max_retries == 5
    assert job.restart == RestartSpec(whole=False, fails_job=True, shared=True, counts_evictions=True)
    assert (job.groups[0].tasks, job.groups[0].replicas, job.groups[0].at_once) == (20, 2, 2)


def test_the_same_for_kuberay():
    text = seed("002-restart").replace('"jobset" # or kuberay', "kuberay")
    text += "  command: python main.py\n  types: {head: {}, worker: {count: 2}}\n"
    (job,) = read([("002.yaml", text)]).jobs
    assert job.restart == RestartSpec(whole=True, limit=5, counts_evictions=True)
