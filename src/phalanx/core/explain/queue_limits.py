"""Who stands ahead in the queue, and the order of it in which others have a turn between the tasks of one user."""

from __future__ import annotations

from collections import Counter

from msgspec import structs

from phalanx.core.cluster.units import GangState, GroupState
from phalanx.core.explain.case import Case
from phalanx.core.explain.change import Change
from phalanx.core.model.job import Job, JobId
from phalanx.core.model.plan import PlanMemory
from phalanx.core.model.queues import Quota
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.resources import Grant
from phalanx.core.model.tenants import Tenant
from phalanx.core.model.waiting import Rank, Unit, Waiting
from phalanx.core.placement.precedence import Precedence

_NOBODY = Counter[Rank]()


def pending(unit: object) -> int:
    """How many tasks of a unit wait for a place."""
    groups = (
        [unit] if isinstance(unit, GroupState) else unit.owner.groups if isinstance(unit, GangState) else []
    )
    return sum(group.pending_count for group in groups)


def behind(precedence: Precedence, waiting: Waiting, unit: Unit, own: int, started: Counter[Rank]) -> Reason:
    """How many tasks go first: of other jobs, without those that have a place by now, and so many of its own job."""
    ahead, jobs = tasks_ahead(precedence, waiting, unit, own, started)
    total = max(0, ahead.total()) + own
    id, count = max(ahead.items(), key=lambda each: each[1], default=("", 0))
    if count <= own:
        return _behind(total)
    share = "" if total == 1 else "all " if count >= total else f"{count} "
    named = " ".join(filter(None, ("job", id, jobs[id].name)))
    whose = f", {share}of {named}" + (f" of user {jobs[id].user}" if jobs[id].user else "")
    return _behind(total, whose, job=id, user=jobs[id].user, of_job=count)


def _behind(ahead: int, whose: str = "", **most: object) -> Reason:
    some = "1 task is" if ahead == 1 else f"{ahead} tasks are" if ahead else "Other jobs are"
    text = f"{some} ahead of it in the queue{whose}"
    return Reason("PriorityBehind", Tier.POLICY, text, {"ahead": ahead, **most})


def tasks_ahead(
    precedence: Precedence, waiting: Waiting, unit: Unit, own: int, started: Counter[Rank] = _NOBODY
) -> tuple[Counter[JobId], dict[JobId, Job]]:
    """Of each other job, how many tasks go first, without those that have a place by now; of its own job, so many."""
    units = [each for kind in waiting.classes.values() for each in kind.units.values()]
    ahead = precedence.ahead(unit, ((each, pending(each) - started[each.rank]) for each in units), own)
    return ahead, {each.job.id: each.job for each in units if each.job.id in ahead}


def fair_order(case: Case) -> Change | None:
    """A fair order of its queue, if it is the next with that, when a task of the user ends who stands ahead most."""
    mine, queues = case.job.job, case.state.queues
    old = queues.quotas.get(mine.queue, Quota())
    if old.order == "fair":
        return None
    precedence = Precedence(case.draft, case.state.waiting, PlanMemory())
    ahead, jobs = tasks_ahead(precedence, case.state.waiting, case.unit, case.ahead)
    users = Counter[str]()
    for id, count in ahead.items():
        if jobs[id].queue == mine.queue and jobs[id].user != mine.user:
            users[jobs[id].user] += count
    for user, _ in users.most_common(1):
        if not _is_next(case, user, structs.replace(old, order="fair")):
            return None
        text = f"it would start when a task of {user} ends, if queue {mine.queue} had a fair order"
        if case.asker.declares:
            return Change(text, {}, f"phalanx queue set {mine.queue} --order fair")
        return Change(f"{text}, which an admin can set")
    return None


def _is_next(case: Case, user: str, quota: Quota) -> bool:
    """Whether it starts under another quota when one task of that user has left its place."""
    if (tenant := _one_place(case, user)) is None:
        return False
    draft = case.draft
    mark = draft.mark()
    draft.evict(tenant)
    try:
        return case.trials.starts_with_quota(case.unit, case.ahead, quota)
    finally:
        draft.rollback(mark)


def _one_place(case: Case, user: str) -> Tenant | None:
    """A place of the user on a node that would have room for it without that one."""
    jobs, queue, nodes = case.state.jobs, case.job.job.queue, case.draft.nodes
    for id, places in case.draft.tenants.of_job.items():
        if (jobs[id].job.user, jobs[id].job.queue) != (user, queue) or jobs[id].gang is not None:
            continue
        for each in places.values():
            if each.key in case.draft.gone or each.is_promise or not nodes.open[each.node_row]:
                continue
            if isinstance(case.unit, GangState) or _has_room(case, each):
                return each
    return None


def _has_room(case: Case, tenant: Tenant) -> bool:
    assert isinstance(case.unit, GroupState)
    mark = case.draft.mark()
    case.draft.evict(tenant)
    fits = isinstance(case.draft.nodes.ledgers[tenant.node_row].fit(case.unit.request), Grant)
    case.draft.rollback(mark)
    return fits
