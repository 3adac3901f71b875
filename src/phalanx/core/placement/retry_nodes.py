"""A task that failed goes to another node than the one where it just did, if one has room for it now.

A node on which programs fail would otherwise take all retries of a sweep, since it is free again first. It is preferred
and never required: where no other node has room, the task goes where it failed rather than wait.
"""

from __future__ import annotations

import numpy as np

from phalanx.core.model.plan import Snapshot
from phalanx.core.model.resources import Grant
from phalanx.core.model.score import WORST
from phalanx.core.model.waiting import WaitingGroup
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.node_limits import Spot, is_too_much, spot_within


def spot_for(snapshot: Snapshot, draft: Draft, unit: WaitingGroup, position: int, best: Spot) -> Spot | None:
    """The place for this task: the best, or another one if it failed there; None if limits admit no node with room."""
    spot = spot_within(draft.nodes, draft.queues, unit, best)
    if spot is None or unit.request.target is not None:
        return spot
    if snapshot.failed_on(unit.job.id, position) != draft.nodes.names[spot[0]]:
        return spot
    return _elsewhere(draft, unit, spot[0]) or spot


def _elsewhere(draft: Draft, unit: WaitingGroup, failed: int) -> Spot | None:
    """The best of all other nodes that have room."""
    values = draft.nodes.ranking(unit.request, draft.score).values()
    rows = np.flatnonzero(values != WORST)
    for row in rows[np.argsort(values[rows], kind="stable")].tolist():
        if row == failed:
            continue
        answer = draft.nodes.ledgers[row].fit(unit.request)
        if isinstance(answer, Grant) and not is_too_much(draft.queues, unit, answer):
            return row, answer
    return None
