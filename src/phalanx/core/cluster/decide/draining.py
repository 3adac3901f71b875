"""Taking a node out of service: nothing more is placed there, and what runs there may be asked to leave.

A gang that would fall under its minimum without its members on the node leaves whole, wherever they are: so it starts
again as one, and nobody waits for members that cannot come back. Every task has its own grace to end in.
"""

from __future__ import annotations

from collections import Counter

from phalanx.core.cluster.decide.gangs import recalls
from phalanx.core.cluster.decision import Accepted, Decision, Refused
from phalanx.core.cluster.events import NodeDrained, TasksEvicted
from phalanx.core.cluster.inputs import Drain
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState, NodeState
from phalanx.core.model.orders import AttemptKey
from phalanx.core.model.reason import Reason, Tier


def drain(state: ClusterState, given: Drain, now: float) -> Decision:
    node = state.nodes.get(given.node)
    if node is None:
        unknown = Reason("NotFound", Tier.NEVER, f"no node {given.node}")
        return Decision([], [], Refused(unknown, "not_found"))
    drained = NodeDrained(at=now, cause="user", node=given.node, reason=given.reason)
    keys = leaving(state, node) if given.evict else ()
    if not keys:
        return Decision([drained], [], Accepted())
    cause = f"drain of {given.node}"
    text = f"phalanx: evicted, {given.node} is drained: {given.reason}"
    evicted = TasksEvicted(at=now, cause=cause, keys=keys, text=text)
    return Decision([drained, evicted, *recalls(state, keys, now, cause)], [], Accepted(len(keys), len(keys)))


def leaving(state: ClusterState, node: NodeState) -> tuple[AttemptKey, ...]:
    """Who leaves if everything on a node does."""
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
