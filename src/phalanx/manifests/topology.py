"""`ClusterNetworkTopology`: the chain of layers between the cluster and its nodes."""

from __future__ import annotations

from phalanx.core.model.topology import KEYS_MAX, LAYERS_MAX, Layer, Topology
from phalanx.manifests.view import View

CLUSTER_LAYER = "ClusterTopologyLayer"
NODE_LAYER = "NodeTopologyLayer"
ONLY_NAME = "default"


def read_network_topology(document: View) -> Topology | None:
    """Read one ClusterNetworkTopology; None if it is not the one named default, which alone is used."""
    name = document.view("metadata").text("name")
    if name != ONLY_NAME:
        document.view("metadata").caution(
            "name", f"only the object named {ONLY_NAME} is read, so this one is not"
        )
        document.skip("spec")
        return None
    spec = document.view("spec")
    entries = spec.views("networkTopologySpec")
    if len(entries) > LAYERS_MAX:
        raise spec.error("networkTopologySpec", f"{len(entries)} layers are too many, at most {LAYERS_MAX}")
    by_name = _by_name(entries)
    if NODE_LAYER not in by_name:
        raise spec.error(
            "networkTopologySpec", f"{NODE_LAYER} is missing, and the chain of layers begins there"
        )
    chain = _chain(by_name)
    beside = [layer for layer in by_name if layer not in chain and layer != NODE_LAYER]
    if beside:
        raise by_name[beside[0]].error(
            "topologyLayer",
            f"{', '.join(beside)} is not on the way from {NODE_LAYER} up ({' → '.join([NODE_LAYER, *chain])}): layers"
            " form one chain, each the parent of one other",
        )
    return Topology(tuple(_layer(by_name[name]) for name in reversed(chain)), CLUSTER_LAYER, NODE_LAYER)


def _by_name(entries: list[View]) -> dict[str, View]:
    found: dict[str, View] = {}
    for entry in entries:
        name = entry.text("topologyLayer")
        if not name or name == CLUSTER_LAYER:
            raise entry.error("topologyLayer", f"{name[:80]!r} cannot be the name of a layer here")
        if name in found:
            raise entry.error("topologyLayer", f"{name} is declared twice, first at {found[name].where()}")
        found[name] = entry
    return found


def _chain(by_name: dict[str, View]) -> list[str]:
    """The layers above the nodes, from the innermost to the outermost."""
    chain: list[str] = []
    at = NODE_LAYER
    while parent := by_name[at].text("parentTopologyLayer"):
        if parent == CLUSTER_LAYER:
            break
        if parent not in by_name:
            raise by_name[at].error(
                "parentTopologyLayer",
                f"{parent} is not declared (layers: {', '.join(by_name)}), so the chain has a gap",
            )
        if parent in chain or parent == NODE_LAYER:
            raise by_name[at].error(
                "parentTopologyLayer",
                f"the layers go round in a circle: {' → '.join([NODE_LAYER, *chain, parent])}",
            )
        chain.append(parent)
        at = parent
    by_name[NODE_LAYER].skip("labelKey")
    return chain


def _layer(entry: View) -> Layer:
    keys = entry.content.get("labelKey")
    labels = entry.strings("labelKey") if isinstance(keys, list) else [entry.text("labelKey")]
    labels = [key for key in labels if key]
    if not labels:
        raise entry.error(
            "labelKey", "there is none: say which label of a node names its domain in this layer"
        )
    if len(labels) > KEYS_MAX:
        raise entry.error("labelKey", f"{len(labels)} keys are too many, at most {KEYS_MAX}")
    return Layer(entry.text("topologyLayer"), tuple(dict.fromkeys(labels)))


def read_layers(view: View, key: str) -> Topology:
    """Layers as our own cluster files write them: the outermost first, a name and its label keys."""
    layers: list[Layer] = []
    for entry in view.views(key):
        name = entry.text("layer")
        keys = (
            entry.strings("labels")
            if isinstance(entry.content.get("labels"), list)
            else [entry.text("labels", name)]
        )
        if not name or not all(keys):
            raise entry.error("layer", "a layer needs a name, and labels that are not empty")
        if any(name == layer.name for layer in layers) or name in ("cluster", "node"):
            raise entry.error("layer", f"{name} is declared twice")
        layers.append(Layer(name, tuple(keys)))
    if len(layers) > LAYERS_MAX:
        raise view.error(key, f"{len(layers)} layers are too many, at most {LAYERS_MAX}")
    return Topology(tuple(layers))
