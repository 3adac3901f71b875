"""Short tasks queue in a lane of their own job, so that a node does not idle between two of them.

Only the first that found no room may: if others did, their lanes would never end and the first would never find
room. Gangs have no lanes to queue in, so behind a gang that waits nobody queues.
"""

from __future__ import annotations

from heapq import heapify, heapreplace

from phalanx.core.model.plan import Placement, Policy
from phalanx.core.model.waiting import WaitingGroup
from phalanx.core.placement.draft import Draft


def prefetch(unit: WaitingGroup, draft: Draft, policy: Policy) -> None:
    """Queue ready tasks behind running ones of the same group, the shortest lanes first."""
    depth = _depth(unit, policy)
    lanes = [
        (len(lane), lane.node, lane.id)
        for lane in (unit.lanes.values() if depth else ())
        if len(lane) <= depth // 2 and not lane.is_slow and draft.nodes.is_open(lane.node)
    ]
    if not lanes or any(gang_placement.job == unit.job.id for gang_placement in draft.gang_placements):
        return
    heapify(lanes)
    taken = draft.positions_of(unit.job.id)
    room = min(depth * len(lanes), policy.placements_max - draft.size)
    for position in unit.ready(room + len(taken)):
        if position in taken:
            continue
        size, node, lane_id = lanes[0]
        if size >= depth:
            return
        draft.queue(Placement(unit.job.id, position, node, unit.lanes[node, lane_id].grant, lane_id))
        heapreplace(lanes, (size + 1, node, lane_id))


def _depth(unit: WaitingGroup, policy: Policy) -> int:
    """How many attempts may queue in one lane: as many as end within the policy's time, if they are short."""
    run_s = unit.typical_run_s
    if run_s is None or run_s >= policy.prefetch_s or unit.job.groups[unit.number].at_once:
        return 0
    return min(policy.prefetch_max, int(policy.prefetch_s / max(run_s, 1e-4)))
