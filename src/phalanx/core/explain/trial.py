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
from phalanx.core.model.queues import Queues, Quota
from phalanx.core.model.waiting import Waiting
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.engine import PlanFailed, plan

EVERYTHING = 1_000_000  # a pass that is only looked at need not be short,
QUESTION_MAX = 10_000  # unless it is a coordinator's, which others wait for; so many placements
TRIES = 8  # a question must not hold up the scheduler
SLACK_S = 30  # so much later a fix still works if nothing else has happened: it has to be read and typed


class Trials:
    """Passes that are only looked at; so many and no more for one question."""

    def __init__(self, state: ClusterState, snapshot: Snapshot, draft: Draft, policy: Policy) -> None:
        self._state, self._snapshot, self._draft = state, snapshot, draft
        self._policy = structs.replace(policy, prefetch_max=0)
        self._left = TRIES

    def starts_changed(
        self, job: JobState, unit: GroupState | GangState, changed: Job, ahead: int = 0
    ) -> bool:
        """Whether it would start at once if the job asked for this; of a group, the task with `ahead` before it.

        One that waits already would be cancelled and submitted again, behind all others of its priority.
        """
        state, arrival = self._state, job.arrival
        if job.job.id in state.jobs:
            arrival, changed = state.arrivals + 1, structs.replace(changed, submitted_at=self._snapshot.now)
        again = JobState(changed, arrival, [0] * 6, state.incomplete, state.rules.aging_s)
        again.awaits, again.begins_at = job.awaits, job.begins_at
        others = self._snapshot.waiting.changed(without=job.units)
        first = again.groups[0].rank
        if unit.rank[2] == ahead == 0 and all(kind.ranks[0] >= first for kind in others.classes.values()):
            return True  # it finds room, as the caller knows, and nobody goes first
        return self._starts(unit, others.changed(added=again.units), ahead, limit_s=changed.time_limit_s)

    def starts_with_room(self, unit: GroupState | GangState, ahead: int, ended: JobState | None) -> bool:
        """Whether it would start at once with the room that the draft has now, if a job has ended as a whole."""
        queue = self._snapshot.waiting
        if ended is not None:
            queue = queue.changed(without=ended.units)
        return self._starts(unit, queue, ahead, limit_s=unit.job.time_limit_s, more_room=True)

    def starts_with_quota(self, unit: GroupState | GangState, ahead: int, quota: Quota) -> bool:
        """Whether it would start at once if its queue had this quota."""
        queues = self._snapshot.queues.with_quotas({unit.job.queue: quota})
        waiting, limit_s = self._snapshot.waiting, unit.job.time_limit_s
        if quota.tells_users_apart and unit.job.queue not in waiting.by_user:
            waiting = waiting.divided(waiting.by_user | {unit.job.queue})
        return self._starts(unit, waiting, ahead, limit_s=limit_s, more_room=True, queues=queues)

    def _starts(
        self,
        unit: GroupState | GangState,
        queue: Waiting,
        ahead: int,
        *,
        limit_s: float | None = None,
        more_room: bool = False,
        queues: Queues | None = None,
    ) -> bool:
        """Whether a pass starts it; with a time limit, which lets it pass the head, also a pass a little later."""
        self._left -= 1
        if self._left < 0:
            return False
        seen = self._snapshot.with_queue(queue)
        seen.queues = queues or seen.queues
        seen.gain += more_room
        seen.gone = frozenset(self._draft.gone)
        if not self._is_placed(unit, seen, ahead):
            return False
        seen.now += SLACK_S
        return limit_s is None or self._is_placed(unit, seen, ahead)

    def _is_placed(self, unit: GroupState | GangState, seen: Snapshot, ahead: int) -> bool:
        try:
            proposal = plan(seen, self._policy)
        except PlanFailed:
            return False
        if isinstance(unit, GangState):
            return any(each.job == unit.job.id and not each.is_promise for each in proposal.gang_placements)
        mine = (each.position for each in proposal.placements if each.job == unit.job.id)
        return sum(unit.first <= position < unit.last for position in mine) > ahead
