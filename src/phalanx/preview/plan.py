"""What would happen to jobs: the scheduler's own pass over the queue with them in it, and nothing carried out.

The pass runs on the live columns, as every pass does, and puts back what it tried; the jobs in question wait in a
queue of its own, and what it remembers for the next pass is thrown away. `reasons.py` says why a job is not placed, on
the columns with all jobs placed that go before it.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from phalanx.api.schema.apply import PlanReply
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.ids import JobId
from phalanx.core.model.job import Job
from phalanx.core.model.plan import GangPlacement, Plan, Policy, Snapshot
from phalanx.core.model.tenants import Tenant
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.engine import plan
from phalanx.preview.names import Names
from phalanx.preview.reasons import Doubts, why_never
from phalanx.preview.reply import plan_reply
from phalanx.preview.share import Share

EVERYTHING = 1_000_000  # a preview need not be short
_NOBODY = Names()


def preview(
    state: ClusterState,
    jobs: Sequence[Job],
    policy: Policy,
    snapshot: Snapshot,
    *,
    known: Sequence[JobId] = (),
    names: Names = _NOBODY,
) -> PlanReply:
    """What the scheduler would do with the jobs `known` by id and with these jobs, submitted now in this order."""
    new = [
        JobState(job, state.arrivals + number, [0] * 6, state.incomplete, state.rules.aging_s)
        for number, job in enumerate(jobs, start=1)
    ]
    asked = [*(Share(state.jobs[id]) for id in known), *(Share(each, why_never(state, each)) for each in new)]
    policy = structs.replace(policy, placements_max=EVERYTHING, evictions_max=EVERYTHING)
    _Rehearsal(state, asked, policy, snapshot).fill()
    return plan_reply(state, asked, names)


class _Rehearsal:
    """One pass of a preview."""

    def __init__(self, state: ClusterState, asked: list[Share], policy: Policy, snapshot: Snapshot) -> None:
        self._state, self._policy = state, policy
        self._asked = {share.job.job.id: share for share in asked}
        jobs = (share.job for share in asked if share.never is None)  # others would have been refused
        units = [unit for job in jobs for unit in job.units if unit.has_ready]
        self._snapshot = snapshot.with_queue(snapshot.waiting.changed(added=units))
        self._held = Draft(
            self._snapshot, policy.score
        )  # what is taken by now; all of it is put back at the end
        self._doubts = Doubts(state, self._snapshot, self._held, policy)
        self._parts: list[GangPlacement] = []

    def fill(self) -> None:
        """Give every job in question what the pass gives it, or the reasons why not."""
        doubts = self._doubts
        with self._held:
            shares = self._in_order(self._pass())
            for share in self._asked.values():
                doubts.note_kept(share)
            for share in shares:
                if share.job.job.id in self._asked:
                    share.doubts = doubts.about(share)
                self._carry_out(share)

    def _pass(self) -> Plan:
        """One whole pass. A gang that keeps a part of its places cuts a pass short: another one continues behind it."""
        while True:
            proposal = plan(self._snapshot, self._policy)
            self._snapshot.memory = proposal.memory
            part = proposal.gang_placements[-1] if proposal.more and proposal.gang_placements else None
            gang = self._share(part.job).job.gang if part is not None else None
            if part is None or gang is None:
                return structs.replace(proposal, gang_placements=[*self._parts, *proposal.gang_placements])
            self._parts.append(part)
            self._enlist(part)
            self._snapshot.waiting = self._snapshot.waiting.changed(without=[gang])

    def _in_order(self, proposal: Plan) -> list[Share]:
        """All jobs that get something or are in question, in queue order."""
        shares = dict(self._asked)
        for id in (
            *(each.job for each in proposal.placements),
            *(gang_placement.job for gang_placement in proposal.gang_placements),
        ):
            if id not in shares:
                shares[id] = self._share(id)
        for placement in proposal.placements:
            shares[placement.job].alone.append(placement)
        for gang_placement in proposal.gang_placements:
            shares[gang_placement.job].gang_placement = gang_placement
        return sorted(shares.values(), key=lambda share: share.job.groups[0].rank)

    def _carry_out(self, share: Share) -> None:
        """Apply it to the draft: its victims have left, and its places are taken."""
        for key in (*share.victims, *(share.gang_placement.awaited if share.gang_placement else ())):
            self._evict(self._state.tenants.get(key))
        for id in share.gang_placement.displaced if share.gang_placement else ():
            for tenant in list(self._state.tenants.of_job.get(id, {}).values()):
                self._evict(tenant if tenant.is_promise else None)
        if (
            share.gang_placement is not None and share.gang_placement not in self._parts
        ):  # those were taken when they cut the pass short
            self._enlist(share.gang_placement)
        if share.alone:
            self._doubts.note_start(share.job.job)
        for each in share.alone:
            if each.lane is None:
                self._held.place(self._state.table.rows[each.node], each, share.job.job.queue)

    def _evict(self, tenant: Tenant | None) -> None:
        if tenant is not None and tenant.key not in self._held.gone:
            self._held.evict(tenant)

    def _enlist(self, gang_placement: GangPlacement) -> None:
        job = self._share(gang_placement.job).job.job
        self._doubts.note_start(job)
        for each in gang_placement.members:
            self._held.take(self._state.table.rows[each.node], each.grant, job.queue)
        self._held.enlist(gang_placement)

    def _share(self, id: JobId) -> Share:
        return self._asked.get(id) or Share(self._state.jobs[id])
