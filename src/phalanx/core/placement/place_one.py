"""Where one task would go right now, for work that is placed at once or not at all."""

from __future__ import annotations

from phalanx.core.model.plan import Placement, Policy, Snapshot
from phalanx.core.model.waiting import WaitingGroup
from phalanx.core.placement.dispatch import Choice, Dispatcher, is_dispatched
from phalanx.core.placement.spread import spots


def place_one(snapshot: Snapshot, unit: WaitingGroup, policy: Policy) -> Placement | None:
    """Where this one task would go right now, whatever else waits."""
    if snapshot.queues.room(unit.job.queue_user, snapshot.nodes.counted(unit.request)) == 0:
        return None
    position = next(unit.ready(1), None)
    if position is None:
        return None
    if is_dispatched(unit):
        choice = Dispatcher(snapshot.nodes, snapshot.dispatch, snapshot.now).choose(unit, position)
        if not isinstance(choice, Choice):
            return None
        name = snapshot.nodes.names[choice.row]
        return Placement(unit.job.id, position, name, choice.grant, note=choice.note)
    spot = spots(snapshot.nodes, snapshot.tenants, unit, policy.score).best()
    if spot is None:
        return None
    row, grant = spot
    return Placement(unit.job.id, position, snapshot.nodes.names[row], grant)
