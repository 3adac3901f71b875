"""What events do to nodes: joining, falling silent, being drained, coming back and being removed."""

from __future__ import annotations

from heapq import heapify

from phalanx.core.cluster import health
from phalanx.core.cluster.apply.grants import drop_promise, queue_up, release
from phalanx.core.cluster.breaker import forgive, reopen, set_rest
from phalanx.core.cluster.events import (
    BrakeReleased,
    BrakeSet,
    Event,
    NodeCleared,
    NodeConnected,
    NodeDisconnected,
    NodeDrained,
    NodeHeard,
    NodeJoined,
    NodeLost,
    NodeRecovered,
    NodeRemoved,
    NodeRested,
    NodeResumed,
)
from phalanx.core.cluster.state import Brake, ClusterState, NodeState
from phalanx.core.model.resources import Capacity
from phalanx.core.model.status import Status


def apply(state: ClusterState, event: Event) -> None:
    """Change one node, or the brake on all of them."""
    match event:
        case BrakeSet():
            state.brake = Brake(event.at, event.silent, event.nodes)
        case BrakeReleased():
            state.brake = None
        case NodeRested():
            node = state.nodes[event.node]
            node.failures, node.rest_text = event.failures, event.text
            set_rest(state, node, event.until)
        case NodeRecovered():
            set_rest(state, state.nodes[event.node], None)
        case NodeRemoved():
            _removed(state, state.nodes[event.node])
        case NodeHeard():
            node = state.nodes[event.node]
            node.heard_at = event.at
            if not node.connected:
                node.connected = True
                reopen(state, node)
        case NodeJoined():
            _joined(state, event)
        case NodeConnected():
            node = state.nodes[event.node]
            node.connected, node.heard_at = True, event.at
            node.leaving, node.kept_s = False, 0.0
            reopen(state, node)
        case NodeDisconnected():
            state.nodes[event.node].connected = False
            reopen(state, state.nodes[event.node])
        case NodeLost():
            node = state.nodes[event.node]
            node.lost, node.connected, node.lost_at = True, False, event.at
            node.kept_s = 0.0  # that it left in order is remembered: no alarm is raised for it
            node.generation = event.generation or node.generation + 1
            node.leftovers.clear()
            reopen(state, node)
        case NodeCleared():
            state.nodes[event.node].leftovers.discard(event.key)
            reopen(state, state.nodes[event.node])
        case NodeDrained():
            state.nodes[event.node].drain_reason = event.reason
            reopen(state, state.nodes[event.node])
        case NodeResumed():
            state.nodes[event.node].drain_reason = None
            forgive(state.nodes[event.node])
            reopen(state, state.nodes[event.node])
        case _:
            if not health.apply(state, event):
                raise KeyError(type(event).__name__)


def begin_term(state: ClusterState, at: float) -> None:
    """A new term: nobody is connected yet, and every node gets a whole lease from now."""
    state.brake = None
    for node in state.nodes.values():
        node.heard_at = at
        node.connected = False
        if node.lost and node.lost_at is None:  # it was written down before that was kept
            node.lost_at = at or None
        if at:
            _count_anew(state, node, at)
        reopen(state, node)
    if at:
        _shorten_waits(state, at)


def _count_anew(state: ClusterState, node: NodeState, at: float) -> None:
    """Durations that the clock of another coordinator measured: what has not started has its whole time again."""
    for attempt in node.attempts.values():
        if attempt.started_at is None:
            attempt.since = at
    if node.rests_until is not None:
        node.rests_until = min(node.rests_until, at + state.rules.breaker_pause_s)
    if node.lost_at is not None:
        node.lost_at = min(node.lost_at, at)


def _shorten_waits(state: ClusterState, at: float) -> None:
    """No wait is longer than it could have been made just now: the clock it was made with may have been ahead."""
    longest = at + state.rules.backoff_max_s
    for id in {id for ready_at, id, _ in state.retries if ready_at > longest}:
        job = state.jobs.get(id)
        if job is not None:
            job.hold_until = min(job.hold_until, longest)
            job.delayed = {position: min(until, longest) for position, until in job.delayed.items()}
    state.retries = [(min(ready_at, longest), id, position) for ready_at, id, position in state.retries]
    heapify(state.retries)
    for id in state.forming:
        forming = state.jobs[id].forming
        if forming is not None:
            forming.formed_at = at
    for id in state.promised:
        promise = state.jobs[id].promise
        if promise is not None:
            promise.until = min(promise.until, at + promise.until - promise.made_at)


def carry_on(state: ClusterState, former: ClusterState, now: float) -> None:
    """The state was read back in the middle of a term: connections are as they were, and leases begin anew.

    What the log says of a lease may be old, because heartbeats are not written down; a node must not be lost for it.
    """
    for node in state.nodes.values():
        known = former.nodes.get(node.name)
        node.connected = known is not None and known.connected and not node.lost
        node.heard_at = now
        reopen(state, node)


def _joined(state: ClusterState, event: NodeJoined) -> None:
    known = state.nodes.get(event.node)
    if known is None:
        known = _new(state, event)
    elif known.capacity != event.capacity:
        _changed(state, known, event.capacity)
    known.capacity = event.capacity
    known.incarnation, known.origin, known.address = event.incarnation, event.origin, event.address
    known.generation = event.generation or known.generation + 1
    known.connected, known.lost, known.lost_at, known.heard_at = True, False, None, event.at
    known.leftovers = set(event.leftovers)
    known.trouble, known.leaving, known.kept_s = "", False, 0.0
    forgive(known)
    set_rest(state, known, None)


def _new(state: ClusterState, event: NodeJoined) -> NodeState:
    state.table.put(event.node, event.capacity)
    node = NodeState(event.node, state.table.rows[event.node], len(state.known_names))
    node.generation = state.generation_floor
    state.nodes[event.node] = node
    state.known_names.append(event.node)
    return node


def holds_anything(state: ClusterState, node: NodeState) -> bool:
    """Whether attempts stand on the node or places of it are set aside."""
    if node.attempts or node.lanes:
        return True
    promises = (state.jobs[id].promise for id in state.promised)
    return any(name == node.name for promise in promises if promise for name, _ in promise.members.values())


def _removed(state: ClusterState, node: NodeState) -> None:
    """Give its row back. The last row of the table moves there, so what stands on that node moves with it."""
    _clear(state, node)
    node.connected = False
    set_rest(state, node, None)
    state.generation_floor = max(state.generation_floor, node.generation)
    del state.nodes[node.name]
    moved = state.table.remove(node.name)
    if moved is not None:
        other = state.nodes[moved]
        state.tenants.move_node(other.row, node.row)
        other.row = node.row
        for attempt in other.attempts.values():
            attempt.row = node.row


def _clear(state: ClusterState, node: NodeState) -> None:
    """After a damaged record something may still seem to be held there: it had ended, or the node would be."""
    state.skipped += holds_anything(state, node)
    for attempt in list(node.attempts.values()):
        job, position = state.jobs[attempt.key[0]], attempt.key[1]
        release(state, job, attempt)
        if job.status[position] in (Status.ASSIGNED, Status.RUNNING):
            job.move(position, Status.PENDING)
            job.wait_again(position)
        queue_up(state, job)
    for id in list(state.promised):
        promise = state.jobs[id].promise
        if promise is not None and any(name == node.name for name, _ in promise.members.values()):
            drop_promise(state, state.jobs[id])
            queue_up(state, state.jobs[id])


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
