"""Nodes that take no work at all, and why."""

from __future__ import annotations

from phalanx.core.cluster.nodes import NodeState
from phalanx.core.model import reason
from phalanx.core.model.reason import Reason


def why_closed(node: NodeState) -> Reason | None:
    """Why a node takes no work at all, or None if it does."""
    if node.disabled_reason is not None and node.drain_reason is None:
        is_away = node.lost or node.leaving or not node.connected
        said = reason.disabled_away if is_away else reason.disabled
        return said(node.name, node.disabled_reason, node.disabled_automatically)
    if node.lost:
        return reason.offline(node.name)
    if node.drain_reason is not None:
        return reason.drained(node.name, node.drain_reason)
    if node.leaving:
        return reason.stopped(node.name)
    if not node.connected:
        return reason.unreachable(node.name)
    if node.trouble:
        return reason.unhealthy(node.name, node.trouble)
    if node.health.reason:
        return reason.unhealthy_node(node.name, node.health.reason)
    if node.leftovers:
        return reason.quarantined(node.name, len(node.leftovers))
    if node.is_kept_away:
        return reason.node_excluded(node.name, node.failures, node.excluded_until or 0.0, node.exclusion_text)
    return reason.bound(node.name, node.bound_to) if node.bound_to else None
