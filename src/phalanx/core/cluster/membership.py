"""What events do to nodes: joining, falling silent, being drained and coming back."""

from __future__ import annotations

from phalanx.core.cluster.events import (
    Event,
    NodeCleared,
    NodeConnected,
    NodeDisconnected,
    NodeDrained,
    NodeHeard,
    NodeJoined,
    NodeLost,
    NodeResumed,
)
from phalanx.core.cluster.state import ClusterState, NodeState
from phalanx.core.model.resources import Capacity


def apply(state: ClusterState, event: Event) -> None:
    """Change one node."""
    match event:
        case NodeHeard():
            node = state.nodes[event.node]
            node.heard_at = event.at
            if not node.connected:
                node.connected = True
                _reopen(state, node)
        case NodeJoined():
            _joined(state, event)
        case NodeConnected():
            node = state.nodes[event.node]
            node.connected, node.heard_at = True, event.at
            _reopen(state, node)
        case NodeDisconnected():
            state.nodes[event.node].connected = False
            _reopen(state, state.nodes[event.node])
        case NodeLost():
            node = state.nodes[event.node]
            node.lost, node.connected = True, False
            node.leftovers.clear()
            _reopen(state, node)
        case NodeCleared():
            state.nodes[event.node].leftovers.discard(event.key)
            _reopen(state, state.nodes[event.node])
        case NodeDrained():
            state.nodes[event.node].drain_reason = event.reason
            _reopen(state, state.nodes[event.node])
        case NodeResumed():
            state.nodes[event.node].drain_reason = None
            _reopen(state, state.nodes[event.node])
        case _:
            raise KeyError(type(event).__name__)


def begin_term(state: ClusterState, at: float) -> None:
    """A new term: nobody is connected yet, and every node gets a whole lease from now."""
    for node in state.nodes.values():
        node.heard_at = at
        node.connected = False
        _reopen(state, node)


def carry_on(state: ClusterState, former: ClusterState, now: float) -> None:
    """The state was read back in the middle of a term: connections are as they were, and leases begin anew.

    What the log says of a lease may be old, because heartbeats are not written down; a node must not be lost for it.
    """
    for node in state.nodes.values():
        known = former.nodes.get(node.name)
        node.connected = known is not None and known.connected and not node.lost
        node.heard_at = now
        _reopen(state, node)


def _joined(state: ClusterState, event: NodeJoined) -> None:
    known = state.nodes.get(event.node)
    if known is None:
        state.table.put(event.node, event.capacity)
        known = state.nodes[event.node] = NodeState(event.node, state.table.rows[event.node])
    elif known.capacity != event.capacity:
        _changed(state, known, event.capacity)
    known.capacity = event.capacity
    known.incarnation, known.origin, known.address = event.incarnation, event.origin, event.address
    known.connected, known.lost, known.heard_at = True, False, event.at
    known.leftovers = set(event.leftovers)
    _reopen(state, known)


def _changed(state: ClusterState, node: NodeState, capacity: Capacity) -> None:
    """Other hardware or labels. Whatever is held there is still held, though there may be less of it by now."""
    state.table.put(node.name, capacity)
    for lane in node.lanes.values():
        state.table.retake(node.row, lane.grant)
    for id in state.promised:
        promise = state.jobs[id].promise
        for name, grant in promise.members.values() if promise else ():
            if name == node.name:
                state.table.promise(node.row, grant)


def _reopen(state: ClusterState, node: NodeState) -> None:
    """Say in the table whether the node takes work; if it now does, room may have appeared."""
    state.table.set_open(node.name, node.takes_work)
    if node.takes_work:
        state.gain += 1
