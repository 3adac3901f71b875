"""What events do to nodes: joining, falling silent, being drained or disabled, excluded, coming back, being removed."""

from __future__ import annotations

from heapq import heapify

from phalanx.core.cluster import events as e
from phalanx.core.cluster import overlay_events as o
from phalanx.core.cluster.apply.grants import drop_promise, end_attempt, queue_up
from phalanx.core.cluster.apply.overlay import assigned, tell_addresses, with_block
from phalanx.core.cluster.brake import Brake
from phalanx.core.cluster.exclusion_events import NodeExcluded, NodeRecovered
from phalanx.core.cluster.health_events import NodeChecked
from phalanx.core.cluster.nodes import NodeState
from phalanx.core.cluster.state import BEGIN, ClusterState
from phalanx.core.model.health import WELL, in_service
from phalanx.core.model.job import NodeName
from phalanx.core.model.orders import Status
from phalanx.core.model.resources import Capacity


def brake_set(state: ClusterState, event: e.BrakeSet) -> None:
    state.brake = Brake(event.at, event.silent, event.nodes)


def brake_released(state: ClusterState, _: e.BrakeReleased) -> None:
    state.brake = None


def excluded(state: ClusterState, event: NodeExcluded) -> None:
    node = state.node(event.node)
    node.failures, node.exclusion_text = event.failures, event.text
    _set_exclusion(state, node, event.until)


def recovered(state: ClusterState, event: NodeRecovered) -> None:
    _set_exclusion(state, state.node(event.node), None)


def heard(state: ClusterState, event: e.NodeHeard) -> None:
    node = state.node(event.node)
    node.heard_at = event.at
    if not node.connected:
        node.connected = True
        reopen(state, node)


def connected(state: ClusterState, event: e.NodeConnected) -> None:
    node = state.node(event.node)
    node.connected, node.heard_at = True, event.at
    node.leaving, node.kept_s = False, 0.0
    reopen(state, node)


def disconnected(state: ClusterState, event: e.NodeDisconnected) -> None:
    node = state.node(event.node)
    node.connected = False
    reopen(state, node)


def lost(state: ClusterState, event: e.NodeLost) -> None:
    node = state.node(event.node)
    node.lost, node.connected, node.lost_at = True, False, event.at
    node.kept_s = 0.0  # that it left in order is remembered: no alarm is raised for it
    node.generation = event.generation or node.generation + 1
    node.leftovers.clear()
    reopen(state, node)


def cleared(state: ClusterState, event: e.NodeCleared) -> None:
    node = state.node(event.node)
    node.leftovers.discard(event.key)
    reopen(state, node)


def quarantined(state: ClusterState, event: e.NodeQuarantined) -> None:
    node = state.node(event.node)
    node.leftovers.add(event.key)
    reopen(state, node)


def health_changed(state: ClusterState, event: e.NodeHealthChanged) -> None:
    node = state.node(event.node)
    node.trouble = event.trouble
    reopen(state, node)


def checked(state: ClusterState, event: NodeChecked) -> None:
    """Devices that failed are no longer given out; whoever holds one holds it until it ends."""
    node = state.node(event.node)
    former, node.health = node.health, event.health
    if in_service(node.capacity, former) != in_service(node.capacity, event.health):
        _changed(state, node, node.capacity)
    failed = event.health.failed.keys()
    for lane in node.lanes.values() if failed else ():
        lane.is_slow |= not failed.isdisjoint(lane.grant.devices)
    reopen(state, node)


def leaving(state: ClusterState, event: e.NodeLeaving) -> None:
    node = state.node(event.node)
    node.leaving, node.kept_s, node.heard_at = True, event.keep_s, event.at
    reopen(state, node)


def drained(state: ClusterState, event: e.NodeDrained) -> None:
    node = state.node(event.node)
    node.drain_reason = event.reason
    reopen(state, node)


def resumed(state: ClusterState, event: e.NodeResumed) -> None:
    node = state.node(event.node)
    node.drain_reason = None
    _forgive(node)
    reopen(state, node)


def disabled(state: ClusterState, event: e.NodeDisabled) -> None:
    node = state.node(event.node)
    node.disabled_reason, node.disabled_automatically = event.reason, event.automatic
    node.toggled_at = event.at
    reopen(state, node)


def enabled(state: ClusterState, event: e.NodeEnabled) -> None:
    """It is idle from now on, not since it was disabled: work may take a while to come."""
    node = state.node(event.node)
    node.disabled_reason, node.disabled_automatically = None, False
    node.toggled_at = event.at
    node.idle_since = None if node.lanes else event.at
    reopen(state, node)


def needed(state: ClusterState, event: e.NodeNeeded) -> None:
    state.needed_at = event.at


def term_opened(state: ClusterState, event: e.TermOpened) -> None:
    state.epoch = event.epoch
    begin_term(state, event.at)


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
    if node.excluded_until is not None:
        node.excluded_until = min(node.excluded_until, at + state.rules.breaker_pause_s)
    if node.lost_at is not None:
        node.lost_at = min(node.lost_at, at)
    if node.toggled_at is not None:
        node.toggled_at = min(node.toggled_at, at)
    if not node.lanes:  # in older images nothing is said of it
        node.idle_since = at if node.idle_since is None else min(node.idle_since, at)


def _shorten_waits(state: ClusterState, at: float) -> None:
    """No wait is longer than it could have been made just now: the clock it was made with may have been ahead."""
    longest = at + state.rules.backoff_max_s
    late = {id for ready_at, id, position in state.retries if ready_at > longest and position != BEGIN}
    for id in late:
        job = state.jobs.get(id)
        if job is not None:
            job.hold_until = min(job.hold_until, longest)
            job.delayed = {position: min(until, longest) for position, until in job.delayed.items()}
    state.retries = [  # when a job begins is no wait: it is an instant that its user has named
        (ready_at if position == BEGIN else min(ready_at, longest), id, position)
        for ready_at, id, position in state.retries
    ]
    heapify(state.retries)
    for id in state.forming:
        forming = state.jobs[id].forming
        if forming is not None:
            forming.formed_at = at
    for _, promise in state.promises():
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


def joined(state: ClusterState, event: e.NodeJoined) -> None:
    known, capacity = state.nodes.get(event.node), with_block(state, event.node, event.capacity)
    if known is None:
        known = _new(state, event.node, capacity)
    elif known.capacity != capacity or known.health != WELL:
        known.health = WELL  # its runner says it again if it is still so
        _changed(state, known, capacity)
    known.capacity = capacity
    state.overlay.version += bool(capacity.block)
    known.incarnation, known.origin, known.address = event.incarnation, event.origin, event.address
    known.generation = event.generation or known.generation + 1
    known.connected, known.lost, known.lost_at, known.heard_at = True, False, None, event.at
    known.leftovers = set(event.leftovers)
    known.idle_since = None if known.lanes else event.at
    known.trouble, known.leaving, known.kept_s = "", False, 0.0
    _forgive(known)
    _set_exclusion(state, known, None)


def _new(state: ClusterState, name: NodeName, capacity: Capacity) -> NodeState:
    state.table.put(name, capacity)
    node = NodeState(name, state.table.rows[name], len(state.known_names))
    node.generation = state.generation_floor
    state.nodes[name] = node
    state.known_names.append(name)
    _tell_addresses(state, node)
    return node


def block_assigned(state: ClusterState, event: o.BlockAssigned) -> None:
    assigned(state, event)
    for node in state.nodes.values():
        capacity = with_block(state, node.name, node.capacity)
        if node.capacity != capacity:
            _changed(state, node, capacity)
            node.capacity = capacity
            reopen(state, node)


def _tell_addresses(state: ClusterState, node: NodeState) -> None:
    tell_addresses(state.overlay, state.table.ledgers[node.row])
    state.table.columns.refresh(node.row)


def removed(state: ClusterState, event: e.NodeRemoved) -> None:
    """Give its row back. The last row of the table moves there, so what stands on that node moves with it."""
    node = state.node(event.node)
    _clear(state, node, event.at)
    node.connected = False
    _set_exclusion(state, node, None)
    state.generation_floor = max(state.generation_floor, node.generation)
    state.bindings.forget_node(node.name)
    del state.nodes[node.name]
    moved = state.table.remove(node.name)
    if moved is not None:
        other = state.nodes[moved]
        state.tenants.move_node(other.row, node.row)
        other.row = node.row
        for attempt in other.attempts.values():
            attempt.row = node.row


def _clear(state: ClusterState, node: NodeState, at: float) -> None:
    """After a damaged record something may still seem to be held there: it had ended, or the node would be."""
    state.skipped += state.holds_anything(node)
    for attempt in list(node.attempts.values()):
        job, position = state.jobs[attempt.key[0]], attempt.key[1]
        end_attempt(state, job, attempt, at)
        if job.status[position] in (Status.ASSIGNED, Status.RUNNING):
            job.move(position, Status.PENDING)
            job.wait_again(position)
        queue_up(state, job)
    for job, promise in state.promises():
        if promise.is_on(node.name):
            drop_promise(state, job)
            queue_up(state, job)


def _changed(state: ClusterState, node: NodeState, capacity: Capacity) -> None:
    """Other hardware or labels. Whatever is held there is still held, though there may be less of it by now."""
    state.table.put(node.name, in_service(capacity, node.health))
    for lane in node.lanes.values():
        state.table.retake(node.row, lane.grant)
    for _, promise in state.promises():
        for name, grant in promise.members.values():
            if name == node.name:
                state.table.promise(node.row, grant)
    _tell_addresses(state, node)


def count_fault(state: ClusterState, node: NodeState, event: e.AttemptEnded) -> None:
    """An attempt has ended there."""
    if event.fault:
        node.failures += 1
        node.failed_users = node.failed_users_with(state.jobs[event.key[0]].job)
    elif event.fault is not None:
        _forgive(node)


def _forgive(node: NodeState) -> None:
    """What failed there before says nothing any more."""
    node.failures, node.failed_users = 0, ()


def _set_exclusion(state: ClusterState, node: NodeState, until: float | None) -> None:
    """The node is excluded from now on, or no longer."""
    node.excluded_until = until
    if until is None:
        state.excluded.pop(node.name, None)
    else:
        state.excluded[node.name] = None
    reopen(state, node)


def reopen(state: ClusterState, node: NodeState) -> None:
    """Say in the table whether a node takes work; if it now does, room may have appeared."""
    could, is_excluded = node.could_work, node.excluded_until is not None
    former, node.counted = node.counted, (could, could and is_excluded)
    state.could_work += node.counted[0] - former[0]
    state.could_but_excluded += node.counted[1] - former[1]
    nobody_else = state.could_but_excluded == state.could_work
    touched = [node]
    if nobody_else != state.nobody_else:
        state.nobody_else = nobody_else
        touched += [state.nodes[name] for name in state.excluded if name != node.name]
    for each in touched:
        each.is_kept_away = each.excluded_until is not None and not nobody_else
        state.table.set_open(each.name, each.takes_work)
        # Whoever waits for this very node may have room there again, or may go elsewhere.
        state.gain += each.takes_work or each.is_out or bool(each.bound_to)
