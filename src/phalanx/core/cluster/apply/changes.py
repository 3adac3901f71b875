"""What events do to jobs that people change after they were submitted: held, released, given other settings."""

from __future__ import annotations

from msgspec import structs

from phalanx.core.cluster.apply.approvals import wait_for_approval
from phalanx.core.cluster.apply.grants import (
    drop_promise,
    hold_back,
    leave_queue,
    queue_up,
    share_lanes,
    wait_to_begin,
)
from phalanx.core.cluster.change_events import JobHeld, JobReleased, JobUpdated
from phalanx.core.cluster.decision import Effect, Rebrief
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.ranking import urgency_of
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.units import kind_of
from phalanx.core.model.dispatch import own_key
from phalanx.core.model.job import Job, QueueUser
from phalanx.core.model.tenants import NEVER


def held(state: ClusterState, event: JobHeld) -> None:
    hold_back(state, state.job(event.job), event.because, event.user)


def let_go(state: ClusterState, event: JobReleased) -> None:
    job = state.job(event.job)
    job.held_because = job.held_by = ""
    queue_up(state, job)


def updated(state: ClusterState, event: JobUpdated) -> list[Effect]:
    """It waits where its new settings put it. What runs has another priority and another end from now on."""
    job = state.job(event.job)
    leave_queue(state, job)
    if event.priority is not None or event.queue is not None:
        drop_promise(state, job)  # it was made for the urgency that it had
    before = job.job.queue_user
    _give(job, _changed(job.job, event), state.rules.aging_s)
    if event.queue is not None:
        _move(state, job, before, event.approve_by)
    if job.job.workflow is not None:
        _leave_lanes(state, job)
    if event.begin_at is not None:
        wait_to_begin(state, job, event.at)
    _tell_tenants(state, job)
    state.gain += 1  # others may be placed before it now, or evict it
    queue_up(state, job)
    return [Rebrief(job.job.id)] if event.time_limit_s is not None else []


def _move(state: ClusterState, job: JobState, before: QueueUser, approve_by: float | None) -> None:
    """What is submitted is counted in the other queue, which may ask for an approval."""
    state.queues.submit(before, -job.job.tasks)
    state.queues.submit(job.job.queue_user, job.job.tasks)
    state.unapproved.pop(job.job.id, None)
    wait_for_approval(state, job, approve_by)


def _changed(job: Job, event: JobUpdated) -> Job:
    limit_s = job.time_limit_s if event.time_limit_s is None else event.time_limit_s or None
    dispatch = job.dispatch if event.queue is None else event.dispatch
    if dispatch is not None and dispatch.merge_key:  # it differs from others in more than its data
        dispatch = structs.replace(dispatch, merge_key=own_key(job.id))
    if event.at_once is not None:
        job = _limited(job, event.at_once)
    return structs.replace(
        job,
        priority=job.priority if event.priority is None else event.priority,
        time_limit_s=limit_s,
        queue=job.queue if event.queue is None else event.queue,
        begin_at=job.begin_at if event.begin_at is None else event.begin_at,
        dispatch=dispatch,
        revision=job.revision + 1,
    )


def _limited(job: Job, at_once: int) -> Job:
    """An array of which so many tasks may hold a place at one time. Those that hold one already keep it."""
    array = None if job.array is None else structs.replace(job.array, at_once=at_once)
    return structs.replace(job, groups=(structs.replace(job.groups[0], at_once=at_once),), array=array)


def _give(job: JobState, spec: Job, aging_s: float) -> None:
    """The state of a job and of its units with other settings."""
    arrival, urgency = job.arrival, urgency_of(spec, aging_s)
    job.job = spec
    for group in job.groups:
        group.job, group.rank = spec, (urgency, arrival, group.number)
        group.group = spec.groups[group.number]
        group.kind = kind_of(spec, group.request)
    if job.gang is not None:
        job.gang.job, job.gang.rank = spec, (urgency, arrival, 0)


def _leave_lanes(state: ClusterState, job: JobState) -> None:
    """Stages share lanes with those that have the same settings: nobody queues in its own any more."""
    for attempt in job.live.values():
        state.nodes[attempt.node].lanes[attempt.lane].is_slow = True
    share_lanes(state, job)


def _tell_tenants(state: ClusterState, job: JobState) -> None:
    """Placement knows the priority of whoever holds a place, and when its time limit ends it."""
    limit_s = NEVER if job.job.time_limit_s is None else job.job.time_limit_s
    for tenant in list(state.tenants.of_job.get(job.job.id, {}).values()):
        ends_at = tenant.ends_at if tenant.is_leaving else tenant.since + limit_s
        state.tenants.replace(structs.replace(tenant, priority=job.job.priority, ends_at=ends_at))
