"""What the next pass over the queue would do if a job that waits asked for something else.

The pass is the scheduler's own, over a queue in which the changed job stands where the other one stands:
room that is kept for somebody before it is not taken for free room.
"""

from __future__ import annotations

from msgspec import structs

from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.job import Job
from phalanx.core.model.plan import Policy, Snapshot
from phalanx.core.placement.engine import plan

EVERYTHING = 1_000_000  # a pass that is only looked at need not be short


TRIES = 8  # a question must not hold up the scheduler


class Trials:
    """Tries of one job that waits, changed in one way or another."""

    def __init__(self, state: ClusterState, job: JobState, policy: Policy, snapshot: Snapshot) -> None:
        self._state, self._job, self._policy, self._snapshot = state, job, policy, snapshot
        ranks = [unit.rank for unit in job.units]
        kinds = state.waiting.classes.values()
        self._is_first = all(kind.ranks[0] >= min(ranks) for kind in kinds)
        self._left = TRIES

    def start(self, changed: Job) -> bool:
        """Whether it would start at once. For the first in the queue, who finds room, nothing else is in the way."""
        if self._is_first:
            return True
        self._left -= 1
        return self._left >= 0 and would_start(self._state, self._job, changed, self._policy, self._snapshot)


def would_start(
    state: ClusterState, former: JobState, changed: Job, policy: Policy, snapshot: Snapshot
) -> bool:
    """Whether something of the changed job would be placed at once, without anybody leaving for it."""
    again = JobState(changed, former.arrival, [0] * 6, state.incomplete, state.rules.aging_s)
    snapshot = snapshot.with_queue(snapshot.waiting.changed(without=former.units, added=again.units))
    proposal = plan(snapshot, structs.replace(policy, placements_max=EVERYTHING, prefetch_max=0))
    if again.gang is None:
        return any(each.job == changed.id and each.lane is None for each in proposal.placements)
    return any(each.job == changed.id and not each.is_promise for each in proposal.gang_placements)
