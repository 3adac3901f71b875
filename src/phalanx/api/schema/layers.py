"""The layers of the network over REST, and how a `TopologySpec` becomes a `Topology`.

Checked here is what can be known without the cluster. The tree that follows from the nodes' labels is shown elsewhere.
"""

from __future__ import annotations

from msgspec import Struct

from phalanx.api.schema.fields import check_count, check_text, shown
from phalanx.core.model.topology import KEYS_MAX, LAYERS_MAX, Layer, Topology
from phalanx.errors import BadRequest

NAME_BYTES_MAX = 253
KEY_BYTES_MAX = 512


class LayerSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """One layer. The first of its label keys that a node carries, not empty, names the node's domain."""

    name: str
    keys: list[str]


class TopologySpec(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The layers between the cluster and its nodes, the outermost first."""

    layers: list[LayerSpec]
    cluster: str = "cluster"  # what the layer above all is called
    node: str = "node"  # what the layer of single nodes is called


class TopologyReply(Struct):
    """The layers that hold from now on, from the cluster down to the node."""

    layers: list[str]
    changed: bool


def to_topology(spec: TopologySpec, field: str = "") -> Topology:
    """The topology a spec describes, or a refusal that names the field."""
    check_count(f"{field}layers", len(spec.layers), LAYERS_MAX)
    seen: dict[str, str] = {}
    for where, name in _names(spec, field):
        _check_word(where, name, NAME_BYTES_MAX)
        if name in seen:
            raise BadRequest(f"{where}: {shown(name)} is already the name of {seen[name]}")
        seen[name] = where
    layers = tuple(
        Layer(each.name, _keys(each.keys, f"{field}layers[{number}].keys"))
        for number, each in enumerate(spec.layers)
    )
    return Topology(layers, spec.cluster, spec.node)


def to_spec(topology: Topology) -> TopologySpec:
    """The same in the words of REST."""
    layers = [LayerSpec(each.name, list(each.keys)) for each in topology.layers]
    return TopologySpec(layers, topology.cluster, topology.node)


def _names(spec: TopologySpec, field: str) -> list[tuple[str, str]]:
    layers = [(f"{field}layers[{number}].name", each.name) for number, each in enumerate(spec.layers)]
    return [(f"{field}cluster", spec.cluster), (f"{field}node", spec.node), *layers]


def _keys(keys: list[str], field: str) -> tuple[str, ...]:
    if not keys:
        raise BadRequest(
            f"{field}: there is none, give the label that names the domain, such as phalanx/rack"
        )
    check_count(field, len(keys), KEYS_MAX)
    for key in keys:
        _check_word(field, key, KEY_BYTES_MAX)
    if len(set(keys)) != len(keys):
        raise BadRequest(f"{field}: {shown(keys)} names a label twice")
    return tuple(keys)


def _check_word(field: str, word: str, bytes_max: int) -> None:
    check_text(field, word, bytes_max)
    if not word or not word.isprintable() or word != word.strip():
        raise BadRequest(f"{field}: {shown(word)} is not a word: write printable characters, at least one")
