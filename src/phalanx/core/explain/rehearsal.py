"""What would happen to jobs: the scheduler's own pass over the queue with them in it, and nothing carried out.

The pass runs on the live columns, as every pass does, and puts back what it tried; the jobs that are asked about wait
in a queue of its own, and what it remembers for the next pass is thrown away. Why something is not placed is explained
on the columns as they stand with everybody placed who goes before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import structs

from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.units import GangState, GroupState
from phalanx.core.explain.change import ADMIN, Asker
from phalanx.core.explain.finding import Explainer, Finding
from phalanx.core.explain.trial import EVERYTHING
from phalanx.core.model import reason
from phalanx.core.model.job import JobId
from phalanx.core.model.orders import Status
from phalanx.core.model.plan import GangPlacement, Placement, Plan, Policy, Snapshot
from phalanx.core.model.reason import Reason
from phalanx.core.model.tenants import Tenant
from phalanx.core.model.waiting import Rank
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.engine import PlanFailed, plan

FAILED_FOR_S = 10.0  # how long those wait who made a plan fail; so the coordinator has it


class Share:
    """What one job gets out of a pass, and what keeps it from getting more; the dominant finding comes first.

    `never` says why it would be refused at once. If `position` is given, one task is asked about.
    """

    __slots__ = ("alone", "findings", "gang_placement", "job", "never", "position")

    def __init__(self, job: JobState, never: Reason | None = None, position: int | None = None) -> None:
        self.job, self.never, self.position = job, never, position
        self.alone: list[Placement] = []  # tasks placed one by one
        self.gang_placement: GangPlacement | None = None  # members placed together
        self.findings: list[Finding] = []

    @property
    def placements(self) -> list[Placement]:
        return [*(self.gang_placement.members if self.gang_placement else ()), *self.alone]

    @property
    def victims(self) -> tuple[tuple[str, int], ...]:
        return self.gang_placement.victims if self.gang_placement else ()

    @property
    def waits_for_victims(self) -> bool:
        """Whether its members start only when others have left."""
        return self.gang_placement is not None and self.gang_placement.is_promise


def rehearse(
    state: ClusterState,
    asked: Sequence[Share],
    policy: Policy,
    seen: Snapshot,
    asker: Asker | None = ADMIN,
    most: int = EVERYTHING,
) -> None:
    """Give everybody who is asked about what the next pass gives them, and the findings why not more.

    The pass ends after about `most` placements; who would have come then was not looked at. Without an asker a finding
    has its first reason and no fix.
    """
    policy = structs.replace(policy, placements_max=EVERYTHING, openings_max=most, evictions_max=EVERYTHING)
    _Rehearsal(state, asked, policy, seen, asker).fill()


class _Rehearsal:
    """One pass that is only looked at."""

    def __init__(
        self, state: ClusterState, asked: Sequence[Share], policy: Policy, seen: Snapshot, asker: Asker | None
    ) -> None:
        self._state = state
        self._policy = policy
        self._asked = {share.job.job.id: share for share in asked}
        jobs = (share.job for share in asked if share.never is None)  # another would have been refused
        units = [unit for job in jobs for unit in job.units if unit.has_ready]
        self._snapshot = seen.with_queue(seen.waiting.changed(added=units))
        self._taken = Draft(self._snapshot, policy.score)  # all of it is put back at the end
        self._explainer = Explainer(state, self._snapshot, self._taken, self._policy, asker)
        self._parts: list[GangPlacement] = []
        self._cut_at: Rank | None = None  # whoever stands behind this was not looked at

    def fill(self) -> None:
        with self._taken:
            shares = self._in_order(self._pass())
            for share in self._asked.values():
                self._explainer.note_reserved(share.job)
            for share in shares:
                self._carry_out(share)
                if share.job.job.id in self._asked:
                    share.findings = self._ordered(share)

    def _ordered(self, share: Share) -> list[Finding]:
        """The findings, those first that keep something from starting. A job of which nothing starts waits, also for
        what comes by itself."""
        found = list(self._findings(share))
        if found and not share.placements and not any(each.waits for each in found):
            found[0].waits = True
        return sorted(found, key=lambda each: not each.waits)

    def _pass(self) -> Plan:
        """One whole pass. A gang that keeps a part of its places cuts a pass short: then another goes on behind it."""
        seen = self._snapshot
        while True:
            try:
                proposal = plan(seen, self._policy)
            except PlanFailed as error:
                seen.memory = seen.memory.copied(seen.waiting)
                seen.memory.failed[error.waiting_class.number] = seen.now + FAILED_FOR_S, str(error)
                continue
            seen.memory = proposal.memory
            placed = proposal.opened + sum(len(each.members) for each in self._parts)
            if proposal.more and placed >= self._policy.openings_max:
                self._cut_at = self._last_rank(proposal)
                return structs.replace(proposal, gang_placements=[*self._parts, *proposal.gang_placements])
            part = proposal.gang_placements[-1] if proposal.more and proposal.gang_placements else None
            gang = self._share(part.job).job.gang if part is not None else None
            if part is None or gang is None:
                return structs.replace(proposal, gang_placements=[*self._parts, *proposal.gang_placements])
            self._parts.append(part)
            self._take(part)
            seen.waiting = seen.waiting.changed(without=[gang])

    def _last_rank(self, proposal: Plan) -> Rank:
        """Where the pass stopped."""
        placed: list[Placement | GangPlacement] = [*proposal.placements[-1:], *proposal.gang_placements[-1:]]
        return max(self._share(each.job).job.groups[0].rank for each in placed)

    def _in_order(self, proposal: Plan) -> list[Share]:
        """Everybody who gets something or was asked about, as they stand in the queue."""
        shares = dict(self._asked)
        for placement in proposal.placements:
            shares.setdefault(placement.job, self._share(placement.job)).alone.append(placement)
        for together in proposal.gang_placements:
            shares.setdefault(together.job, self._share(together.job)).gang_placement = together
        return sorted(shares.values(), key=lambda share: share.job.groups[0].rank)

    def _carry_out(self, share: Share) -> None:
        """As if it had happened: those who have to leave have left, and the places are taken."""
        together = share.gang_placement
        for key in (*share.victims, *(together.awaited if together else ())):
            self._evict(self._state.tenants.get(key))
        for id in together.displaced if together else ():
            for tenant in list(self._state.tenants.of_job.get(id, {}).values()):
                self._evict(tenant if tenant.is_promise else None)
        if together is not None and together not in self._parts:  # those were taken when they cut the pass
            self._take(together)
        if share.alone:
            self._explainer.note_start(share.job, share.alone)
        for each in share.alone:
            if each.lane is None:
                self._taken.place(self._state.table.rows[each.node], each, share.job.job.queue_user)

    def _evict(self, tenant: Tenant | None) -> None:
        if tenant is not None and tenant.key not in self._taken.gone:
            self._taken.evict(tenant)

    def _take(self, gang_placement: GangPlacement) -> None:
        job = self._share(gang_placement.job).job
        self._explainer.note_start(job, gang_placement.members)
        for each in gang_placement.members:
            self._taken.take(self._state.table.rows[each.node], each.grant, job.job.queue_user)
        self._taken.enlist(gang_placement)

    def _share(self, id: JobId) -> Share:
        return self._asked.get(id) or Share(self._state.jobs[id])

    def _findings(self, share: Share) -> Iterator[Finding]:
        """Every finding why something of a job, or the one task that is asked about, does not start now."""
        job = share.job
        if share.never is not None:
            yield self._explainer.never(job, share.never)
        elif share.position is not None:
            yield self._of_task(share, share.position)
        elif job.gang is not None:
            yield from self._of_gang(share, job.gang)
        elif job.closed_gates() and (waiting := job.counts[Status.PENDING]):
            yield self._one(job, job.status.index(Status.PENDING), waiting, waiting)
        else:
            for group in job.groups:
                yield from self._of_group(share, group)

    def _of_task(self, share: Share, position: int) -> Finding:
        """Of one task, that it is placed now as well."""
        if any(each.position == position for each in share.placements):
            return Finding([reason.evaluating()], position, 1)
        if share.job.gang is not None:
            return next(
                self._of_gang(share, share.job.gang, position), Finding([reason.evaluating()], position)
            )
        return self._one(share.job, position, 1, 1)

    def _of_gang(self, share: Share, gang: GangState, position: int | None = None) -> Iterator[Finding]:
        job, wanted = share.job, gang.wanted()
        pending = [each for group in job.groups for each in _pending(job, group)]
        first = min(pending, key=lambda each: (each in job.delayed, each), default=-1)
        if position is not None:
            first = position
        placed = Counter(job.group_of(each.position).number for each in share.placements)
        left = sum(each.most for each in wanted) - len(share.placements)
        if share.placements and all(placed[number] >= each.need for number, each in enumerate(wanted)):
            if left > 0:
                yield Finding([reason.more_may_join(len(share.placements), left)], first, left, waits=False)
        elif first >= 0:
            waiting = job.counts[Status.PENDING] if job.promise is None else len(job.promise.members)
            yield self._one(job, first, left, waiting)

    def _of_group(self, share: Share, group: GroupState) -> Iterator[Finding]:
        job = share.job
        placed = {each.position for each in share.placements if group.first <= each.position < group.last}
        left = _ready(job, group) - len(placed)
        waiting = job.status.count(Status.PENDING, group.first, group.last) - len(placed)
        if left > 0:
            ready = group.ready(group.group.tasks)
            yield self._one(job, next(each for each in ready if each not in placed), left, waiting)
        elif waiting > 0:
            first = next(each for each in _pending(job, group) if each not in placed)
            if (found := self._explainer.gated(job, first, waiting)) is not None:
                yield found
            elif group.group.at_once:  # the gate is open until those that are placed here hold their places
                yield Finding([reason.at_once_limit(group.group.at_once)], first, waiting, waits=False)

    def _one(self, job: JobState, position: int, left: int, waiting: int) -> Finding:
        """Why one task does not start, which speaks for all that are `left`, or for all that wait behind a gate."""
        found = self._explainer.failed(job, position, left) or self._explainer.gated(job, position, waiting)
        if found is None and self._cut_at is not None and job.groups[0].rank >= self._cut_at:
            no = reason.not_looked_at(self._policy.openings_max)
            return Finding([no], position, left, waits=not self._share(job.job.id).placements)
        return found or self._explainer.without_room(job, position, left)


def _ready(job: JobState, group: GroupState) -> int:
    """How many tasks of a group may be placed now; of a million they are not gone through one by one."""
    if group.group.at_once or job.by_task or not group.has_ready:
        return sum(1 for _ in group.ready(group.group.tasks))
    late = sum(group.first <= position < group.last for position in job.delayed)
    return job.status.count(Status.PENDING, group.first, group.last) - late


def _pending(job: JobState, group: GroupState) -> Iterator[int]:
    """Positions of the tasks that wait, in order."""
    at = job.status.find(Status.PENDING, group.first, group.last)
    while at >= 0:
        yield at
        at = job.status.find(Status.PENDING, at + 1, group.last)
