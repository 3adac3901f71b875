"""Room for urgent work that is to be tried again soon, so that less urgent work does not start there to be evicted.

A gang that has evicted others and crashes gives its places back while it pauses before its next try. Without this its
victims start there and are evicted again at each try. So a plan sets aside what such a unit will take, as a promise
does, after everything of its own priority and above has had its turn, and before what could be evicted for it. The
places are worked out anew in each plan, from what is free and from what its own attempts are about to give back: a
unit that fits elsewhere leaves its former places to others. One that would have to evict keeps nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.core.model.plan import GangPlacement, Placement, PlanMemory, Policy, RetryRoom, Snapshot
from phalanx.core.model.tenants import NEVER, Tenant
from phalanx.core.model.waiting import Ask, Rank, Retry, WaitingGroup
from phalanx.core.placement.dispatch import is_dispatched
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.gang.grants import try_gang
from phalanx.core.placement.node_limits import counted, is_too_much
from phalanx.core.placement.spread import spots


class KeptRetries:
    """The units that are to be tried again soon, and the room that one plan has kept for them."""

    def __init__(self, snapshot: Snapshot, draft: Draft, policy: Policy) -> None:
        self._draft, self._policy = draft, policy
        found = snapshot.retries(policy.retry_room_s) if policy.evicts and policy.retry_room_s > 0 else []
        self._left = [each for each in reversed(found) if each.unit.job.may_evict]  # the next one last
        self._rooms: list[RetryRoom] = []
        self._error = ""

    def keep_before(self, rank: Rank, until: Rank | None) -> Rank | None:
        """Before a unit of this rank is looked at, keep room for the retries ahead of it.

        Returns the rank up to which other units may go on: `until`, or that of the next retry.
        """
        while self._left and self._left[-1].rank < rank:
            self._keep(self._left.pop())
        if not self._left:
            return until
        return self._left[-1].rank if until is None else min(until, self._left[-1].rank)

    def end(self, memory: PlanMemory, is_cut: bool) -> bool:
        """Note what was kept. If less is kept than by the plan before, all that found no room has to look again."""
        while self._left and not is_cut:
            self._keep(self._left.pop())
        before = {(room.job, place) for room in memory.retry_room for place in room.places}
        memory.retry_room, memory.retry_error = tuple(self._rooms), self._error
        if before <= {(room.job, place) for room in self._rooms for place in room.places}:
            return False
        memory.refusals += 1
        return True

    def _keep(self, retry: Retry) -> None:
        mark = self._draft.mark()
        try:
            self._keep_places(retry)
        except (
            Exception
        ) as error:  # a defect of ours: it has its own turn soon, and others are placed meanwhile
            self._draft.rollback(mark)
            self._error = f"{retry.unit.job.id}: {type(error).__name__}: {error}"

    def _keep_places(self, retry: Retry) -> None:
        places, job = self._places(retry), retry.unit.job
        for each in places:
            self._draft.keep(_tenant(self._draft, retry, each))
        if places:
            kept = tuple((each.node, each.grant) for each in places)
            self._rooms.append(RetryRoom(job.id, job.queue_user, job.priority, retry.at, retry.until, kept))

    def _places(self, retry: Retry) -> Sequence[Placement]:
        """Where it would go if its own attempts that are leaving had left; the draft is left as it was."""
        draft, unit = self._draft, retry.unit
        mark = draft.mark()
        for tenant in list(draft.tenants.of_job.get(unit.job.id, {}).values()):
            if tenant.is_leaving and tenant.key not in draft.gone:
                draft.evict(tenant)
        if unit.is_gang:
            found = try_gang(draft, Ask(unit))
            places = found.members if isinstance(found, GangPlacement) else ()
        else:
            places = () if is_dispatched(unit) else self._one_by_one(unit)
        draft.rollback(mark)
        return places

    def _one_by_one(self, unit: WaitingGroup) -> tuple[Placement, ...]:
        draft, whose = self._draft, unit.job.queue_user
        nodes = spots(draft.nodes, draft.tenants, unit, self._policy.score, draft.placements)
        quota = draft.queues.room(whose, counted(draft.nodes, draft.queues, unit))
        places: list[Placement] = []
        for position in unit.ready(self._policy.openings_max):
            spot = nodes.best() if quota is None or len(places) < quota else None
            if spot is None or is_too_much(draft.queues, unit, spot[1]):
                break
            places.append(Placement(unit.job.id, position, draft.nodes.names[spot[0]], spot[1]))
            draft.take(spot[0], spot[1], whose)
            nodes.taken(spot[0])
        return tuple(places)


def _tenant(draft: Draft, retry: Retry, place: Placement) -> Tenant:
    """A place that is kept, as plans see it: none of those that come after may evict it."""
    job, row = retry.unit.job, draft.nodes.rows[place.node]
    ends_at = NEVER if job.time_limit_s is None else retry.at + job.time_limit_s
    key = (job.id, place.position)
    group = 0 if retry.unit.is_gang else retry.unit.number
    return Tenant(
        key, job.id, job.queue, group, row, place.grant, job.priority, NEVER, ends_at, draft.now,
        is_promise=True, user=job.user,
    )  # fmt: skip
