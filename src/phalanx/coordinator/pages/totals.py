"""What all nodes together have, and how much of it is held and free."""

from __future__ import annotations

from phalanx.api.schema.pages import HeldCounts, NodeCounts
from phalanx.coordinator.views_cluster import node_status
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.amounts import CORES, MILLICORES


def gpu_counts(state: ClusterState) -> HeldCounts:
    """Those that are promised count as held."""
    found = HeldCounts(0, 0, 0)
    for ledger in state.table.ledgers:
        total, free = len(ledger.devices), len(ledger.devices_free)
        found.all += total
        found.held += total - free
        found.free += free if state.table.is_open(ledger.name) else 0
    return found


def core_counts(state: ClusterState) -> HeldCounts:
    found = HeldCounts(0, 0, 0)
    for ledger in state.table.ledgers:
        total, free = MILLICORES[ledger.capacity.cores] / 1000, ledger.free[CORES] / 1000
        found.all += total
        found.held += max(0.0, total - free)
        found.free += free if state.table.is_open(ledger.name) else 0
    return found


def node_counts(state: ClusterState) -> NodeCounts:
    found = NodeCounts(len(state.nodes), 0, 0, 0, 0)
    for node in state.nodes.values():
        if node.takes_work:
            found.taking_work += 1
        elif node_status(node) in ("Offline", "Unreachable"):
            found.away += 1
        elif node.drain_reason is not None or node.disabled_reason is not None:
            found.drained += 1
        else:
            found.other += 1
    return found
