"""What the next pass over the queue would do if something were different: a request, a node, who holds places.

The pass is the scheduler's own, over the whole queue: room that is kept for somebody else is not taken for free
room. What else is different has been done in the draft, on the live columns, and is put back by whoever did it.
"""

from __future__ import annotations

from msgspec import structs

from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.units import GangState, GroupState
from phalanx.core.model.job import Job
from phalanx.core.model.plan import Policy, Snapshot
from phalanx.core.model.waiting import Waiting
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.engine import PlanFailed, plan

EVERYTHING = 1_000_000  # a pass that is only looked at need not be short
TRIES = 8  # a question must not hold up the scheduler


class Trials:
    """Passes that are only looked at; so many and no more for one question."""

    def __init__(self, state: ClusterState, snapshot: Snapshot, draft: Draft, policy: Policy) -> None:
        self._state, self._snapshot, self._draft = state, snapshot, draft
        self._policy = structs.replace(policy, placements_max=EVERYTHING, prefetch_max=0)
        self._left = TRIES

    def starts_changed(
        self, job: JobState, unit: GroupState | GangState, changed: Job, ahead: int = 0
    ) -> bool:
        """Whether it would start at once if the job asked for this; of a group, the task with `ahead` before it."""
        kinds = self._snapshot.waiting.classes.values()
        if not ahead and all(kind.ranks[0] >= unit.rank for kind in kinds):
            return True  # it finds room, as the caller knows, and nobody goes first
        again = JobState(changed, job.arrival, [0] * 6, self._state.incomplete, self._state.rules.aging_s)
        queue = self._snapshot.waiting.changed(without=job.units, added=again.units)
        return self._starts(unit, queue, ahead)

    def starts_with_room(self, unit: GroupState | GangState, ahead: int, ended: JobState | None) -> bool:
        """Whether it would start at once with the room that the draft has now, if a job has ended as a whole."""
        queue = self._snapshot.waiting
        if ended is not None:
            queue = queue.changed(without=ended.units)
        return self._starts(unit, queue, ahead, more_room=True)

    def _starts(
        self, unit: GroupState | GangState, queue: Waiting, ahead: int, *, more_room: bool = False
    ) -> bool:
        self._left -= 1
        if self._left < 0:
            return False
        seen = self._snapshot.with_queue(queue)
        seen.gain += more_room
        seen.gone = frozenset(self._draft.gone)
        try:
            proposal = plan(seen, self._policy)
        except PlanFailed:
            return False
        if isinstance(unit, GangState):
            return any(each.job == unit.job.id and not each.is_promise for each in proposal.gang_placements)
        mine = (each.position for each in proposal.placements if each.job == unit.job.id)
        return sum(unit.first <= position < unit.last for position in mine) > ahead
