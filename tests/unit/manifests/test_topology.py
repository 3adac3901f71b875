"""ClusterNetworkTopology, and whether a job's layers are those of the network."""

from __future__ import annotations

import pytest

from phalanx.api.schema.groupspec import GatherSpec, GroupSpec
from phalanx.api.schema.jobspec import JobSpec
from phalanx.api.schema.submission import SubmitRequest
from phalanx.core.model.topology import DEFAULT, Layer, Topology
from phalanx.errors import BadRequest
from phalanx.manifests.layers import fit_layers, fit_request
from tests.unit.manifests.documents import Doc, a_pod, a_podgroup, reading, refusal, the_job, warned

NETWORK = Topology((Layer("SpineLayer", ("spine",)), Layer("BlockLayer", ("block",))))


def a_network(*chain: tuple[str, str], name: str = "default") -> Doc:
    """Layers as (name, parent); each goes by the label of its name."""
    entries = [
        {"topologyLayer": layer, "parentTopologyLayer": parent, "labelKey": [layer.lower()]}
        for layer, parent in chain
    ]
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "ClusterNetworkTopology",
        "metadata": {"name": name},
        "spec": {"networkTopologySpec": entries},
    }


def options_of(*layers: str, must: bool = False) -> JobSpec:
    return JobSpec(
        [GroupSpec(command=["x"])], gang=True, gather=[GatherSpec(layer, must) for layer in layers]
    )


def test_layers_are_read_from_the_outermost_in_whatever_their_order():
    made = reading(a_network(("NodeTopologyLayer", "B"), ("A", ""), ("B", "A"))).topology
    assert made == Topology(
        (Layer("A", ("a",)), Layer("B", ("b",))), "ClusterTopologyLayer", "NodeTopologyLayer"
    )


def test_the_cluster_may_be_named_as_the_parent_of_all():
    made = reading(a_network(("NodeTopologyLayer", "A"), ("A", "ClusterTopologyLayer"))).topology
    assert made is not None
    assert [layer.name for layer in made.layers] == ["A"]


@pytest.mark.parametrize(
    ("chain", "why"),
    [
        ([("A", "")], "NodeTopologyLayer is missing"),
        ([("NodeTopologyLayer", "B"), ("A", "")], "B is not declared"),
        ([("NodeTopologyLayer", "A"), ("A", "B"), ("B", "A")], "round in a circle"),
        ([("NodeTopologyLayer", "A"), ("A", "A")], "round in a circle"),
        ([("NodeTopologyLayer", "A"), ("A", ""), ("C", "")], "C is not on the way"),
        ([("NodeTopologyLayer", "A"), ("A", ""), ("B", "A")], "B is not on the way"),
        ([("NodeTopologyLayer", "A"), ("A", ""), ("A", "")], "A is declared twice"),
        ([("NodeTopologyLayer", ""), ("", "")], "cannot be the name"),
    ],
)
def test_what_is_not_one_chain_is_refused(chain: list[tuple[str, str]], why: str):
    assert why in refusal(a_network(*chain))


def test_a_layer_without_a_label_is_refused():
    network = a_network(("NodeTopologyLayer", "A"), ("A", ""))
    del network["spec"]["networkTopologySpec"][1]["labelKey"]
    assert "labelKey: there is none" in refusal(network)


def test_only_the_object_named_default_counts():
    made = reading(a_network(("NodeTopologyLayer", ""), name="other"))
    assert made.topology is None
    assert "only the object named default" in str(made.warnings[0])


@pytest.mark.parametrize("word", ["spineLayer", "SPINELAYER", "spine", "Spine"])
def test_a_layer_that_must_be_meant_is_read_with_a_caution(word: str):
    spec, (caution,), _ = fit_layers(options_of(word, must=True), NETWORK)
    assert spec.gather == [GatherSpec("SpineLayer", True)]
    assert "it is read as SpineLayer" in str(caution)


def test_koordinators_names_are_read_on_a_network_with_our_own():
    spec, _, _ = fit_layers(options_of("SpineLayer", "NodeTopologyLayer"), DEFAULT)
    assert [options.layer for options in spec.gather] == ["spine", "node"]


def test_a_layer_may_be_named_by_its_label():
    spec, _, _ = fit_layers(options_of("network.topology.nvidia.com/block"), DEFAULT)
    assert [options.layer for options in spec.gather] == ["block"]


def test_a_layer_in_its_own_letters_needs_no_word():
    assert fit_layers(options_of("SpineLayer"), NETWORK) == (options_of("SpineLayer"), [], None)


def test_two_words_for_one_layer_are_one_wish():
    spec, _, _ = fit_layers(options_of("SpineLayer", "spinelayer"), NETWORK)
    assert [options.layer for options in spec.gather] == ["SpineLayer"]


def test_a_submission_is_fitted_before_it_becomes_jobs():
    request = SubmitRequest(command=["true"], tasks=2, gather=[GatherSpec("spine", must=True)])
    fitted, (warning,) = fit_request(request, NETWORK)
    assert fitted.gather == [GatherSpec("SpineLayer", must=True)]
    assert "it is read as SpineLayer" in warning


def test_a_layer_that_stands_twice_in_a_submission_is_refused_as_written():
    request = SubmitRequest(command=["true"], tasks=2, gather=[GatherSpec("spine"), GatherSpec("spine")])
    with pytest.raises(BadRequest, match="named twice"):
        fit_request(request, NETWORK)


def test_a_preference_for_an_unknown_layer_is_told_and_dropped():
    spec, (caution,), _ = fit_layers(options_of("AcceleratorLayer"), NETWORK)
    assert spec.gather == []
    assert "changes nothing" in str(caution)


def test_an_unknown_layer_that_must_be_is_a_reason_to_wait():
    _, _, missing = fit_layers(options_of("AcceleratorLayer", must=True), NETWORK)
    assert missing is not None
    assert missing.code == "MustGatherImpossible"


def test_layers_are_checked_where_the_files_declare_them():
    network = a_network(("NodeTopologyLayer", "Rack"), ("Rack", ""))
    options = [{"layer": "rack", "strategy": "MustGather"}]
    documents = (network, a_podgroup(network_topology_spec=options), a_pod(gang="g"))
    assert the_job(*documents).gather == [GatherSpec("Rack", True)]
    assert "it is read as Rack" in warned(*documents)
    options[0]["layer"] = "Row"
    assert "no layer Row" in refusal(*documents)
    assert the_job(*documents, for_plan=True).gather == [GatherSpec("Row", True)]
