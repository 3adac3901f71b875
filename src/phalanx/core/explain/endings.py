"""Who holds what another waits for, and whose end would make room: a task that stands for itself, or a whole job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.units import GangState
from phalanx.core.explain.case import Case
from phalanx.core.explain.change import Change
from phalanx.core.model.job import JobId
from phalanx.core.model.orders import Status
from phalanx.core.model.resources import Grant
from phalanx.core.model.tenants import Tenant

TRIES = 32  # jobs as a whole
HOLDERS_TRIED = 2000  # whose end is asked about on one node alone


def holders(state: ClusterState, host: str, devices: Sequence[int]) -> list[str]:
    """The tasks that hold these devices of a node."""
    lanes = [
        each for each in state.nodes[host].lanes.values() if not {*devices}.isdisjoint(each.grant.devices)
    ]
    keys = [next(iter(lane.attempts)) for lane in lanes if lane.attempts]
    return [state.jobs[id].job.task_name(position) for id, position, _ in keys]


def end_of_another(case: Case) -> Change | None:
    """Whose end alone makes room: the fewer places it holds and the less urgent it is, the sooner named."""
    draft = case.draft
    for tenants in _holders(case):
        mark = draft.mark()
        for tenant in tenants:
            draft.evict(tenant)
        try:
            helps = _may_fit(case, tenants) and case.has_room(_ended(case, tenants))
        finally:
            draft.rollback(mark)
        if helps:
            return _ending(case, tenants)
    return None


def _holders(case: Case) -> Iterator[list[Tenant]]:
    """Places that are left together: a task that stands for itself, or all of a job."""
    draft, jobs = case.draft, case.state.jobs
    of_job = {
        id: [each for each in places.values() if each.key not in draft.gone and not each.is_promise]
        for id, places in draft.tenants.of_job.items()
        if not _lets_others_go_first(case, id)
    }
    if not isinstance(case.unit, GangState):
        alone = [each for id, places in of_job.items() if jobs[id].gang is None for each in places]
        alive = [each for each in alone if _holds_alone(case, each)]
        yield from (
            [each] for each in sorted(alive, key=lambda each: (each.priority, each.job))[:HOLDERS_TRIED]
        )
    whole = [places for id, places in of_job.items() if places and id != case.job.job.id]
    whole = [places for places in whole if len(places) > 1 or isinstance(case.unit, GangState)]
    yield from sorted(whole, key=lambda each: (len(each), each[0].priority, each[0].job))[:TRIES]


def _lets_others_go_first(case: Case, id: JobId) -> bool:
    """Whether others that go first wait for this job, and could start when it ends."""
    return any(unit.rank < case.unit.rank for job in case.followers(id) for unit in job.units)


def _holds_alone(case: Case, tenant: Tenant) -> bool:
    """Whether the end of one task leaves its place: nobody queues in its lane, and no gate of its job opens."""
    node, lane = tenant.key
    job = case.state.jobs[tenant.job]
    is_followed = any(each.group.at_once or each.group.after for each in job.groups)
    if is_followed and job.counts[Status.PENDING]:
        return False
    return len(case.state.nodes[node].lanes[int(lane)]) == 1


def _may_fit(case: Case, tenants: Sequence[Tenant]) -> bool:
    """A cheap no for a task: none of the nodes that were left has room for it."""
    if isinstance(case.unit, GangState):
        return True
    nodes, request = case.draft.nodes, case.unit.request
    rows = {each.node_row for each in tenants}
    return any(nodes.open[row] and isinstance(nodes.ledgers[row].fit(request), Grant) for row in rows)


def _ended(case: Case, tenants: Sequence[Tenant]) -> JobState | None:
    """The job that ends as a whole with these; None if one task of it does, and others may wait."""
    job = case.state.jobs[tenants[0].job]
    return None if len(tenants) == 1 and job.gang is None else job


def _ending(case: Case, tenants: Sequence[Tenant]) -> Change:
    """How it is told, with a command for whoever may give it."""
    first = tenants[0]
    job, node = case.state.jobs[first.job], case.state.table.names[first.node_row]
    what, told = job.job.id, f"job {job.job.id}"
    if _ended(case, tenants) is None:
        lane = case.state.nodes[node].lanes[int(first.key[1])]
        what = job.job.task_id(next(iter(lane.attempts))[1])
        told = f"{'task' if job.job.tasks > 1 else 'job'} {what}, which runs on {node},"
    # Whoever waits is not worth the end of what is more urgent, nor of another task of its own job.
    is_worth_more = job.job.priority > case.job.job.priority or job is case.job
    may_say = case.asker.may_cancel(job.job) and not all(each.is_leaving for each in tenants)
    may_say = may_say and not is_worth_more and not case.followers(job.job.id)
    return Change(f"it starts when {told} ends", {}, f"phalanx cancel {what}" if may_say else "")
