"""Short tasks queue in a lane of their own kind, so that a node does not idle between two of them.

Only the first that found no room may: if others did, their lanes would never end and the first would never find
room. Gangs have no lanes to queue in, so behind a gang that waits nobody queues. Stages of workflows are jobs of one
task each, so those right behind the first queue with it, in order, each in a lane of its pool, until one of them
cannot or a unit of another class comes first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from heapq import heapify, heapreplace

from phalanx.core.model.dispatch import DispatchNote
from phalanx.core.model.job import NodeName, QueueUser
from phalanx.core.model.lanes import LanePool
from phalanx.core.model.plan import Placement, PlanMemory, Policy, Snapshot
from phalanx.core.model.waiting import Block, Rank, Waiting, WaitingClass, WaitingGroup
from phalanx.core.placement.dispatch import lane_notes
from phalanx.core.placement.draft import Draft

_Lanes = list[tuple[int, str, int]]  # a heap: how many attempts, node, number of the lane
_Notes = Callable[[NodeName], DispatchNote | None]  # what is noted of a task that queues on a node


def prefetch(unit: WaitingGroup, snapshot: Snapshot, draft: Draft, policy: Policy) -> None:
    """Queue ready tasks behind running ones of the same group, the shortest lanes first."""
    depth = _depth(unit, policy)
    lanes = _lanes(unit, depth, draft)
    if not lanes or any(gang_placement.job == unit.job.id for gang_placement in draft.gang_placements):
        return
    taken, notes = draft.positions_of(unit.job.id), lane_notes(snapshot.dispatch, unit, draft.now)
    room = min(depth * len(lanes), policy.placements_max - draft.size)
    for position in unit.ready(room + len(taken)):
        if position in taken:
            continue
        if not _queue(unit, position, lanes, depth, draft, notes):
            return


def is_placed_whole(unit: WaitingGroup, draft: Draft) -> bool:
    """Whether the draft has placed every ready task of a unit, so that nothing of it waits any more."""
    placed = draft.positions_of(unit.job.id)
    return placed.issuperset(unit.ready(len(placed) + 1))


def prefetch_stages(
    waiting_class: WaitingClass, first: WaitingGroup, snapshot: Snapshot, memory: PlanMemory, draft: Draft,
    policy: Policy,
) -> None:  # fmt: skip
    """Queue stages behind those of their pools that run: the first without room, and whoever comes right after it."""
    until = _first_of_others(waiting_class, snapshot.waiting, memory, snapshot.gain, draft.now)
    placed = {each.job for each in draft.placements}
    known: dict[LanePool, tuple[int, _Lanes, _Notes]] = {}
    ranks = waiting_class.ranks
    for at in range(bisect_left(ranks, first.rank), len(ranks)):
        unit = waiting_class.units[ranks[at]]
        if (until is not None and ranks[at] > until) or draft.size >= policy.placements_max:
            return
        if unit.is_gang or unit.pool is None or unit.job.id in placed:
            return
        if unit.pool not in known:
            depth = _depth(unit, policy)
            notes = lane_notes(snapshot.dispatch, unit, draft.now)  # the same for all of a kind
            known[unit.pool] = depth, _lanes(unit, depth, draft), notes
        depth, lanes, notes = known[unit.pool]
        for position in unit.ready(1):
            if not lanes or not _queue(unit, position, lanes, depth, draft, notes):
                return


def _first_of_others(
    mine: WaitingClass, waiting: Waiting, memory: PlanMemory, gain: int, now: float
) -> Rank | None:
    """The first that waits in another class and may take a place that these stages would hold."""
    whose = mine.units[mine.ranks[0]].job.queue_user
    found: Rank | None = None
    for other in waiting.classes.values():
        rank = other.ranks[0]
        if other is mine or (found is not None and rank >= found):
            continue
        note = memory.notes.get(other.number)
        if note is not None and note.blocked_at == gain and note.last_entry == other.last_entry:
            is_capped = _is_capped(note.blocked_by, other.units[rank].job.queue_user, whose)
            if is_capped or note.hopeless_at == gain:
                continue
        if memory.failed.get(other.number, (0.0, ""))[0] <= now:
            found = rank
    return found


def _is_capped(block: Block | None, theirs: QueueUser, mine: QueueUser) -> bool:
    """Whether a limit keeps another class from a place that these stages hold, and would if they gave it up."""
    return (block is Block.QUOTA and theirs[0] != mine[0]) or (block is Block.USER and theirs != mine)


def _lanes(unit: WaitingGroup, depth: int, draft: Draft) -> _Lanes:
    """The lanes that take more, the shortest first. One that is half full waits, so that many come together."""
    lanes = [
        (len(lane), lane.node, lane.id)
        for lane in (unit.lanes.values() if depth else ())
        if len(lane) <= depth // 2 and not lane.is_slow and draft.nodes.is_open(lane.node)
    ]
    heapify(lanes)
    return lanes


def _queue(unit: WaitingGroup, position: int, lanes: _Lanes, depth: int, draft: Draft, notes: _Notes) -> bool:
    """Queue one task in the shortest lane; False if all are full."""
    size, node, lane_id = lanes[0]
    if size >= depth:
        return False
    grant = unit.lanes[node, lane_id].grant
    draft.queue(Placement(unit.job.id, position, node, grant, lane_id, notes(node)))
    heapreplace(lanes, (size + 1, node, lane_id))
    return True


def _depth(unit: WaitingGroup, policy: Policy) -> int:
    """How many attempts may queue in one lane: as many as end within the policy's time, if they are short."""
    run_s, group = unit.typical_run_s, unit.job.groups[unit.number]
    if run_s is None or run_s >= policy.prefetch_s or group.at_once:
        return 0
    # Each attempt has an address of its own, which rests before it is used again; or an image to get ready.
    if group.request.wants_address or group.command.image:
        return 0
    return min(policy.prefetch_max, int(policy.prefetch_s / max(run_s, 1e-4)))
