"""The topology map: domains depth first, what is free in them, the tasks on each node, and missing labels."""

from __future__ import annotations

from phalanx.api.schema.apply import TopologyView
from phalanx.preview.detail import cluster_network_topology
from phalanx.preview.topology import topology_view
from tests.unit.preview.files import offline

LAYERS = "topology: [{layer: spine, labels: [spine]}, {layer: rack, labels: [rack]}]\n"


def view(text: str) -> TopologyView:
    cluster = offline(text)
    return topology_view(cluster.state, cluster.names)


def test_domains_stand_depth_first_with_their_children():
    found = view("spine-block.yaml")
    assert ["/".join(each.domain) for each in found.domains] == [
        *("", "s1", "s1/b1", "s1/b2", "s2", "s2/b3", "s2/b4"),
    ]
    assert found.domains[1].children == ["b1", "b2"]
    assert found.domains[2].children == [], "nodes are listed apart"
    assert [(each.layer, each.child_layer, each.nodes) for each in found.domains[:3]] == [
        ("ClusterTopologyLayer", "SpineLayer", 8),
        ("SpineLayer", "BlockLayer", 4),
        ("BlockLayer", "NodeTopologyLayer", 2),
    ]
    assert [each.name for each in found.nodes] == [f"node-{number}" for number in range(1, 9)]


def test_what_is_free_is_summed_up_the_tree():
    text = (
        LAYERS
        + """
nodes:
  - {name: "a[1-2]", cores: 8, gpus: 4, labels: {spine: s1, rack: r1}}
  - {name: b1, cores: 8, gpus: 4, labels: {spine: s1, rack: r2}}
running: [{name: train, gang: true, gpus: 3, cores: 2, places: [a1, b1]}]
"""
    )
    found = {
        "/".join(each.domain): (each.devices_free, each.devices, each.cores_free)
        for each in view(text).domains
    }
    assert found == {"": (6, 12, 20), "s1": (6, 12, 20), "s1/r1": (5, 8, 14), "s1/r2": (1, 4, 6)}


def test_nodes_that_take_no_work_have_nothing_free():
    cluster = offline("nodes: [{name: n1, cores: 8, gpus: 4}, {name: n2, cores: 2}]\n")
    cluster.state.table.set_open("n1", False)
    (whole,) = topology_view(cluster.state, cluster.names).domains
    assert (whole.cores_free, whole.cores, whole.devices_free, whole.devices) == (2, 2, 0, 0)


def test_who_sits_where_is_told_by_name():
    text = "nodes: [{name: n1, cores: 8, gpus: 4}]\nrunning: [{name: train, gang: true, gpus: 2, places: {n1: 2}}]\n"
    (node,) = view(text).nodes
    assert [(seat.task, seat.job, seat.devices) for seat in node.seats] == [
        ("train.0", "train", [0, 1]),
        ("train.1", "train", [2, 3]),
    ]


def test_missing_labels_are_told_and_the_node_stays():
    text = (
        LAYERS
        + """
nodes:
  - {name: a1, cores: 1, labels: {spine: s1, rack: r1}}
  - {name: a2, cores: 1, labels: {spine: s1}}
  - {name: a3, cores: 1}
"""
    )
    found = view(text)
    assert {each.name: each.missing for each in found.nodes} == {
        "a1": [],
        "a2": ["rack"],
        "a3": ["spine", "rack"],
    }
    virtual = ["/".join(each.domain) for each in found.domains if each.virtual]
    assert virtual == ["a3", "a3/a3", "s1/a2"]


def test_a_closed_node_is_not_open():
    (node,) = view("nodes: [{name: n1, cores: 8, closed: no power}]\n").nodes
    assert not node.open


def test_layers_that_nobody_declared_are_the_usual_ones():
    found = view("nodes: [{name: n1, cores: 8, labels: {rack: r7}}]\n")
    assert [layer.name for layer in found.layers] == ["spine", "block", "rack"]
    assert [(each.layer, each.domain) for each in found.domains] == [("cluster", []), ("rack", ["r7"])]


def test_a_cluster_without_layers_or_nodes_has_a_root():
    document = cluster_network_topology(view("nodes: []\n"))
    assert document["status"]["detailStatus"] == [
        {
            "childTopologyLayer": "node",
            "nodeNum": 0,
            "topologyInfo": {"topologyLayer": "cluster", "topologyName": ""},
        }
    ]


def test_the_same_name_in_two_places_is_two_domains():
    document = cluster_network_topology(view("same-name.yaml"))
    parents = [
        each["parentTopologyInfo"]["topologyName"]
        for each in document["status"]["detailStatus"]
        if each["topologyInfo"]["topologyName"] == "b1"
    ]
    assert parents == ["s1", "s2"]
