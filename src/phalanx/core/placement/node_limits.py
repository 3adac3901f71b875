"""Tasks that want a node for themselves, where limits of queues and users count: a whole node may be too much for them.

How much such a task takes is known only with its node. So a limit is asked twice: before a place is looked for, with
the least that it could take, and with the grant that was found. What a limit does not admit is never proposed: it would
be refused each time, and the node would stand empty meanwhile.
"""

from __future__ import annotations

import numpy as np

from phalanx.core.model.queues import Queues
from phalanx.core.model.resources import Grant, Request
from phalanx.core.model.table import NodeTable
from phalanx.core.model.waiting import Block, WaitingGroup

Spot = tuple[int, Grant]


def counted(nodes: NodeTable, queues: Queues, unit: WaitingGroup) -> Request:
    """What limits count for one task, at the least."""
    request = unit.request
    return nodes.counted(request, queues.free(unit.job.queue_user)) if request.exclusive else request


def is_too_much(queues: Queues, unit: WaitingGroup, grant: Grant) -> bool:
    """Whether the limits do not admit the node that it would have for itself."""
    return unit.request.exclusive and queues.refuses(unit.job.queue_user, (grant,), ())


def which_limit(queues: Queues, unit: WaitingGroup) -> Block:
    """Which limit keeps one more of its tasks from being placed: that of its queue or that of its user there."""
    no = queues.lacks(unit.job.queue_user, [(unit.request, 1)])
    return Block.USER if no is not None and "user" in no.numbers else Block.QUOTA


def spot_within(nodes: NodeTable, queues: Queues, unit: WaitingGroup, spot: Spot) -> Spot | None:
    """This place, or another one if its node is more than the limits admit; None if every node with room is."""
    if not is_too_much(queues, unit, spot[1]):
        return spot
    rows = (
        [] if unit.request.target is not None else np.flatnonzero(nodes.columns.slots(unit.request)).tolist()
    )
    for row in rows:
        answer = nodes.ledgers[row].fit(unit.request)
        if isinstance(answer, Grant) and not is_too_much(queues, unit, answer):
            return row, answer
    return None
