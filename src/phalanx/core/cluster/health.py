"""What runners say of themselves: that something keeps them from starting tasks, and that they stop in an orderly way.

A node in trouble keeps its tasks and its lease, and gets no work until its runner takes that back. A runner that stops
leaves its tasks to the keeper for as long as the lease lasts, and may ask for a longer one first.
"""

from __future__ import annotations

from phalanx.core.cluster.breaker import reopen
from phalanx.core.cluster.decide.reports import holds_lease
from phalanx.core.cluster.decision import Accepted, Decision, Refused
from phalanx.core.cluster.events import Event, NodeHealthChanged, NodeLeaving, NodeQuarantined
from phalanx.core.cluster.inputs import Leave
from phalanx.core.cluster.state import ClusterState, NodeState
from phalanx.core.model.reason import Reason, Tier

TROUBLE_MAX = 300  # characters


def changed(node: str, former: str, trouble: str, now: float) -> list[Event]:
    """What the runner says of itself, if it is another thing than before."""
    said = trouble[:TROUBLE_MAX]
    if said == former:
        return []
    return [NodeHealthChanged(at=now, cause="runner", node=node, trouble=said)]


def leave(state: ClusterState, given: Leave, now: float) -> Decision:
    """A runner stops in an orderly way. It gets no more work, and its lease may be longer, within bounds."""
    node = state.nodes.get(given.node)
    if node is None or not holds_lease(node, given.incarnation, given.generation):
        return Decision([], [], Refused(Reason("StaleLease", Tier.NEVER, "this lease is over"), "stale"))
    keep_s = min(max(0.0, given.keep_s), state.rules.keep_max_s)
    return Decision([NodeLeaving(at=now, cause="runner", node=node.name, keep_s=keep_s)], [], Accepted())


def apply(state: ClusterState, event: Event) -> bool:
    """Change the node; False if it is none of these events."""
    match event:
        case NodeHealthChanged():
            node = state.nodes[event.node]
            node.trouble = event.trouble
        case NodeLeaving():
            node = state.nodes[event.node]
            node.leaving, node.kept_s, node.heard_at = True, event.keep_s, event.at
        case NodeQuarantined():
            node = state.nodes[event.node]
            node.leftovers.add(event.key)
        case _:
            return False
    reopen(state, node)
    return True


def trouble_of(node: NodeState) -> str:
    """Why a node that is there does not start tasks, in one line; nothing if it does."""
    if node.trouble:
        return f"cannot start tasks: {node.trouble}"
    if not node.leaving:
        return ""
    left = f"; what it held ({len(node.attempts)}) runs on until its lease is over" if node.attempts else ""
    return f"its runner was stopped{left}"
