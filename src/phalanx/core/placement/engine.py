"""The decision: who goes where. Snapshot in, plan out; nothing is changed.

Jobs are taken in order of priority, then arrival. Jobs that ask for the same stand in one class: when the
first of them finds no room, the class is passed over until room appears, so a pass costs as much as it
places. Short tasks may queue in a lane of their own job, so that a node does not idle between them.
"""

from __future__ import annotations

from bisect import bisect_left
from heapq import heapify, heappop, heappush, heapreplace

from phalanx.core.model.plan import Placement, Plan, Policy, Snapshot
from phalanx.core.model.waiting import Rank, WaitingClass, WaitingJob
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.nodes import Spots


def plan(snapshot: Snapshot, policy: Policy) -> Plan:
    """Propose placements for those who wait, first come first served within a priority."""
    draft = Draft(snapshot)
    kinds = snapshot.waiting.classes.values()
    full = [kind.ranks[0] for kind in kinds if kind.blocked_at == snapshot.gain]
    heads = [(kind.ranks[0], n, kind) for n, kind in enumerate(kinds) if kind.blocked_at != snapshot.gain]
    heapify(heads)
    while heads and draft.size < policy.placements_max:
        rank, number, kind = heappop(heads)
        stuck = _place_class(kind, rank, heads[0][0] if heads else None, draft, policy)
        if stuck is None:
            continue
        rank, may_go_on = stuck
        if may_go_on:
            heappush(heads, (rank, number, kind))
        else:
            kind.blocked_at = snapshot.gain
            full.append(rank)
    if full:
        _prefetch(snapshot, min(full), draft, policy)
    return draft.plan(more=draft.size >= policy.placements_max)


def place_one(snapshot: Snapshot, job: WaitingJob) -> Placement | None:
    """Where this one task would go right now, whoever else waits."""
    draft = Draft(snapshot)
    placed = _place_job(job, Spots(snapshot.nodes, job.job.request), draft, 1)
    return draft.plan().placements[0] if placed else None


def _place_class(
    kind: WaitingClass, rank: Rank, until: Rank | None, draft: Draft, policy: Policy
) -> tuple[Rank, bool] | None:
    """Place jobs of one class until another class's turn comes (rank, True) or room runs out (rank, False)."""
    spots = Spots(draft.nodes, kind.request)
    for at in range(bisect_left(kind.ranks, rank), len(kind.ranks)):
        rank = kind.ranks[at]
        if until is not None and rank > until:
            return rank, True
        if not _place_job(kind.jobs[rank], spots, draft, policy.placements_max - draft.size):
            return rank, False
        if draft.size >= policy.placements_max:
            return None
    return None


def _place_job(job: WaitingJob, spots: Spots, draft: Draft, most: int) -> bool:
    """Place as many ready tasks as there is room for; False if one was left without a spot."""
    for position in job.ready(most):
        spot = spots.best()
        if spot is None:
            return False
        row, grant = spot
        draft.take(row, grant, Placement(job.job.id, position, draft.nodes.names[row], grant))
        spots.taken(row)
    return True


def _depth(job: WaitingJob, policy: Policy) -> int:
    """How many attempts may queue in one lane: as many as end within the policy's time, if they are short."""
    run_s = job.typical_run_s
    if run_s is None or run_s >= policy.prefetch_s or (job.job.array and job.job.array.at_once):
        return 0
    return min(policy.prefetch_max, int(policy.prefetch_s / max(run_s, 1e-4)))


def _prefetch(snapshot: Snapshot, first: Rank, draft: Draft, policy: Policy) -> None:
    """Queue short tasks of the first in order that found no room behind running ones of its own job.

    Only the first may: if others did, their lanes would never end and the first would never find room.
    """
    job = next(kind.jobs[first] for kind in snapshot.waiting.classes.values() if first in kind.jobs)
    depth = _depth(job, policy)
    lanes = [
        (len(lane), lane.node, lane.id)
        for lane in job.lanes.values()
        if len(lane) <= depth // 2 and not lane.is_slow and draft.nodes.is_open(lane.node)
    ]
    if not depth or not lanes:
        return
    heapify(lanes)
    taken = draft.positions_of(job.job.id)
    room = min(depth * len(lanes), policy.placements_max - draft.size)
    for position in job.ready(room + len(taken)):
        if position in taken:
            continue
        size, node, lane_id = lanes[0]
        if size >= depth:
            return
        draft.queue(Placement(job.job.id, position, node, job.lanes[node, lane_id].grant, lane_id))
        heapreplace(lanes, (size + 1, node, lane_id))
