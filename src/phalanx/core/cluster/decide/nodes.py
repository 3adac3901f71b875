"""Choices about nodes: who is there, whose lease is over, and whether both sides agree on what runs.

Reconciliation goes both ways at every heartbeat. What the runner lists and we do not know is stopped; what we
believe and the runner does not list or does not start is `reports.py`'s. Timers belong to the shell, which tells
us with Tick. What operators say of nodes is decided in `declared.py`.

**The brake.** If most nodes fall silent at once, it is likelier that we are cut off than that all of them died. Then
none is declared lost and every attempt keeps its grant, until enough nodes are back or an operator says of a node that
it is really gone. Counted are the nodes that were there, that are neither drained nor disabled (those may be switched
off on purpose) and whose runners were not stopped in an orderly way.

**Trouble.** A node in trouble keeps its tasks and its lease, and gets no work until its runner takes that back. A
runner that stops leaves its tasks to the keeper for as long as the lease lasts, and may ask for a longer one first.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import structs

from phalanx.core.cluster import events as e
from phalanx.core.cluster import inputs as i
from phalanx.core.cluster.decide.approvals import unapproved
from phalanx.core.cluster.decide.deadlines import overrun
from phalanx.core.cluster.decide.endings import Endings
from phalanx.core.cluster.decide.gangs import late, overdue, ready
from phalanx.core.cluster.decide.health import checked, describe_devices, evicted
from phalanx.core.cluster.decide.history import forget
from phalanx.core.cluster.decide.overlay import block_changed, expired
from phalanx.core.cluster.decide.reports import UnconfirmedStarts
from phalanx.core.cluster.decide.scaling import no_longer_automatic
from phalanx.core.cluster.decision import (
    Accepted,
    Decision,
    Effect,
    Send,
    refuse,
    refuse_because,
    start_order,
)
from phalanx.core.cluster.exclusion_events import NodeRecovered
from phalanx.core.cluster.image_events import AttemptPrepared, AttemptPreparing
from phalanx.core.cluster.nodes import NodeState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.units import Attempt
from phalanx.core.model.health import WELL
from phalanx.core.model.orders import AttemptKey, Exit, Go, Pause, Phase, Resume, Stop, Why
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.resources import Capacity

Held = dict[AttemptKey, Phase]
TROUBLE_MAX = 300  # characters of what a runner says of itself
NAMES_SHOWN = 20
DISABLED_KEPT = 30  # so many times as long as others an elastic node that is disabled and away is remembered


def hello(state: ClusterState, given: i.Hello, now: float) -> Decision:
    """A runner introduces itself. A known life reconnects; a new life takes over what it still holds."""
    node, held = state.nodes.get(given.node), dict(given.held)
    blocks = block_changed(state, given, now)
    if node is None:
        joined: list[e.Event] = [*blocks, _joined(state, given, held, now)]
        told = _stop_strangers(state, given.node, held)
        return Decision(joined + _said_of_itself(given, now), told, Accepted())
    if node.incarnation == given.incarnation and not node.lost:
        heard = [*blocks, *_heard_again(state, node, given, held, now)]
        told = _tell_again(state, node, held) + _remind(state, node, held, now)
        return Decision(heard, told, Accepted())
    if not node.lost and node.origin != given.origin:
        return _refuse_name(node, state)
    gone = Endings(state, now, "hello")
    for key, attempt in node.attempts.items():
        if key not in held:
            gone.add(attempt, _lost_exit(node, "its runner started anew without it"))
    # Attempts end before the join, while their grants still stand in the old ledger.
    again = _remind(state, node, held, now)
    joins = [_joined(state, given, held, now), *_said_of_itself(given, now)]
    return Decision([*gone.events, *blocks, *joins], again, Accepted())


def _heard_again(
    state: ClusterState, node: NodeState, given: i.Hello, held: Held, now: float
) -> list[e.Event]:
    """It is back; a container runtime may have come or gone meanwhile, and then it joins with what it has now."""
    if node.capacity.containers != given.capacity.containers:
        return [_joined(state, given, held, now), *_said_of_itself(given, now)]
    connected = e.NodeConnected(at=now, cause="hello", node=node.name)
    trouble = _trouble_changed(node.name, node.trouble, given.trouble, now)
    return [connected, *trouble, *checked(node.name, node.health, given.health, now)]


def heartbeat(state: ClusterState, given: i.Heartbeat, now: float) -> Decision:
    """Renew the lease and compare both lists."""
    node = state.nodes.get(given.node)
    if node is None or not node.holds_lease(given.incarnation, given.generation):
        return _stale(node, given)
    events: list[e.Event] = [e.NodeHeard(at=now, node=node.name)]
    events += _trouble_changed(node.name, node.trouble, given.trouble, now)
    events += checked(node.name, node.health, given.health, now)
    effects: list[Effect] = []
    held = dict(given.held)
    doubts = UnconfirmedStarts(state, node, given, now)
    waiting: list[Attempt] = []  # at the barrier
    for key, attempt in node.attempts.items():
        phase = held.get(key)
        if attempt.ending is not None:
            grace = state.jobs[key[0]].job.grace_s
            effects.append(Send(node.name, Stop(key, attempt.ending, grace)))
        elif phase is None:
            doubts.unlisted(attempt)
        elif phase == Phase.RUNNING and attempt.started_at is None:
            events.append(e.AttemptStarted(at=now, cause="heartbeat", key=key, started_at=now))
        elif phase == Phase.PREPARING and attempt.started_at is None and not attempt.preparing:
            events.append(AttemptPreparing(at=now, cause="heartbeat", key=key))
        elif phase in (Phase.QUEUED, Phase.READY) and attempt.started_at is None:
            if phase == Phase.READY:
                waiting.append(attempt)
            if attempt.preparing:
                events.append(AttemptPrepared(at=now, cause="heartbeat", key=key))
            else:
                doubts.unstarted(attempt, phase)
    gone = doubts.gone.events
    leaves = evicted(state, node, given.health, now) if not gone else []
    if not gone and not leaves:  # or a gang might be released in the very moment in which it loses a member
        events += ready(state, waiting, now, "heartbeat")
    effects += doubts.effects + _remind(state, node, held, now)
    effects += [
        Send(node.name, Stop(key, Why.LOST, 0.0)) for key in sorted(node.leftovers) if key not in held
    ]
    return Decision([*events, *gone, *leaves], effects, Accepted())


def disconnect(state: ClusterState, given: i.Disconnect, now: float) -> Decision:
    """The connection ended. The tasks run on under the lease; only new work stays away."""
    node = state.nodes.get(given.node)
    if node is None or node.incarnation != given.incarnation or not node.connected:
        return Decision()
    cause = "its runner was stopped" if node.leaving else "connection closed"
    return Decision([e.NodeDisconnected(at=now, cause=cause, node=node.name)])


def tick(state: ClusterState, _: i.Tick, now: float) -> Decision:
    """Leases and exclusions that are over, nodes that are gone for good, workflows that have reached a limit, and
    ended jobs that may leave memory.
    """
    away = [
        each for each in state.nodes.values() if each.lost or each.is_silent(now, state.rules.lost_after_s)
    ]
    gone = [node for node in away if _is_gone(state, node, now)]
    leaving = {node.name for node in gone}
    silent = [node for node in away if not node.lost and node.name not in leaving]
    events, lost = _judged(state, silent, now)
    ends = Endings(state, now, "lease over")  # one for all: members on two nodes restart their job once
    losses = [lose(ends, node, now) for node in lost]
    events += [*ends.events, *losses]
    events += _readmitted(state, now)
    events += [e.NodeRemoved(at=now, cause="gone for good", node=node.name) for node in gone]
    events += late(state, now) + overdue(state, now) + expired(state, now)
    if not ends.events and not gone:  # or it might be about a job that ends, or a node that goes, by these
        events += overrun(state, now) + unapproved(state, now) + no_longer_automatic(state, now)
    return Decision([*events, *forget(state, now)])


def _is_gone(state: ClusterState, node: NodeState, now: float) -> bool:
    """Whether a node that is away may be forgotten: it is drained, or lost for long; and nothing is held there."""
    lost_s = now - node.lost_at if node.lost_at is not None else 0.0
    is_off = node.disabled_reason is not None  # it may be switched off and wait to be needed
    forget_s = state.rules.forget_after_s * (DISABLED_KEPT if is_off else 1)
    may_go = node.drain_reason is not None or lost_s > forget_s
    return may_go and not state.holds_anything(node)


def lose(ends: Endings, node: NodeState, now: float, cause: str = "lease over", text: str = "") -> e.NodeLost:
    """A node's lease is over: what ran there has ended."""
    silent = f"Node {node.name} went offline (heartbeat timeout)"
    for attempt in node.attempts.values():
        message = f"Node {node.name} was declared lost: {text}" if text else silent
        ends.add(attempt, Exit(Why.LOST, -1, message=message))
    return e.NodeLost(at=now, cause=cause, node=node.name, generation=node.generation + 1, text=text)


def _joined(state: ClusterState, given: i.Hello, held: Held, now: float) -> e.NodeJoined:
    leftovers = tuple(key for key in held if not _is_ours(state, given.node, key))
    node = state.nodes.get(given.node)
    former = state.generation_floor if node is None else node.generation
    return e.NodeJoined(
        at=now,
        cause="hello",
        node=given.node,
        incarnation=given.incarnation,
        origin=given.origin,
        capacity=_with_a_core(given.capacity),
        leftovers=leftovers,
        address=given.address,
        generation=former + 1,
    )


def _with_a_core(capacity: Capacity) -> Capacity:
    """A runner that says nothing of cores has one, so a job that asks for nothing may be given its node."""
    return capacity if capacity.cores or capacity.numa else structs.replace(capacity, cores=1)


def _remind(state: ClusterState, node: NodeState, held: Held, now: float) -> list[Effect]:
    """What a runner is told whenever it lists what it holds: who goes, who is paused, and what is not ours."""
    told = _tell_to_go(state, node, held, now) + _tell_pauses(node, held)
    return told + _stop_strangers(state, node.name, held)


def _tell_again(state: ClusterState, node: NodeState, held: Held) -> list[Effect]:
    """After a reconnection: orders that the broken connection may have swallowed."""
    again: list[Effect] = []
    for key, attempt in node.attempts.items():
        if attempt.ending is not None:
            again.append(Send(node.name, Stop(key, attempt.ending, state.jobs[key[0]].job.grace_s)))
        elif key not in held and attempt.started_at is None:
            again.extend(start_order(state, attempt))
    return again


def _tell_to_go(state: ClusterState, node: NodeState, held: Held, now: float) -> list[Effect]:
    """Members that were released while nobody could tell their runner.

    It is not told for ever: one that is given up must not be able to go (see `reports.py`).
    """
    return [
        Send(node.name, Go(key))
        for key, attempt in node.attempts.items()
        if attempt.released
        and attempt.ending is None
        and held.get(key) == Phase.READY
        and now - attempt.since <= state.rules.lost_after_s
        and state.jobs[key[0]].groups[attempt.group].may_begin
    ]


def _tell_pauses(node: NodeState, held: Held) -> list[Effect]:
    """Who is paused, and who no longer is: a resume that got lost would leave a task frozen for good."""
    return [
        Send(node.name, Pause(key) if attempt.paused else Resume(key))
        for key, attempt in node.attempts.items()
        if attempt.paused is not None and held.get(key) == Phase.RUNNING
    ]


def _stop_strangers(state: ClusterState, node: str, held: Held) -> list[Effect]:
    """What runs there but is over here is stopped. Ends are not: their report is on its way."""
    return [
        Send(node, Stop(key, Why.CANCELLED, 2.0))
        for key, phase in held.items()
        if phase != Phase.ENDED and not _is_ours(state, node, key)
    ]


def _is_ours(state: ClusterState, node: str, key: AttemptKey) -> bool:
    attempt = state.attempt(key)
    return attempt is not None and attempt.node == node


def _lost_exit(node: NodeState, what: str) -> Exit:
    return Exit(Why.LOST, -1, message=f"lost on {node.name}: {what}")


def _stale(node: NodeState | None, given: i.Heartbeat) -> Decision:
    """Whoever is told so has to say hello again; the generation that is in force tells it from a repeated answer."""
    generation = 0 if node is None else node.generation
    text = f"this lease is over (generation {given.generation}, now {generation}): say hello again"
    return refuse(Reason("StaleLease", Tier.NEVER, text, {"generation": generation}), "stale")


def _refuse_name(node: NodeState, state: ClusterState) -> Decision:
    text = (
        f"another runner already answers for {node.name!r}; choose another --name, or wait "
        f"{state.rules.lost_after_s:.0f} s until its lease is over"
    )
    return refuse_because("NameTaken", text)


def _readmitted(state: ClusterState, now: float) -> list[e.Event]:
    """Exclusions whose time has passed."""
    found: list[e.Event] = []
    for name in state.excluded:
        until = state.nodes[name].excluded_until
        if until is not None and until <= now:
            found.append(NodeRecovered(at=now, cause="exclusion over", node=name))
    return found


def _trouble_changed(node: str, former: str, trouble: str, now: float) -> list[e.Event]:
    """What the runner says of itself, if it is another thing than before."""
    said = trouble[:TROUBLE_MAX]
    if said == former:
        return []
    return [e.NodeHealthChanged(at=now, cause="runner", node=node, trouble=said)]


def _said_of_itself(given: i.Hello, now: float) -> list[e.Event]:
    """After a join: what the runner says is wrong with its node, if anything."""
    trouble = _trouble_changed(given.node, "", given.trouble, now)
    return [*trouble, *checked(given.node, WELL, given.health, now)]


def leave(state: ClusterState, given: i.Leave, now: float) -> Decision:
    """A runner stops in an orderly way. It gets no more work, and its lease may be longer, within bounds."""
    node = state.nodes.get(given.node)
    if node is None or not node.holds_lease(given.incarnation, given.generation):
        return refuse_because("StaleLease", "this lease is over", "stale")
    keep_s = min(max(0.0, given.keep_s), state.rules.keep_max_s)
    return Decision([e.NodeLeaving(at=now, cause="runner", node=node.name, keep_s=keep_s)], [], Accepted())


def trouble_of(node: NodeState) -> str:
    """Why a node that is there does not start tasks, in one line; nothing if it does."""
    if node.trouble:
        return f"cannot start tasks: {node.trouble}"
    if node.health != WELL and not node.leaving:
        return f"health: {node.health.reason or describe_devices(node.health)}"
    if not node.leaving:
        return ""
    left = f"; what it held ({len(node.attempts)}) runs on until its lease is over" if node.attempts else ""
    return f"its runner was stopped{left}"


class Count(NamedTuple):
    """How many nodes are silent, of how many that were there."""

    silent: int
    nodes: int


def _judged(
    state: ClusterState, overdue: list[NodeState], now: float
) -> tuple[list[e.Event], list[NodeState]]:
    """What the brake does now, and whose lease counts as over of those that are overdue."""
    if not overdue and state.brake is None:
        return [], []
    count = _counted(state, now)
    if overdue and _is_too_many(state, count):
        events: list[e.Event] = []
        if state.brake is None:
            names = tuple(sorted(node.name for node in overdue)[:NAMES_SHOWN])
            events.append(
                e.BrakeSet(at=now, cause="silence", silent=count.silent, nodes=count.nodes, names=names)
            )
        # Nothing new goes where nobody listens; the next heartbeat puts that right.
        hanging = [node.name for node in overdue if node.connected]
        return [*events, *(e.NodeDisconnected(at=now, cause="silence", node=name) for name in hanging)], []
    if state.brake is None:
        return [], overdue
    released = e.BrakeReleased(at=now, cause="heartbeats", silent=count.silent, nodes=count.nodes)
    return [released], overdue


def _counted(state: ClusterState, now: float) -> Count:
    """Nodes that are silent or were lost within one lease, and all that were there in that time.

    The heartbeats of nodes that fell silent together end within one interval, so whoever has been quiet for nearly as
    long as the first is counted with it.
    """
    rules = state.rules
    quiet_s = max(1.5 * rules.heartbeat_s, rules.lost_after_s - 1.5 * rules.heartbeat_s)
    silent = nodes = 0
    for node in state.nodes.values():
        if node.drain_reason is not None or node.disabled_reason is not None or node.leaving:
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


def _is_too_many(state: ClusterState, count: Count) -> bool:
    """Whether so many are silent that their silence is not believed."""
    rules = state.rules
    return count.nodes >= rules.brake_nodes_min and count.silent > rules.brake_share * count.nodes
