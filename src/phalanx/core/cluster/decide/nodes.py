"""Choices about nodes: who is there, whose lease is over, and whether both sides agree on what runs.

Reconciliation goes both ways at every heartbeat. What the runner lists and we do not know is stopped; what we
believe and the runner does not list or does not start is `reports.py`'s. Timers belong to the shell, which tells
us with Tick.
"""

from __future__ import annotations

from collections import Counter

from phalanx.core.cluster import events as e
from phalanx.core.cluster import inputs as i
from phalanx.core.cluster.decide.endings import Endings
from phalanx.core.cluster.decide.gangs import late, overdue, ready, recalls
from phalanx.core.cluster.decide.node_health import judged, rested, trouble_changed
from phalanx.core.cluster.decide.reports import UnconfirmedStarts
from phalanx.core.cluster.decision import Accepted, Decision, Refused
from phalanx.core.cluster.effects import Effect, Send, start_order
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState, NodeState
from phalanx.core.cluster.units import Attempt
from phalanx.core.model.orders import AttemptKey, Exit, Go, Pause, Phase, Resume, Stop
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.status import Why

Held = dict[AttemptKey, Phase]


def hello(state: ClusterState, given: i.Hello, now: float) -> Decision:
    """A runner introduces itself. A known life reconnects; a new life takes over what it still holds."""
    node, held = state.nodes.get(given.node), dict(given.held)
    if node is None:
        joined: list[e.Event] = [_joined(state, given, held, now)]
        told = _stop_strangers(state, given.node, held)
        return Decision(joined + trouble_changed(given.node, "", given.trouble, now), told, Accepted())
    if node.incarnation == given.incarnation and not node.lost:
        heard: list[e.Event] = [e.NodeConnected(at=now, cause="hello", node=node.name)]
        heard += trouble_changed(node.name, node.trouble, given.trouble, now)
        again = _tell_again(state, node, held, now) + _tell_pauses(node, held)
        return Decision(heard, again + _stop_strangers(state, node.name, held), Accepted())
    if not node.lost and node.origin != given.origin:
        return _refuse_name(node, state)
    gone = Endings(state, now, "hello")
    for key, attempt in node.attempts.items():
        if key not in held:
            gone.add(attempt, _lost_exit(node, "its runner started anew without it"))
    # Attempts end before the join, while their grants still stand in the old ledger.
    again = (
        _tell_pauses(node, held)
        + _tell_to_go(state, node, held, now)
        + _stop_strangers(state, node.name, held)
    )
    joins = [_joined(state, given, held, now), *trouble_changed(node.name, "", given.trouble, now)]
    return Decision([*gone.events, *joins], again, Accepted())


def heartbeat(state: ClusterState, given: i.Heartbeat, now: float) -> Decision:
    """Renew the lease and compare both lists."""
    node = state.nodes.get(given.node)
    if node is None or not node.holds_lease(given.incarnation, given.generation):
        return _stale(node, given)
    events: list[e.Event] = [e.NodeHeard(at=now, node=node.name)]
    events += trouble_changed(node.name, node.trouble, given.trouble, now)
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
        elif phase in (Phase.QUEUED, Phase.READY) and attempt.started_at is None:
            if phase == Phase.READY:
                waiting.append(attempt)
            doubts.unstarted(attempt, phase)
    gone = doubts.gone.events
    if not gone:  # or a gang might be released in the very moment in which it loses a member
        events += ready(state, waiting, now, "heartbeat")
    effects += doubts.effects + _tell_to_go(state, node, held, now)
    effects += _tell_pauses(node, held) + _stop_strangers(state, node.name, held)
    effects += [
        Send(node.name, Stop(key, Why.LOST, 0.0)) for key in sorted(node.leftovers) if key not in held
    ]
    return Decision([*events, *gone], effects, Accepted())


def disconnect(state: ClusterState, given: i.Disconnect, now: float) -> Decision:
    """The connection ended. The tasks run on under the lease; only new work stays away."""
    node = state.nodes.get(given.node)
    if node is None or node.incarnation != given.incarnation or not node.connected:
        return Decision()
    cause = "its runner was stopped" if node.leaving else "connection closed"
    return Decision([e.NodeDisconnected(at=now, cause=cause, node=node.name)])


def tick(state: ClusterState, now: float) -> Decision:
    """Leases that are over, rests that are over, nodes that are gone for good, and ended jobs that may leave memory."""
    away = [
        each for each in state.nodes.values() if each.lost or each.is_silent(now, state.rules.lost_after_s)
    ]
    gone = [node for node in away if _is_gone(state, node, now)]
    leaving = {node.name for node in gone}
    silent = [node for node in away if not node.lost and node.name not in leaving]
    events, lost = judged(state, silent, now)
    ends = Endings(state, now, "lease over")  # one for all: members on two nodes restart their job once
    losses = [_lose(ends, node, now) for node in lost]
    events += [*ends.events, *losses]
    events += rested(state, now)
    events += [e.NodeRemoved(at=now, cause="gone for good", node=node.name) for node in gone]
    events += late(state, now) + overdue(state, now)
    surplus = len(state.ended) - state.rules.ended_jobs_max
    for job, _ in zip(state.ended, range(min(surplus, 1000)), strict=False):
        if not state.jobs[job].live:
            events.append(e.JobForgotten(at=now, cause="history", job=job))
    return Decision(events)


def drain(state: ClusterState, given: i.Drain, now: float) -> Decision:
    """Nothing more is placed on a node, and what runs there may be asked to leave."""
    node = state.nodes.get(given.node)
    if node is None:
        return Decision([], [], Refused(_no_node(given.node), "not_found"))
    drained = e.NodeDrained(at=now, cause="user", node=given.node, reason=given.reason)
    keys = _leaving(state, node) if given.evict else ()
    if not keys:
        return Decision([drained], [], Accepted())
    cause = f"drain of {given.node}"
    text = f"phalanx: evicted, {given.node} is drained: {given.reason}"
    evicted = e.TasksEvicted(at=now, cause=cause, keys=keys, text=text)
    return Decision([drained, evicted, *recalls(state, keys, now, cause)], [], Accepted(len(keys), len(keys)))


def _leaving(state: ClusterState, node: NodeState) -> tuple[AttemptKey, ...]:
    """Who leaves if everything on a node does.

    A gang that would fall under its minimum without its members on the node leaves whole, wherever they are: so it
    starts again as one, and nobody waits for members that cannot come back. Every task has its own grace to end in.
    """
    there = [key for key, attempt in node.attempts.items() if attempt.ending is None]
    keys = dict.fromkeys(there)
    for id in dict.fromkeys(key[0] for key in there):
        job = state.jobs[id]
        if job.gang is not None and _falls_apart(job, [key for key in there if key[0] == id]):
            keys.update((each.key, None) for each in job.live.values() if each.ending is None)
    return tuple(keys)


def _falls_apart(job: JobState, keys: list[AttemptKey]) -> bool:
    """Whether a gang without these members is below its minimum."""
    gone = Counter(job.live[position].group for _, position, _ in keys)
    return any(
        each.staying - gone[each.number] + job.well_in(each) < each.group.needed
        for each in job.groups
        if gone[each.number]
    )


def undrain(state: ClusterState, given: i.Undrain, now: float) -> Decision:
    """Whoever says so takes it upon himself: a rest ends, too, and what failed there is forgotten."""
    node = state.nodes.get(given.node)
    if node is None:
        return Decision([], [], Refused(_no_node(given.node), "not_found"))
    events: list[e.Event] = [e.NodeResumed(at=now, cause="user", node=given.node)]
    if node.rests_until is not None:
        events.append(e.NodeRecovered(at=now, cause="user", node=given.node))
    return Decision(events, [], Accepted())


def declare_lost(state: ClusterState, given: i.DeclareLost, now: float) -> Decision:
    """An operator knows that a silent node is gone. Before its lease is over its runner may still run tasks."""
    node = state.nodes.get(given.node)
    if node is None:
        return Decision([], [], Refused(_no_node(given.node), "not_found"))
    if node.lost:
        return Decision([], [], Accepted(0))
    if not node.is_silent(now, state.rules.lost_after_s):
        return _refuse_alive(state, node, now, "declared lost")
    cause = f"user {given.user}".strip()
    ends = Endings(state, now, cause)
    lost = _lose(ends, node, now, cause, given.reason)
    return Decision([*ends.events, lost], [], Accepted())


def remove(state: ClusterState, given: i.RemoveNode, now: float) -> Decision:
    """Forget a node that is lost, or silent for so long that it may be, and on which nothing is held."""
    node = state.nodes.get(given.node)
    if node is None:
        return Decision([], [], Refused(_no_node(given.node), "not_found"))
    if not node.lost and not node.is_silent(now, state.rules.lost_after_s):
        return _refuse_alive(state, node, now, "removed")
    if state.holds_anything(node):
        text = f"{node.name} still holds {len(node.attempts)} attempts; `phalanx node lose` says that they are gone"
        return Decision(
            [], [], Refused(Reason("NodeHolds", Tier.HELD, text, {"host": node.name}), "conflict")
        )
    return Decision(
        [e.NodeRemoved(at=now, cause=f"user {given.user}".strip(), node=node.name)], [], Accepted()
    )


def _is_gone(state: ClusterState, node: NodeState, now: float) -> bool:
    """Whether a node that is away may be forgotten: it is drained, or lost for long; and nothing is held there."""
    lost_s = now - node.lost_at if node.lost_at is not None else 0.0
    may_go = node.drain_reason is not None or lost_s > state.rules.forget_after_s
    return may_go and not state.holds_anything(node)


def _lose(
    ends: Endings, node: NodeState, now: float, cause: str = "lease over", text: str = ""
) -> e.NodeLost:
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
        capacity=given.capacity,
        leftovers=leftovers,
        address=given.address,
        generation=former + 1,
    )


def _tell_again(state: ClusterState, node: NodeState, held: Held, now: float) -> list[Effect]:
    """After a reconnection: orders that the broken connection may have swallowed."""
    again: list[Effect] = []
    for key, attempt in node.attempts.items():
        if attempt.ending is not None:
            again.append(Send(node.name, Stop(key, attempt.ending, state.jobs[key[0]].job.grace_s)))
        elif key not in held and attempt.started_at is None:
            again.extend(start_order(state, attempt))
    return again + _tell_to_go(state, node, held, now)


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
    return Decision(
        [], [], Refused(Reason("StaleLease", Tier.NEVER, text, {"generation": generation}), "stale")
    )


def _refuse_alive(state: ClusterState, node: NodeState, now: float, what: str) -> Decision:
    after_s, ago_s = state.rules.lost_after_s, max(0.0, now - node.heard_at)
    text = (
        f"{node.name} was heard {ago_s:.0f} s ago and may still run tasks: it can be {what} after {after_s:.0f} s "
        "of silence; drain it, or stop its runner"
    )
    return Decision([], [], Refused(Reason("NodeAlive", Tier.HELD, text, {"host": node.name}), "conflict"))


def _refuse_name(node: NodeState, state: ClusterState) -> Decision:
    text = (
        f"another runner already answers for {node.name!r}; choose another --name, or wait "
        f"{state.rules.lost_after_s:.0f} s until its lease is over"
    )
    return Decision([], [], Refused(Reason("NameTaken", Tier.NEVER, text), "conflict"))


def _no_node(name: str) -> Reason:
    return Reason("NotFound", Tier.NEVER, f"no node {name!r}")
