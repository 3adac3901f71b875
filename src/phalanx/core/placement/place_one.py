"""Where one task would go right now, for work that is placed at once or not at all."""

from __future__ import annotations

from phalanx.core.model.plan import Placement, Policy, Snapshot
from phalanx.core.model.waiting import WaitingGroup
from phalanx.core.placement.dispatch import Choice, Dispatcher, is_dispatched
from phalanx.core.placement.node_limits import counted, is_too_much, spot_within
from phalanx.core.placement.spread import spots


def place_one(snapshot: Snapshot, unit: WaitingGroup, policy: Policy) -> Placement | None:
    """Where this one task would go right now, whatever else waits."""
    nodes, queues = snapshot.nodes, snapshot.queues
    if queues.room(unit.job.queue_user, counted(nodes, queues, unit)) == 0:
        return None
    position = next(unit.ready(1), None)
    if position is None:
        return None
    if is_dispatched(unit):
        choice = Dispatcher(snapshot.nodes, snapshot.dispatch, snapshot.now).choose(unit, position)
        if not isinstance(choice, Choice) or is_too_much(queues, unit, choice.grant):
            return None
        name = snapshot.nodes.names[choice.row]
        return Placement(unit.job.id, position, name, choice.grant, note=choice.note)
    spot = spots(snapshot.nodes, snapshot.tenants, unit, policy.score).best()
    if spot is None or (spot := spot_within(nodes, queues, unit, spot)) is None:
        return None
    row, grant = spot
    return Placement(unit.job.id, position, snapshot.nodes.names[row], grant)
