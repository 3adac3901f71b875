"""A cluster put together from all cluster files: every node, and what is taken on it.

The planner decides which jobs may use a node with taints, because it knows what each job tolerates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from operator import gt

from phalanx.core.model.amounts import FIXED, fixed
from phalanx.core.model.resources import Capacity
from phalanx.manifests.caution import Cautions, ManifestError
from phalanx.manifests.cluster import ClusterSpec
from phalanx.manifests.found import ParsedJob
from phalanx.manifests.nodes import UNKNOWN, KubeNode, NodeSpec, settle, unknown_node
from phalanx.manifests.pods import Pod


def settled(
    kube: list[KubeNode],
    parts: list[ClusterSpec],
    pods: list[Pod],
    known: list[ParsedJob],
    cautions: Cautions,
) -> ClusterSpec:
    """The cluster of all parts, with the jobs in it."""
    there: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        if pod.node:
            there[pod.node].append(pod)
    by_name = {node.name: node for node in kube}
    for name in there:
        by_name.setdefault(name, unknown_node(name))
    nodes = [_settled(node, there[node.name], cautions) for node in by_name.values()]
    nodes += [node for part in parts for node in part.nodes]
    _check_native(nodes, known, set(by_name))
    queues = {name: quota for part in parts for name, quota in part.queues.items()}
    now = next((part.now for part in reversed(parts) if part.now is not None), None)
    return ClusterSpec(nodes, known, None, queues, now)


def _settled(node: KubeNode, pods: list[Pod], cautions: Cautions) -> NodeSpec:
    made, over = settle(node, pods)
    if node.closed == UNKNOWN:
        cautions.add(
            pods[0].template.view.where(), f"Node {node.name}", "", "", f"{UNKNOWN}; nothing is placed there"
        )
    elif over:
        where = pods[0].template.view.where()
        cautions.add(
            where, f"Node {node.name}", "", "", "more is taken on it than it has; nothing of that is free"
        )
    return made


def _check_native(nodes: list[NodeSpec], known: Iterable[ParsedJob], kube: set[str]) -> None:
    """Refuse duplicate names, places on unknown nodes, and nodes on which more is held than they have."""
    capacities: dict[str, Capacity] = {}
    for node in nodes:
        if node.name in capacities:
            raise ManifestError(node.name, "the node is declared twice")
        capacities[node.name] = node.capacity
    held: dict[str, list[int]] = defaultdict(lambda: [0] * (FIXED + 1))
    for found in known:
        for each in found.placed:
            if each.node not in capacities:
                raise ManifestError(found.where, f"{found.id}: places: there is no node {each.node[:80]!r}")
            sums = held[each.node]
            for number, amount in enumerate((*fixed(each), each.gpus)):
                sums[number] += amount
            capacity = capacities[each.node]
            has = (*fixed(capacity), len(capacity.devices))
            if each.node not in kube and any(map(gt, sums, has)):
                raise ManifestError(
                    found.where, f"{found.id}: places: {each.node} has no room for it, with what runs there"
                )
