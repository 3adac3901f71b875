"""What a person can do about a job that waits at a gate: release it, let it begin, approve it; and whom to ask."""

from __future__ import annotations

from phalanx.core.cluster.dependencies import predecessor
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.units import Gate
from phalanx.core.explain.change import Asker, Change
from phalanx.core.model.queues import Quota

NAMES_SHOWN = 8


def fix_at_gate(state: ClusterState, job: JobState, asker: Asker) -> Change | None:
    """The command that opens the first closed gate of a submitted job, for those who may give it."""
    gate = next(iter(job.closed_gates()), None)
    match gate:
        case Gate.HELD:
            return _release(job, asker)
        case Gate.APPROVAL:
            return _approve(state, job, asker)
        case Gate.BEGIN if asker.may_cancel(job.job):
            return Change("let it begin at once", {}, f"phalanx update {job.job.id} --begin now")
        case Gate.DEPENDENCY if asker.may_cancel(job.job) and _is_for_nobody(state, job):
            return Change("cancel it", {}, f"phalanx cancel {job.job.id}")
    return None


def _is_for_nobody(state: ClusterState, job: JobState) -> bool:
    """Whether it waits for what nobody knows (any more)."""
    return bool(job.awaits) and all(predecessor(state, id) is None for id in job.awaits)


def _release(job: JobState, asker: Asker) -> Change:
    """What its user holds the user releases; what an operator holds, and no other user does."""
    holder = job.held_by or job.job.user
    is_holder = asker.user == holder or (not job.held_by and asker.may_cancel(job.job))
    if asker.controls_all or (is_holder and asker.may_cancel(job.job)):
        return Change("release it", {}, f"phalanx release {job.job.id}")
    return Change(
        f"ask {holder} or any operator to release it" if holder else "ask an operator to release it"
    )


def _approve(state: ClusterState, job: JobState, asker: Asker) -> Change | None:
    """A workflow is approved as a whole, if all of its queues take an approval of the asker."""
    quotas, owner, id = state.queues.quotas, job.job.user, job.job.id
    if not may_approve(quota := quotas.get(job.job.queue), owner, asker):
        return Change(f"ask {who_approves(quota, owner)} to approve it: `phalanx approve {id}`")
    flow = None if job.job.workflow is None else state.workflows.get(job.job.workflow[0])
    if flow is not None and flow.unapproved:
        needed = [quotas[each.job.queue] for each in flow.workflow.stages if each.job.queue in quotas]
        if all(quota.approval is None or may_approve(quota, owner, asker) for quota in needed):
            id = flow.workflow.id
    return Change(f"approve it, or deny it: `phalanx deny {id} --reason WHY`", {}, f"phalanx approve {id}")


def who_approves(quota: Quota | None, owner: str) -> str:
    """Those who may approve a job of this user, the named ones first."""
    named = () if quota is None or quota.approval is None else quota.approval.by
    return ", ".join([*[name for name in named if name != owner][:NAMES_SHOWN], "an operator or an admin"])


def may_approve(quota: Quota | None, owner: str, asker: Asker) -> bool:
    is_named = quota is not None and quota.approval is not None and asker.user in quota.approval.by
    return asker.controls_all or (is_named and asker.user != owner)
