"""The brake: if most nodes fall silent at once, it is likelier that we are cut off than that all of them died.

Then nobody is declared lost and every attempt keeps its grant, until enough nodes are back or an operator says of a
node that it is really gone. Counted are the nodes that were there, that nobody has
drained and whose runners were not stopped in an orderly way.
"""

from __future__ import annotations

from typing import NamedTuple

from phalanx.core.cluster.events import BrakeReleased, BrakeSet, Event, NodeDisconnected
from phalanx.core.cluster.state import ClusterState, NodeState

NAMES_SHOWN = 20


class Count(NamedTuple):
    """How many nodes are silent, of how many that were there."""

    silent: int
    nodes: int


def judged(state: ClusterState, overdue: list[NodeState], now: float) -> tuple[list[Event], list[NodeState]]:
    """What the brake does now, and whose lease counts as over of those that are overdue."""
    if not overdue and state.brake is None:
        return [], []
    count = counted(state, now)
    if overdue and is_too_many(state, count):
        events: list[Event] = []
        if state.brake is None:
            names = tuple(sorted(node.name for node in overdue)[:NAMES_SHOWN])
            events.append(
                BrakeSet(at=now, cause="silence", silent=count.silent, nodes=count.nodes, names=names)
            )
        # Nothing new goes where nobody listens; the next heartbeat puts that right.
        hanging = [node.name for node in overdue if node.connected]
        return [*events, *(NodeDisconnected(at=now, cause="silence", node=name) for name in hanging)], []
    if state.brake is None:
        return [], overdue
    released = BrakeReleased(at=now, cause="heartbeats", silent=count.silent, nodes=count.nodes)
    return [released], overdue


def counted(state: ClusterState, now: float) -> Count:
    """Nodes that are silent or were lost within one lease, and all that were there in that time.

    The heartbeats of nodes that fell silent together end within one interval, so whoever has been quiet for nearly as
    long as the first is counted with it.
    """
    rules = state.rules
    quiet_s = max(1.5 * rules.heartbeat_s, rules.lost_after_s - 1.5 * rules.heartbeat_s)
    silent = nodes = 0
    for node in state.nodes.values():
        if node.drain_reason is not None or node.leaving:
            continue
        if node.lost:
            recently = node.lost_at is not None and now - node.lost_at <= rules.lost_after_s
            silent, nodes = silent + recently, nodes + recently
        else:
            silent, nodes = silent + node.is_silent(now, quiet_s), nodes + 1
    return Count(silent, nodes)


def holds_for(state: ClusterState, node: NodeState) -> bool:
    """Whether this node would count as lost if the brake were not set: it has not been heard of since before."""
    if state.brake is None or node.lost:
        return False
    return state.brake.at - node.heard_at > 1.5 * state.rules.heartbeat_s


def is_too_many(state: ClusterState, count: Count) -> bool:
    """Whether so many are silent that their silence is not believed."""
    rules = state.rules
    return count.nodes >= rules.brake_nodes_min and count.silent > rules.brake_share * count.nodes
