"""Choices about jobs that people change after they were submitted: held, released, given other settings.

A hold concerns what has no place yet: of a job that runs in part, the tasks that wait. A change is judged as a
submission with the new settings would be: the queue has to be declared, the priority within the limit, and the quota
large enough. What runs keeps its place, so of a job that holds one the queue stays as it is.
"""

from __future__ import annotations

from msgspec import structs

from phalanx.core.cluster import events as e
from phalanx.core.cluster.change_events import NO_LIMIT, JobHeld, JobReleased, JobUpdated
from phalanx.core.cluster.decide.approvals import needed_until
from phalanx.core.cluster.decide.jobs import ever_counted, unwelcome
from phalanx.core.cluster.decision import Accepted, Decision, Refused, refuse_because
from phalanx.core.cluster.inputs import Hold, ReleaseJob, Update
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.stage_dispatch import dispatch_of
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.amounts import plural
from phalanx.core.model.dispatch import TASK_TYPE_TAG, Dispatch
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Status
from phalanx.core.model.reason import Reason, Tier


def hold(state: ClusterState, given: Hold, now: float) -> Decision:
    """Hold what waits of a job. One that is held already stays so, for the reason it has, unless its owner holds it and
    an operator is to: what the owner holds, the owner could release.
    """
    job = state.jobs.get(given.job)
    if (refused := _why_not_changed(job, given.job)) is not None or job is None:
        return refused or Decision()
    is_taken_over = given.is_operator and job.held_by == job.job.user != given.user
    if job.held_because and not is_taken_over:
        return Decision([], [], Accepted(0))
    waiting = job.counts[Status.PENDING]
    if not waiting or job.merged_into is not None:
        text = f"{given.job} has nothing to hold: every task is running or finished"
        hint = "; `phalanx pause` stops a running task where it is, `phalanx evict` stops it and requeues it"
        return refuse_because("NothingWaiting", text + hint)
    because = f"{given.reason} (by {given.user})" if given.reason else f"by {given.user}"
    event = JobHeld(at=now, cause=f"user {given.user}", job=given.job, because=because, user=given.user)
    return Decision([event], [], Accepted(waiting))


def release(state: ClusterState, given: ReleaseJob, now: float) -> Decision:
    """End a hold. What an operator holds is released by an operator."""
    job = state.jobs.get(given.job)
    if job is None or job.is_over or not job.held_because:
        return refuse_because("NotHeld", f"{given.job} is not held")
    if job.held_by not in ("", given.user) and not given.is_operator:
        text = f"{given.job} is held by {job.held_by}: only {job.held_by} or an operator may release it"
        return refuse_because("HeldByAnother", text, "forbidden")
    event = JobReleased(at=now, cause=f"user {given.user}", job=given.job)
    return Decision([event], [], Accepted(job.counts[Status.PENDING]))


def update(state: ClusterState, given: Update, now: float) -> Decision:
    """Give a job other settings, or say which of them it may not have. Settings that it has already change nothing."""
    job = state.jobs.get(given.job)
    if (refused := _why_not_changed(job, given.job)) is not None or job is None:
        return refused or Decision()
    if given.if_revision is not None and given.if_revision != job.job.revision:
        text = f"{given.job} was changed: its settings are at revision {job.job.revision}, not {given.if_revision}"
        return refuse_because("Changed", f"{text}; read it again", tier=Tier.PROGRESS)
    if given.begin_at is not None and not job.counts[Status.PENDING]:
        text = f"begin: {given.job} has nothing that waits: all of its tasks have started"
        return refuse_because("NothingWaiting", text)
    if given.at_once is not None and (no := _why_no_limit(job.job)) is not None:
        return Decision([], [], no)
    event = _news(job.job, given, now)
    if event is None:
        return Decision([], [], Accepted(0))
    if (no := _why_never(state, job, event, given)) is not None:
        return Decision([], [], no)
    if event.queue is not None:
        moved = structs.replace(job.job, queue=event.queue)
        until = needed_until(state, moved, given.role, now)
        event = structs.replace(event, dispatch=_dispatch(state, job.job, event.queue), approve_by=until)
    events: list[e.Event] = [event]
    return Decision(events, [], Accepted(sum(job.counts[:3])))


def _why_not_changed(job: JobState | None, id: str) -> Decision | None:
    if job is None:
        return refuse_because("NotFound", f"no job {id}", "not_found")
    return refuse_because("AlreadyEnded", f"job {id} has already ended") if job.is_over else None


def _news(job: Job, given: Update, now: float) -> JobUpdated | None:
    """What would be other than it is; None if nothing would."""
    limit_s = job.time_limit_s or NO_LIMIT
    event = JobUpdated(
        at=now,
        cause=f"user {given.user}",
        job=job.id,
        priority=None if given.priority == job.priority else given.priority,
        time_limit_s=None if given.time_limit_s == limit_s else given.time_limit_s,
        queue=None if given.queue == job.queue else given.queue,
        begin_at=None if given.begin_at == job.begin_at else given.begin_at,
        at_once=_new_limit(job, given.at_once),
    )
    settings = (event.priority, event.time_limit_s, event.queue, event.begin_at, event.at_once)
    return event if any(each is not None for each in settings) else None


def _new_limit(job: Job, at_once: int | None) -> int | None:
    """How many of its tasks may hold a place from now on, if that is another number; as many as there are: all."""
    if at_once is None:
        return None
    group = job.groups[0]
    limit = 0 if at_once >= group.completions else at_once
    return None if limit == group.at_once else limit


def _why_no_limit(job: Job) -> Refused | None:
    """Why the number of tasks that run at once cannot be chosen; None for an array."""
    if job.gang is not None:
        return _no("IsGang", f"at_once: {job.id} is a gang: all of its tasks start together")
    if len(job.groups) > 1 or job.tasks == 1:
        return _no(
            "NotAnArray", f"at_once: {job.id} is no array: its {plural(job.tasks, 'task')} have no limit"
        )
    return None


def _why_never(state: ClusterState, job: JobState, event: JobUpdated, given: Update) -> Refused | None:
    """Why a job may not have the new settings, or None if it may."""
    spec = job.job
    if spec.workflow is not None and (no := _of_stage(state, job, event)) is not None:
        return no
    if event.queue is not None and job.live:
        text = (
            f"queue: {spec.id} is running in queue {spec.queue}; only a job that waits can change its queue"
        )
        return _no(
            "Running",
            f"{text}; `phalanx evict {spec.id}` stops it and requeues it, and what it did since its last "
            "checkpoint is lost",
        )
    if event.time_limit_s is not None and _is_approved_shorter(state, job, event.time_limit_s, given.role):
        text = f"time_limit: {spec.id} was approved as it is: only an operator may lengthen it"
        return Refused(Reason("ApprovedShorter", Tier.POLICY, text), "forbidden")
    if event.priority is None and event.queue is None:
        return None
    changed = structs.replace(
        spec,
        queue=spec.queue if event.queue is None else event.queue,
        priority=spec.priority if event.priority is None else event.priority,
    )
    if given.role and (refused := unwelcome(state, changed, given.role)):
        return refused
    if (
        event.queue is not None
        and (many := state.queues.too_many(changed.queue_user, spec.tasks)) is not None
    ):
        return Refused(many, "too_many")
    no_quota = None if event.queue is None else _exceeds_quota(state, changed)
    return None if no_quota is None else Refused(no_quota, "never")


def _is_approved_shorter(state: ClusterState, job: JobState, limit_s: float, role: str) -> bool:
    """Whether a job of a queue with approval would run for longer than those who approve there have seen."""
    quota, old_s = state.queues.quotas.get(job.job.queue), job.job.time_limit_s
    is_longer = old_s is not None and (limit_s == NO_LIMIT or limit_s > old_s)
    return (
        is_longer and job.approve_by is None and quota is not None and quota.needs_approval(role or "admin")
    )


def _of_stage(state: ClusterState, job: JobState, event: JobUpdated) -> Refused | None:
    """Why the job of a stage keeps what it has: others of its workflow follow it, or share its lane."""
    spec = job.job
    if event.queue is not None:
        return _no("OfWorkflow", f"queue: {spec.id} is a stage, and keeps the queue of its workflow")
    for attempt in job.live.values():
        lane = state.nodes[attempt.node].lanes[attempt.lane]
        if any(key[0] != spec.id for key in lane.attempts):
            text = f"{spec.id} has other stages behind it in its lane; try again when they have left"
            return Refused(Reason("SharesLane", Tier.PROGRESS, text))
    return None


def _exceeds_quota(state: ClusterState, job: Job) -> Reason | None:
    """Why the quota of its queue could never admit it: one task of each group, or all that its gang needs."""
    asked = [
        (ever_counted(state, job, each), each.needed if job.gang is not None else 1) for each in job.groups
    ]
    if job.gang is not None:
        return state.queues.lacks(job.queue_user, asked, ever=True)
    return next(
        (no for each in asked if (no := state.queues.lacks(job.queue_user, [each], ever=True)) is not None),
        None,
    )


def _dispatch(state: ClusterState, job: Job, queue: str) -> Dispatch | None:
    """How it is given its node in another queue."""
    return dispatch_of(state, structs.replace(job, queue=queue), dict(job.tags).get(TASK_TYPE_TAG, ""))


def _no(code: str, text: str) -> Refused:
    return Refused(Reason(code, Tier.NEVER, text))
