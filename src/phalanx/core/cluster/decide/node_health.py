"""Choices about nodes that do not work as they should: which rest, which are silent together, and which stop.

**Rests.** What a node did wrong itself (it could not make a process, write a log, enter a cgroup) sends it to rest at
once. Other failures that a runner reports count against it only together: so many in a row, and from jobs of two users,
or of three jobs where only one user has work at all; one user's broken program says nothing of a node (decision 33). A
success clears the count, and what we or somebody else ended says nothing. After the rest the node takes work again;
its next failure sends it to rest anew. If all nodes that could take work rest, none is kept away: bad nodes are better
than none. The costs of a report do not depend on how many nodes or jobs there are.

**The brake.** If most nodes fall silent at once, it is likelier that we are cut off than that all of them died. Then
none is declared lost and every attempt keeps its grant, until enough nodes are back or an operator says of a node that
it is really gone. Counted are the nodes that were there, that nobody has drained and whose runners were not stopped in
an orderly way.

**Trouble.** A node in trouble keeps its tasks and its lease, and gets no work until its runner takes that back. A
runner that stops leaves its tasks to the keeper for as long as the lease lasts, and may ask for a longer one first.
"""

from __future__ import annotations

from typing import NamedTuple

from phalanx.core.cluster import events as e
from phalanx.core.cluster.decision import Accepted, Decision, Refused
from phalanx.core.cluster.inputs import Leave
from phalanx.core.cluster.state import JOBS_MIN, USERS_MIN, ClusterState, NodeState
from phalanx.core.cluster.units import Attempt
from phalanx.core.model.orders import Exit
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.status import UNCHARGED, Why

STAMP_S = 1.0  # a rest is prolonged in steps of no less, so that a storm of failures does not fill the log
TEXT_MAX = 200  # characters of what a node did wrong
TROUBLE_MAX = 300
NAMES_SHOWN = 20


def fault_of(attempt: Attempt, exit: Exit) -> bool | None:
    """What an end says of its node: it failed there, it did well, or nothing."""
    if attempt.ending is not None or exit.why in UNCHARGED or exit.why == Why.CANCELLED:
        return True if exit.of_node and attempt.ending is None else None
    return exit.why != Why.NONE or exit.code != 0


def after_report(
    state: ClusterState, attempt: Attempt, exit: Exit, now: float, cause: str
) -> list[e.NodeRested | e.NodeRecovered]:
    """Whether its node has to rest after this end, or need not rest any longer."""
    node, rules, fault = state.nodes[attempt.node], state.rules, fault_of(attempt, exit)
    if fault is None:
        return []
    if not fault:
        rests = node.rests_until is not None
        return [e.NodeRecovered(at=now, cause=cause, node=node.name)] if rests else []
    failures, until = node.failures + 1, now + rules.breaker_pause_s
    if not rules.breaker_failures or not (exit.of_node or _is_to_blame(state, node, attempt, failures)):
        return []
    if node.rests_until is not None and until - node.rests_until < STAMP_S:
        return []
    text = exit.message[:TEXT_MAX] if exit.of_node else ""
    return [e.NodeRested(at=now, cause=cause, node=node.name, failures=failures, until=until, text=text)]


def _is_to_blame(state: ClusterState, node: NodeState, attempt: Attempt, failures: int) -> bool:
    """Whether so many failed here in a row, of so many people, that it is not one of them who did it."""
    if failures < state.rules.breaker_failures:
        return False
    users, jobs = node.failures_with(state.jobs[attempt.key[0]].job)
    return len(users) >= USERS_MIN or (len(jobs) >= JOBS_MIN and len(state.working) <= 1)


def rested(state: ClusterState, now: float) -> list[e.Event]:
    """Rests that have taken their time."""
    found: list[e.Event] = []
    for name in state.resting:
        until = state.nodes[name].rests_until
        if until is not None and until <= now:
            found.append(e.NodeRecovered(at=now, cause="rest over", node=name))
    return found


def trouble_changed(node: str, former: str, trouble: str, now: float) -> list[e.Event]:
    """What the runner says of itself, if it is another thing than before."""
    said = trouble[:TROUBLE_MAX]
    if said == former:
        return []
    return [e.NodeHealthChanged(at=now, cause="runner", node=node, trouble=said)]


def leave(state: ClusterState, given: Leave, now: float) -> Decision:
    """A runner stops in an orderly way. It gets no more work, and its lease may be longer, within bounds."""
    node = state.nodes.get(given.node)
    if node is None or not node.holds_lease(given.incarnation, given.generation):
        return Decision([], [], Refused(Reason("StaleLease", Tier.NEVER, "this lease is over"), "stale"))
    keep_s = min(max(0.0, given.keep_s), state.rules.keep_max_s)
    return Decision([e.NodeLeaving(at=now, cause="runner", node=node.name, keep_s=keep_s)], [], Accepted())


def trouble_of(node: NodeState) -> str:
    """Why a node that is there does not start tasks, in one line; nothing if it does."""
    if node.trouble:
        return f"cannot start tasks: {node.trouble}"
    if not node.leaving:
        return ""
    left = f"; what it held ({len(node.attempts)}) runs on until its lease is over" if node.attempts else ""
    return f"its runner was stopped{left}"


class Count(NamedTuple):
    """How many nodes are silent, of how many that were there."""

    silent: int
    nodes: int


def judged(
    state: ClusterState, overdue: list[NodeState], now: float
) -> tuple[list[e.Event], list[NodeState]]:
    """What the brake does now, and whose lease counts as over of those that are overdue."""
    if not overdue and state.brake is None:
        return [], []
    count = counted(state, now)
    if overdue and is_too_many(state, count):
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
