"""Choices about health checks: what a runner found becomes a fact when it has changed, and may evict.

A node whose checks fail gets no work until they pass; what runs there goes on unless the runner is to evict. Single
devices that failed are taken out of service, and the rest of the node goes on. The runner decides when a check passes
again: it waits for several passes in a row.
"""

from __future__ import annotations

from phalanx.core.cluster import events as e
from phalanx.core.cluster.decide.leaving import evictions, leaving
from phalanx.core.cluster.health_events import NodeChecked
from phalanx.core.cluster.nodes import NodeState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.health import NodeHealth, bounded


def checked(node: str, former: NodeHealth, health: NodeHealth | None, now: float) -> list[e.Event]:
    """What the checks say, if it is another thing than before."""
    said = bounded(health)
    return [] if said == former else [NodeChecked(at=now, cause="health", node=node, health=said)]


def evicted(state: ClusterState, node: NodeState, health: NodeHealth | None, now: float) -> list[e.Event]:
    """Who has to leave because checks fail, if the runner is to evict. Whoever came in between leaves, too."""
    if health is None or not health.evict:
        return []
    keys = leaving(state, node) if health.reason else leaving(state, node, health.failed)
    because = health.reason or describe_devices(health)
    text = f"phalanx: evicted, a health check of {node.name} fails: {because}"
    return evictions(state, keys, now, f"health of {node.name}", text)


def describe_devices(health: NodeHealth) -> str:
    """Which devices failed, and why, in one line."""
    first = health.devices[0]
    others = [str(each.index) for each in health.devices[1:]]
    more = f" (out of service, too: {', '.join(others)})" if others else ""
    return f"GPU {first.index} is out of service: {first.reason}{more}"
