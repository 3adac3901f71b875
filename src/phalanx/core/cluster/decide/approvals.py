"""Choices about approvals: which jobs wait for one, who may give it, what a denial does, and when it comes too late.

A queue asks for it (`Quota.approval`). Jobs of operators and admins do not wait, for they could approve them. A
workflow is approved as a whole, once: its stages that have no job yet do not wait again. Nothing is held for a job
that waits for an approval, and whether there is room is asked when it is placed, as for any other.
"""

from __future__ import annotations

from phalanx.core.cluster import events as e
from phalanx.core.cluster import workflow_events as w
from phalanx.core.cluster.approval_events import JobApproved, WorkflowApproved
from phalanx.core.cluster.decide.deadlines import cancelled_jobs
from phalanx.core.cluster.decision import Accepted, Decision, Refused, refuse_because
from phalanx.core.cluster.inputs import Approve, ApproveWorkflow
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.workflows import WorkflowState
from phalanx.core.model.amounts import describe_seconds
from phalanx.core.model.job import Job, QueueUser
from phalanx.core.model.orders import Status
from phalanx.core.model.queues import OPERATORS, Quota
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.workflow import Workflow

FOR_EVER = 0.0  # as the time until which a job waits
EXPIRED_AT_ONCE = 500  # jobs that one turn ends


def needed_until(state: ClusterState, job: Job, role: str, now: float) -> float | None:
    """Until when a job waits for an approval; None if it needs none."""
    quota = state.queues.quotas.get(job.queue)
    if quota is None or not role or not quota.needs_approval(role):
        return None
    return _until(quota, now)


def needed_again(state: ClusterState, job: Job, role: str, now: float) -> float | None:
    """The same for a gang to which members have come: what was approved is not what it is now, nor where it waits.

    One that still waits in its queue does so for as long as before.
    """
    old = state.jobs[job.id]
    is_asked = old.approve_by is not None and old.job.queue == job.queue
    return old.approve_by if is_asked else needed_until(state, job, role, now)


def workflow_needs(state: ClusterState, flow: Workflow, role: str) -> bool:
    """Whether a stage of a workflow is in a queue that asks for approvals."""
    queues = {stage.job.queue for stage in flow.stages} if role else set()
    return any(quota.needs_approval(role) for name in queues if (quota := state.queues.quotas.get(name)))


def stage_until(state: ClusterState, flow: WorkflowState, job: Job, now: float) -> float | None:
    """The same for the job of a stage, whose workflow may have been approved."""
    quota = state.queues.quotas.get(job.queue)
    return None if not flow.unapproved or quota is None or quota.approval is None else _until(quota, now)


def _until(quota: Quota, now: float) -> float:
    within_s = None if quota.approval is None else quota.approval.within_s
    return FOR_EVER if within_s is None else now + within_s


def approve(state: ClusterState, given: Approve, now: float) -> Decision:
    """Let a job run, or end it, if whoever says so may."""
    job = state.jobs.get(given.job)
    if job is None:
        return refuse_because("NotFound", f"no job {given.job}", "not_found")
    if job.is_over or job.approve_by is None:
        ended = ": it has ended" if job.is_over else ""
        return refuse_because("NotWaitingApproval", f"{given.job} does not wait for an approval{ended}")
    if (no := _why_not(state, job.job.queue_user, given.user, given.role)) is not None:
        return Decision([], [], no)
    cause = f"user {given.user}"
    if given.approves:
        return Decision([JobApproved(at=now, cause=cause, job=given.job, by=given.user)], [], Accepted())
    text = _denial(given.user, given.text)
    denied = e.JobSettled(at=now, cause=cause, job=given.job, status=Status.CANCELLED, text=text)
    return Decision([denied], [], Accepted())


def approve_workflow(state: ClusterState, given: ApproveWorkflow, now: float) -> Decision:
    """The same for all stages of a workflow, those that have no job yet as well."""
    flow = state.workflows.get(given.workflow)
    if flow is None:
        return refuse_because("NotFound", f"no workflow {given.workflow}", "not_found")
    if flow.is_over or not flow.unapproved:
        ended = ": it has ended" if flow.is_over else ""
        return refuse_because("NotWaitingApproval", f"{given.workflow} does not wait for an approval{ended}")
    for queue in dict.fromkeys(stage.job.queue for stage in flow.workflow.stages):
        quota = state.queues.quotas.get(queue)
        if quota is not None and quota.approval is not None:
            no = _why_not(state, (queue, flow.workflow.user), given.user, given.role)
            if no is not None:
                return Decision([], [], no)
    cause, id = f"user {given.user}", given.workflow
    if not given.approves:
        cause = _denial(given.user, given.text)
        jobs = cancelled_jobs(state, flow, cause, now)
        return Decision([w.WorkflowCancelled(at=now, cause=cause, workflow=id), *jobs], [], Accepted())
    events: list[e.Event] = [WorkflowApproved(at=now, cause=cause, workflow=id, by=given.user)]
    events += [
        JobApproved(at=now, cause=cause, job=job.job.id, by=given.user) for job in _waiting(state, flow)
    ]
    return Decision(events, [], Accepted(len(events) - 1))


def _waiting(state: ClusterState, flow: WorkflowState) -> list[JobState]:
    jobs = (state.jobs.get(flow.job_id(stage)) for stage in flow.released())
    return [job for job in jobs if job is not None and job.approve_by is not None and not job.is_over]


def _denial(user: str, text: str) -> str:
    return f"denied by {user}: {text}" if text else f"denied by {user}"


def _why_not(state: ClusterState, held_by: QueueUser, user: str, role: str) -> Refused | None:
    """Why this one may not approve jobs of a user in a queue; None if it may."""
    queue, owner = held_by
    quota = state.queues.quotas.get(queue, Quota())
    text = ""
    if not quota.may_approve(user, role):
        named = "" if quota.approval is None else "".join(f"{name}, " for name in quota.approval.by[:8])
        text = f"{user} may not approve jobs of queue {queue}: {named}operators and admins may"
    elif user == owner and role not in OPERATORS:
        text = f"{user} may not approve a job of their own: another approver of queue {queue} may"
    return Refused(Reason("NotApprover", Tier.NEVER, text), "forbidden") if text else None


def unapproved(state: ClusterState, now: float) -> list[e.Event]:
    """The end of jobs that nobody has approved in time."""
    events: list[e.Event] = []
    for id in state.unapproved:
        job = state.jobs[id]
        until = job.approve_by
        if until is None or until == FOR_EVER or now < until or job.is_over:
            continue
        waited = describe_seconds(until - job.job.submitted_at)
        text = f"nobody approved it within {waited}"
        cause = "its approval did not come"
        events.append(e.JobSettled(at=now, cause=cause, job=id, status=Status.CANCELLED, text=text))
        if len(events) >= EXPIRED_AT_ONCE:  # the others have their turn a second later
            break
    return events
