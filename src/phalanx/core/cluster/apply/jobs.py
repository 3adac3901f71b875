"""What events do to jobs and to the tasks that are placed one by one: from the submission to the history.

An older attempt that still seems alive, or a place that is not free, can only come of a damaged record.
"""

from __future__ import annotations

from heapq import heappop, heappush

from msgspec import structs

from phalanx.core.cluster import dispatch_events as d
from phalanx.core.cluster import events as e
from phalanx.core.cluster.apply.approvals import wait_for_approval
from phalanx.core.cluster.apply.bindings import note_ended, note_placed
from phalanx.core.cluster.apply.dependencies import forget_dependents, tell_of_task, wait_for_others
from phalanx.core.cluster.apply.gangs import end_rest, join_formation, over, release
from phalanx.core.cluster.apply.grants import (
    drop_promise,
    end_attempt,
    end_forming,
    leave_queue,
    merge,
    note_start,
    open_lane,
    queue_up,
    share_lanes,
    tell_to_leave,
    wait_to_begin,
)
from phalanx.core.cluster.apply.nodes import count_fault
from phalanx.core.cluster.apply.overlay import bind_reservation, end_rests, free_again
from phalanx.core.cluster.apply.usage import note_usage
from phalanx.core.cluster.apply.workflows import note_cost, note_reuse, release_stage
from phalanx.core.cluster.cancels import WHOLE
from phalanx.core.cluster.decision import Effect, Send, Settle, go_orders, start_order
from phalanx.core.cluster.dependencies import told_abandoned
from phalanx.core.cluster.environment_events import EnvironmentKept
from phalanx.core.cluster.image_events import AttemptPrepared, AttemptPreparing
from phalanx.core.cluster.jobs import DETAILS_MAX, JobState
from phalanx.core.cluster.nodes import Unfit
from phalanx.core.cluster.number_events import NumbersSkipped
from phalanx.core.cluster.state import BACKOFF, BEGIN, ClusterState
from phalanx.core.cluster.units import Attempt, kind_of
from phalanx.core.model.dispatch import own_key
from phalanx.core.model.orders import AttemptKey, Pause, Resume, Status, Why


def submitted(state: ClusterState, event: e.JobSubmitted) -> None:
    _add(state, event, state.take_number(event.number), approve_by=event.approve_by)


def numbers_skipped(state: ClusterState, event: NumbersSkipped) -> None:
    state.arrivals = max(state.arrivals, event.upto)


def environment_kept(state: ClusterState, event: EnvironmentKept) -> None:
    state.environments.keep(event.digest, event.user, event.sealed)


def amended(state: ClusterState, event: e.JobAmended) -> None:
    """The job anew, where it stood in the queue."""
    old = state.job(event.job.id)
    leave_queue(state, old)
    state.remove_job(event.job.id)
    until = old.approve_by if event.approve_by is None else event.approve_by
    _add(state, event, old.arrival, (old.held_because, old.held_by), until)
    state.environments.drop_job(old.job)


def _add(
    state: ClusterState,
    event: e.JobSubmitted | e.JobAmended,
    arrival: int,
    held: tuple[str, str] = ("", ""),
    approve_by: float | None = None,
) -> None:
    job = JobState(event.job, arrival, state.counts, state.incomplete, state.rules.aging_s)
    job.held_because, job.held_by = held
    wait_to_begin(state, job, event.at)
    state.add_job(job)
    state.environments.add_job(event.job)
    wait_for_approval(state, job, approve_by)
    if event.job.workflow is not None:
        release_stage(state, event.job)
    share_lanes(state, job)
    bind_reservation(state, job)
    wait_for_others(state, job)
    queue_up(state, job)
    if event.request_id:
        most = state.rules.request_ids_max
        state.requests.add(event.job.user, event.request_id, event.job.id, most)
    state.repeated.note(event.job)


def placed(state: ClusterState, event: e.TaskPlaced) -> list[Effect]:
    job, node = state.job(event.key[0]), state.node(event.node)
    position = event.key[1]
    if event.promised:
        drop_promise(state, job)  # with the first member; the others of the same decision follow at once
    _make_way(state, job, event)
    group = job.group_of(position)
    attempt = Attempt(event.key, event.node, event.lane, event.grant, event.at, since=event.at)
    attempt.row, attempt.group = node.row, group.number
    lane = open_lane(state, job, attempt, event.at) if event.opens else node.lane(event.lane)
    lane.attempts[event.key] = None
    node.attempts[event.key] = attempt
    job.begin(attempt, node.number)
    attempt.note = event.note
    if event.note is not None and (event.note.reused or event.key[2] > 1):
        note_reuse(state, job.job, event.note.reused)
    if event.merged:
        merge(state, attempt, event.merged)
    note_placed(state, job, node)
    if job.hold_until or job.begins_at:  # in a replay it may not have been noticed that they end
        job.hold_until = job.begins_at = 0.0
        queue_up(state, job)
    if event.formation:
        attempt.formation, attempt.released = event.formation, False
        join_formation(state, job, position, event.formation, event.at)
    elif event.promised:
        queue_up(state, job)  # the others of its job had to wait until the promise was kept
    elif not group.has_ready:
        state.waiting.discard(group)
    if job.job.vps is not None:
        group.stay_on(event.node)
    return start_order(state, attempt)


def _make_way(state: ClusterState, job: JobState, event: e.TaskPlaced) -> None:
    """After a damaged record an older attempt may still seem alive: it had ended, or this one would not be.

    If even so there is no room, the placement is passed over, but its number is never given again.
    """
    _, position, number = event.key
    if event.grant.address:
        free_again(state, event.node, event.grant.address, event.at)
    if (older := job.live.get(position)) is not None:
        end_attempt(state, job, older, event.at)
        job.move(position, Status.PENDING)
        _wait_again(state, job, position, event.at, event.at)
    job.attempts[position] = number
    row = state.nodes[event.node].row
    if event.opens and not state.table.ledgers[row].has_room(event.grant):
        raise Unfit(f"{event.node} has no room for {event.key}")


def started(state: ClusterState, event: e.AttemptStarted) -> list[Effect]:
    job, attempt = state.job(event.key[0]), state.live(event.key)
    attempt.started_at, attempt.since = event.started_at, event.at
    attempt.suspicions, attempt.preparing = 0, False
    if not attempt.released:  # the record of the release is damaged, for without it nobody starts
        release(state, job, attempt.formation, event.at)
    job.note_start(event.key[1], event.started_at)
    note_start(state, job, attempt, event.at)  # not its node's clock, which may be wrong by any amount
    if job.status[event.key[1]] == Status.ASSIGNED:
        job.move(event.key[1], Status.RUNNING)
    tell_of_task(state, job, event.key[1])
    return _next_groups(state, job, event.at)


def suspected(state: ClusterState, event: e.AttemptSuspected) -> None:
    state.live(event.key).suspicions += 1


def preparing(state: ClusterState, event: AttemptPreparing) -> None:
    attempt = state.live(event.key)
    attempt.preparing, attempt.suspicions = True, 0


def prepared(state: ClusterState, event: AttemptPrepared) -> None:
    attempt = state.live(event.key)
    attempt.preparing, attempt.prepared_at, attempt.since = False, event.at, event.at


def ended(state: ClusterState, event: e.AttemptEnded) -> list[Effect]:
    job, attempt = state.job(event.key[0]), state.live(event.key)
    position = event.key[1]
    if event.exit.why == Why.RETURNED:
        # What was given back because its lane is slow must not be queued there again.
        state.nodes[attempt.node].lanes[attempt.lane].is_slow = True
    count_fault(state, state.nodes[attempt.node], event)
    end_attempt(state, job, attempt, event.at)
    note_ended(state, job, attempt.node, event, merged=bool(attempt.merged))
    note_cost(state, job.job, attempt, event.exit, event.at)
    note_usage(state, job, attempt, event.exit, event.at)
    if event.charged:
        job.charged[position] = job.charged.get(position, 0) + 1
    if event.loss:
        job.losses[position] = job.losses.get(position, 0) + 1
    job.record(position, event.exit, attempt.started_at, event.at)
    if job.status[position] < Status.COMPLETED:
        job.why[position] = event.exit.why
        if job.first_started_at is None:
            job.first_started_at = event.exit.started_at
        effects = _become(state, job, position, event)
    else:
        effects = []
    if job.gang is not None or len(job.groups) > 1 or job.groups[0] not in state.waiting:
        queue_up(state, job)
    return effects + _next_groups(state, job, event.at)


def _become(state: ClusterState, job: JobState, position: int, event: e.AttemptEnded) -> list[Effect]:
    """What the task is after its attempt: waiting again, done for its part, or over."""
    if event.status == Status.PENDING:
        job.move(position, Status.PENDING)
        _wait_again(state, job, position, event.retry_at or event.at, event.at)
        return []
    if event.status == Status.RUNNING:  # it has done its part, and is Completed when its whole job is
        if job.status[position] == Status.ASSIGNED:
            job.move(position, Status.RUNNING)
        job.done.add(position)
        tell_of_task(state, job, position)
        return []
    ended_at = event.exit.ended_at or event.at
    return _finish(state, job, position, event.status, ended_at, event.at)


def _next_groups(state: ClusterState, job: JobState, at: float) -> list[Effect]:
    """Groups that had to wait for others may begin by now."""
    if not any(group.group.after for group in job.groups):
        return []
    queue_up(state, job)
    if job.gang is None:
        return []
    for attempt in job.live.values():
        if attempt.started_at is None and attempt.released and job.groups[attempt.group].group.after:
            attempt.since = at  # until now it could not start
    return go_orders(job)


def merged_ended(state: ClusterState, event: d.MergedEnded) -> list[Effect]:
    """Jobs end with the attempt that they were a part of, which has ended right before; the others wait again."""
    effects: list[Effect] = []
    for end in event.ends:
        job = state.job(end.job)
        if job.status[0] != Status.PENDING:
            continue
        job.record(0, end.exit, told_at=event.at)
        job.why[0] = end.exit.why
        job.first_started_at = end.exit.started_at
        if end.status == Status.COMPLETED:  # it has been placed and has run, though not by itself
            job.move(0, Status.ASSIGNED)
            job.move(0, Status.RUNNING)
        effects += _finish(state, job, 0, end.status, end.exit.ended_at or event.at)
        job.drop_ready(0)
        queue_up(state, job)
    for id in event.alone:
        job = state.job(id)
        _run_alone(job)
        queue_up(state, job)
    return effects


def _run_alone(job: JobState) -> None:
    """It is not merged with others any more; its program may still answer in the form for several."""
    if job.job.dispatch is not None:
        dispatch = structs.replace(job.job.dispatch, merge_key=own_key(job.job.id))
        job.job = structs.replace(job.job, dispatch=dispatch)
    for group in job.groups:
        group.job, group.kind = job.job, kind_of(job.job, group.request)


def cancelled(state: ClusterState, event: e.TasksCancelled) -> list[Effect]:
    job = state.job(event.job)
    for each in (WHOLE,) if event.positions is None else event.positions:
        if event.by and (each == WHOLE or len(job.cancelled_by) < DETAILS_MAX):
            job.cancelled_by.setdefault(each, event.by)
    if event.positions is None:
        orders, rest = end_rest(state, job, Status.CANCELLED, Why.CANCELLED, event.at)
        return orders + over(state, job, event.at, rest)
    orders = []
    drop_promise(state, job)
    for position in event.positions:
        if (attempt := job.live.get(position)) is not None:
            orders.append(tell_to_leave(state, job, attempt, Why.CANCELLED, event.at))
        if not Status(job.status[position]).is_final:
            orders += _cancel_one(state, job, position, event.at)
    queue_up(state, job)
    return orders


def abandoned(state: ClusterState, event: e.TasksAbandoned) -> list[Effect]:
    job, effects = state.job(event.job), list[Effect]()
    known = state.abandoned_tasks.get(event.job, {})
    for position in (each for first, last in event.ranges for each in range(first, last + 1)):
        known.pop(position, None)
        if job.status[position] != Status.PENDING:
            continue
        effects += _finish(state, job, position, event.status, event.at)
        job.why[position] = Why.DEPENDENCY
        if len(job.details) < DETAILS_MAX:
            other = f"{event.other}.{job.job.array.index(position) if job.job.array else position}"
            job.details[position] = told_abandoned(other, event.text), ""
    if not known:
        state.abandoned_tasks.pop(event.job, None)
    queue_up(state, job)
    return effects


def _cancel_one(state: ClusterState, job: JobState, position: int, at: float) -> list[Effect]:
    waits = job.status[position] == Status.PENDING
    job.done.discard(position)
    effects = _finish(state, job, position, Status.CANCELLED, at)
    job.why[position] = Why.CANCELLED
    if waits:
        job.drop_ready(position)
    return effects


def forgotten(state: ClusterState, event: e.JobForgotten) -> None:
    job = state.job(event.job)
    for attempt in list(job.live.values()):
        # Only after a damaged record: a job leaves when nothing of it lives.
        end_attempt(state, job, attempt, event.at)
    drop_promise(state, job)
    end_forming(state, job)
    leave_queue(state, job)
    state.remove_job(event.job)
    state.environments.note_record(job.job)
    state.environments.drop_job(job.job)
    forget_dependents(state, event.job)


def paused(state: ClusterState, event: e.TaskPaused | e.TaskResumed) -> list[Effect]:
    attempt = state.live(event.key)
    attempt.paused = isinstance(event, e.TaskPaused)
    order = Pause(event.key) if attempt.paused else Resume(event.key)
    return [Send(attempt.node, order)]


def backoffs_ended(state: ClusterState, event: e.BackoffsEnded) -> None:
    """Tasks whose backoff is over wait for a place again, and addresses have rested.

    It follows from the events and the time alone.
    """
    end_rests(state, event.at)
    while state.retries and state.retries[0][0] <= event.at:
        at, job_id, position = heappop(state.retries)
        job = state.jobs.get(job_id)
        if job is None:
            continue
        if position == BACKOFF and job.hold_until == at:
            job.hold_until = 0.0
        elif position == BEGIN and job.begins_at == at:
            job.begins_at = 0.0
        elif position >= 0 and job.delayed.get(position) == at:
            job.wait_again(position)
        else:
            continue
        queue_up(state, job)


def never_again(state: ClusterState, key: AttemptKey) -> None:
    """The number of this attempt is not given a second time, though its record did not fit."""
    job = state.jobs.get(key[0])
    if job is not None:
        job.attempts[key[1]] = max(job.attempts[key[1]], key[2])


def _finish(
    state: ClusterState,
    job: JobState,
    position: int,
    status: Status,
    at: float,
    told_at: float | None = None,
) -> list[Effect]:
    """A task has ended for good, by its node's clock at `at`, by ours when it was told."""
    job.move(position, status)
    if status == Status.FAILED and job.first_code is None:
        job.first_code = job.exit_code(position)
    effects: list[Effect] = [Settle(job.job.id, position, status)]
    tell_of_task(state, job, position)
    return effects + (over(state, job, at, told_at=told_at) if job.is_over else [])


def _wait_again(state: ClusterState, job: JobState, position: int, ready_at: float, now: float) -> None:
    if ready_at > now:
        job.delayed[position] = ready_at
        heappush(state.retries, (ready_at, job.job.id, position))
        return
    job.wait_again(position)
