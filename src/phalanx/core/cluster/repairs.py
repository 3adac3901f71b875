"""Nodes with devices that are out of service: what they could hold if those were repaired.

A job that needs them waits; it is not refused as one that could never run.
"""

from __future__ import annotations

from phalanx.core.cluster.state import ClusterState
from phalanx.core.model import reason
from phalanx.core.model.ledger import Ledger
from phalanx.core.model.reason import Reason
from phalanx.core.model.resources import Request
from phalanx.core.model.table import NodeTable

Repairs = dict[str, tuple[Ledger, Reason]]


def repairs(state: ClusterState) -> Repairs:
    """By node with failed devices: its account if all of them worked, empty, and what is wrong."""
    found: Repairs = {}
    for node in state.nodes.values():
        if node.health.devices:
            failed = node.health.devices
            which = ", ".join(str(each.index) for each in failed)
            no = reason.devices_failed(node.name, which, failed[0].reason)
            found[node.name] = Ledger(node.name, node.capacity), no
    return found


def waits_for_repair(repairs: Repairs, host: str, request: Request) -> Reason | None:
    """Why a node that could not hold this even when empty would, with all of its devices."""
    known = repairs.get(host)
    return None if known is None or known[0].never(request) is not None else known[1]


def awaits_repair(state: ClusterState, request: Request) -> bool:
    """Whether a node that may be given this could hold it, with all of its devices."""
    known = repairs(state)
    hosts = known if request.target is None else (request.target.host,)
    return any(waits_for_repair(known, host, request) is not None for host in hosts)


def repaired(state: ClusterState) -> NodeTable:
    """All nodes, empty, as if all of their devices worked."""
    table = NodeTable()
    table.set_topology(state.table.topology)
    known = repairs(state)
    for ledger in state.table:
        whole = known[ledger.name][0] if ledger.name in known else ledger
        table.put(ledger.name, whole.capacity)
    return table
