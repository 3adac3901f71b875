"""The topology map in Koordinator's format: a `ClusterNetworkTopology` with its `status.detailStatus`.

Domains are in depth-first order, children sorted by name. `childTopologyNames` is left out where the children are
nodes, `parentTopologyInfo` at the root. What the format cannot express (nodes without labels, the tasks on each node)
is in the JSON.
"""

from __future__ import annotations

from typing import Any

from phalanx.api.schema.apply import DomainView, TopologyView

API_VERSION = "scheduling.koordinator.sh/v1alpha1"
KIND = "ClusterNetworkTopology"


def cluster_network_topology(view: TopologyView) -> dict[str, Any]:
    """The whole document, keys in the order in which `kubectl` writes them."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": "default"},
        "spec": {"networkTopologySpec": _spec(view)},
        "status": {"detailStatus": _detail(view)},
    }


def _spec(view: TopologyView) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    parent = ""
    for layer in view.layers:
        outer = {"parentTopologyLayer": parent} if parent else {}
        entries.append({"labelKey": layer.keys, **outer, "topologyLayer": layer.name})
        parent = layer.name
    outer = {"parentTopologyLayer": parent} if parent else {}
    return [*entries, {**outer, "topologyLayer": view.node_layer}]


def _detail(view: TopologyView) -> list[dict[str, Any]]:
    layers = {tuple(domain.domain): domain.layer for domain in view.domains}
    return [_entry(domain, layers) for domain in view.domains]


def _entry(domain: DomainView, layers: dict[tuple[str, ...], str]) -> dict[str, Any]:
    path = tuple(domain.domain)
    names = {"childTopologyNames": domain.children} if domain.children else {}
    parent = {"parentTopologyInfo": _position(path[:-1], layers)} if path else {}
    return {
        "childTopologyLayer": domain.child_layer,
        **names,
        "nodeNum": domain.nodes,
        **parent,
        "topologyInfo": _position(path, layers),
    }


def _position(path: tuple[str, ...], layers: dict[tuple[str, ...], str]) -> dict[str, str]:
    return {"topologyLayer": layers[path], "topologyName": path[-1] if path else ""}
