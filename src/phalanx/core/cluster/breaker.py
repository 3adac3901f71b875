"""Nodes that rest: where tasks failed one after another, no new work goes for a while (a circuit breaker).

A failure that a runner reports counts against its node, a success clears the count, and what we or somebody else ended
says nothing. After the rest the node takes work again; its next failure sends it to rest anew. If everyone who could
take work rests, nobody is kept away: bad nodes are better than none. That a rest has taken its time is noticed with a
Tick. The costs of a report do not depend on how many nodes there are.
"""

from __future__ import annotations

from phalanx.core.cluster.attempt import Attempt
from phalanx.core.cluster.events import Event, NodeRecovered, NodeRested
from phalanx.core.cluster.state import ClusterState, NodeState
from phalanx.core.model.orders import Exit
from phalanx.core.model.status import UNCHARGED, Why

STAMP_S = 1.0  # a rest is prolonged in steps of no less, so that a storm of failures does not fill the log


def fault_of(attempt: Attempt, exit: Exit) -> bool | None:
    """What an end says of its node: it failed there, it did well, or nothing."""
    if attempt.ending is not None or exit.why in UNCHARGED or exit.why == Why.CANCELLED:
        return None
    return exit.why != Why.NONE or exit.code != 0


def after_report(
    state: ClusterState, attempt: Attempt, exit: Exit, now: float, cause: str
) -> list[NodeRested | NodeRecovered]:
    """Whether its node has to rest after this end, or need not rest any longer."""
    node, rules, fault = state.nodes[attempt.node], state.rules, fault_of(attempt, exit)
    if fault is None:
        return []
    if not fault:
        rests = node.rests_until is not None
        return [NodeRecovered(at=now, cause=cause, node=node.name)] if rests else []
    failures, until = node.failures + 1, now + rules.breaker_pause_s
    if not 0 < rules.breaker_failures <= failures:
        return []
    if node.rests_until is not None and until - node.rests_until < STAMP_S:
        return []
    return [NodeRested(at=now, cause=cause, node=node.name, failures=failures, until=until)]


def rested(state: ClusterState, now: float) -> list[Event]:
    """Rests that have taken their time."""
    found: list[Event] = []
    for name in state.resting:
        until = state.nodes[name].rests_until
        if until is not None and until <= now:
            found.append(NodeRecovered(at=now, cause="rest over", node=name))
    return found


def count_fault(node: NodeState, fault: bool | None) -> None:
    """An attempt has ended there."""
    if fault is not None:
        node.failures = node.failures + 1 if fault else 0


def set_rest(state: ClusterState, node: NodeState, until: float | None) -> None:
    """The node rests from now on, or no longer."""
    node.rests_until = until
    if until is None:
        state.resting.pop(node.name, None)
    else:
        state.resting[node.name] = None
    reopen(state, node)


def reopen(state: ClusterState, node: NodeState) -> None:
    """Say in the table whether a node takes work; if it now does, room may have appeared."""
    could, rests = node.could_work, node.rests_until is not None
    former, node.counted = node.counted, (could, could and rests)
    state.could_work += node.counted[0] - former[0]
    state.could_rest += node.counted[1] - former[1]
    nobody_else = state.could_rest == state.could_work
    touched = [node]
    if nobody_else != state.nobody_else:
        state.nobody_else = nobody_else
        touched += [state.nodes[name] for name in state.resting if name != node.name]
    for each in touched:
        each.is_kept_away = each.rests_until is not None and not nobody_else
        state.table.set_open(each.name, each.takes_work)
        state.gain += each.takes_work
