"""Who leaves a node on request: everything there, or what holds one of its devices; gangs as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from phalanx.core.cluster import events as e
from phalanx.core.cluster.decide.gangs import recalls
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.nodes import NodeState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.orders import AttemptKey


def evictions(
    state: ClusterState, keys: tuple[AttemptKey, ...], now: float, cause: str, text: str
) -> list[e.Event]:
    """The events by which these are asked to leave, each with its own grace to end in."""
    if not keys:
        return []
    evicted = e.TasksEvicted(at=now, cause=cause, keys=keys, text=text)
    return [evicted, *recalls(state, keys, now, cause)]


def leaving(
    state: ClusterState, node: NodeState, devices: Collection[int] | None = None
) -> tuple[AttemptKey, ...]:
    """Who leaves if everything on a node does, or everything that holds one of these devices.

    A gang that would fall under its minimum without its members on the node leaves whole, wherever they are: so it
    starts again as one, and nobody waits for members that cannot come back.
    """
    lanes = (
        lane
        for lane in node.lanes.values()
        if devices is None or not set(devices).isdisjoint(lane.grant.devices)
    )
    there = [key for lane in lanes for key in lane.attempts if node.attempts[key].ending is None]
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
