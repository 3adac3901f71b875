"""The layers of the network, as an operator declares them: which labels say where a node stands.

The tree of domains that follows from the labels of the nodes is `core/model/tree.py`.
"""

from __future__ import annotations

from msgspec import Struct

LAYERS_MAX = 16
KEYS_MAX = 16


class Layer(Struct, frozen=True):
    """One layer. The first of its label keys that a node carries, not empty, names the node's domain."""

    name: str
    keys: tuple[str, ...]


class Topology(Struct, frozen=True):
    """The layers between the cluster and its nodes, the outermost first."""

    layers: tuple[Layer, ...]
    cluster: str = "cluster"  # what the layer above all is called
    node: str = "node"  # what the layer of single nodes is called

    def names(self) -> list[str]:
        """Every layer's name, from the cluster down to the node."""
        return [self.cluster, *(layer.name for layer in self.layers), self.node]


NVIDIA = "network.topology.nvidia.com"
DEFAULT = Topology(
    (
        Layer("spine", ("phalanx/spine", f"{NVIDIA}/spine", "spine")),
        Layer("block", ("phalanx/block", f"{NVIDIA}/block", "block")),
        Layer("rack", ("phalanx/rack", f"{NVIDIA}/accelerator", "rack")),
    )
)
"""What is assumed until an operator says otherwise. A layer that no node has a label for changes nothing."""
