"""What an event does: the only place that changes the state. It makes no choices.

Replaying the log through `apply` gives the state back. An event that names something unknown (because the
record before it was damaged) is counted and passed over, never fatal.
"""

from __future__ import annotations

from heapq import heappush

from phalanx.core.cluster import membership
from phalanx.core.cluster.admission import stops
from phalanx.core.cluster.effects import Effect, Send, Settle
from phalanx.core.cluster.events import (
    AttemptEnded,
    AttemptStarted,
    AttemptSuspected,
    Event,
    JobForgotten,
    JobSubmitted,
    NodeHeard,
    TaskPaused,
    TaskPlaced,
    TaskResumed,
    TasksCancelled,
    TermOpened,
)
from phalanx.core.cluster.jobs import Attempt, JobState
from phalanx.core.cluster.starting import start_order
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.lane import Lane
from phalanx.core.model.orders import Pause, Resume, Stop
from phalanx.core.model.status import Status, Why


def apply(state: ClusterState, event: Event) -> list[Effect]:
    """Change the state, and say what the shell has to do once the event is durable."""
    if type(event) is not NodeHeard:
        state.revision += 1
    try:
        match event:
            case TaskPlaced():
                return _task_placed(state, event)
            case AttemptEnded():
                return _attempt_ended(state, event)
            case AttemptStarted():
                return _attempt_started(state, event)
            case JobSubmitted():
                return _job_submitted(state, event)
            case AttemptSuspected():
                _live(state, event.key).suspicions += 1
            case TasksCancelled():
                return _tasks_cancelled(state, event)
            case TaskPaused() | TaskResumed():
                return _set_paused(state, event)
            case JobForgotten():
                _job_forgotten(state, event)
            case TermOpened():
                state.epoch = event.epoch
                membership.begin_term(state, event.at)
            case _:
                membership.apply(state, event)
    except KeyError:
        state.skipped += 1
    return []


def _job_submitted(state: ClusterState, event: JobSubmitted) -> list[Effect]:
    state.arrivals += 1
    job = JobState(event.job, state.arrivals, state.counts)
    state.add_job(job)
    state.waiting.add(job)
    if event.request_id:
        state.requests.setdefault(event.request_id, []).append(event.job.id)
        while len(state.requests) > state.rules.request_ids_max:
            state.requests.popitem(last=False)
    return []


def _task_placed(state: ClusterState, event: TaskPlaced) -> list[Effect]:
    job, node = state.jobs[event.key[0]], state.nodes[event.node]
    _make_way(state, job, event)
    attempt = Attempt(event.key, event.node, event.lane, event.grant, event.at)
    if event.opens:
        state.table.take(node.row, event.grant)
        lane = node.lanes[event.lane] = job.lanes[event.node, event.lane] = Lane(
            event.lane, event.node, event.grant
        )
        node.next_lane = event.lane + 1
    else:
        lane = node.lanes[event.lane]
    lane.attempts[event.key] = None
    node.attempts[event.key] = attempt
    job.begin(attempt, node.row)
    if not job.has_ready:
        state.waiting.discard(job)
    return start_order(state, attempt)


def _make_way(state: ClusterState, job: JobState, event: TaskPlaced) -> None:
    """After a damaged record an older attempt may still seem alive: it had ended, or this one would not be.

    If even so there is no room, the placement is passed over, but its number is never given again.
    """
    _, position, number = event.key
    if (older := job.live.get(position)) is not None:
        _release(state, job, older)
        job.move(position, Status.PENDING)
        _wait_again(state, job, position, event.at, event.at)
    job.attempts[position] = number
    row = state.nodes[event.node].row
    if event.opens and not state.table.ledgers[row].has_room(event.grant):
        raise KeyError(event.key)


def _attempt_started(state: ClusterState, event: AttemptStarted) -> list[Effect]:
    job, attempt = state.jobs[event.key[0]], _live(state, event.key)
    attempt.started_at = event.started_at
    attempt.suspicions = 0
    job.note_start(event.key[1], event.started_at)
    if job.status[event.key[1]] == Status.ASSIGNED:
        job.move(event.key[1], Status.RUNNING)
    return []


def _attempt_ended(state: ClusterState, event: AttemptEnded) -> list[Effect]:
    job, attempt = state.jobs[event.key[0]], _live(state, event.key)
    position = event.key[1]
    if (
        event.exit.why == Why.RETURNED
    ):  # what was given back because its lane is slow must not be queued there again
        state.nodes[attempt.node].lanes[attempt.lane].is_slow = True
    _release(state, job, attempt)
    if event.charged:
        job.charged[position] = job.charged.get(position, 0) + 1
    if event.loss:
        job.losses[position] = job.losses.get(position, 0) + 1
    if Status(job.status[position]).is_final:
        return []
    job.record(position, event.exit)
    if job.first_started_at is None:
        job.first_started_at = event.exit.started_at
    if event.status == Status.PENDING:
        job.move(position, Status.PENDING)
        _wait_again(state, job, position, event.retry_at or event.at, event.at)
        return []
    return _finish(state, job, position, event.status, event.at)


def _tasks_cancelled(state: ClusterState, event: TasksCancelled) -> list[Effect]:
    job = state.jobs[event.job]
    if event.positions is None:
        orders: list[Effect] = [*stops(job, Why.CANCELLED)]
        job.cancel_rest()
        state.waiting.discard(job)
        return orders + _over(state, job, event.at)
    orders = []
    for position in event.positions:
        if (attempt := job.live.get(position)) is not None:
            orders.append(Send(attempt.node, Stop(attempt.key, Why.CANCELLED, job.job.grace_s)))
        if not Status(job.status[position]).is_final:
            orders += _cancel_one(state, job, position, event.at)
    return orders


def _cancel_one(state: ClusterState, job: JobState, position: int, at: float) -> list[Effect]:
    waits = job.status[position] == Status.PENDING
    effects = _finish(state, job, position, Status.CANCELLED, at)
    job.why[position] = Why.CANCELLED
    if waits:
        job.drop_ready(position)
        if not job.has_ready:
            state.waiting.discard(job)
    if position in job.live:
        job.live[position].ending = Why.CANCELLED
    return effects


def _job_forgotten(state: ClusterState, event: JobForgotten) -> None:
    job = state.jobs[event.job]
    for attempt in list(
        job.live.values()
    ):  # only after a damaged record: a job leaves when nothing of it lives
        _release(state, job, attempt)
    state.waiting.discard(job)
    state.remove_job(event.job)


def _set_paused(state: ClusterState, event: TaskPaused | TaskResumed) -> list[Effect]:
    attempt = _live(state, event.key)
    attempt.paused = isinstance(event, TaskPaused)
    order = Pause(event.key) if attempt.paused else Resume(event.key)
    return [Send(attempt.node, order)]


def _finish(state: ClusterState, job: JobState, position: int, status: Status, at: float) -> list[Effect]:
    job.move(position, status)
    if status == Status.FAILED and job.first_code is None:
        job.first_code = job.exit_code(position)
    effects: list[Effect] = [Settle(job.job.id, position)]
    return effects + (_over(state, job, at) if job.is_over else [])


def _over(state: ClusterState, job: JobState, at: float) -> list[Effect]:
    job.ended_at = at
    state.ended[job.job.id] = None
    return [Settle(job.job.id, None)]


def _wait_again(state: ClusterState, job: JobState, position: int, ready_at: float, now: float) -> None:
    if ready_at > now:
        job.delayed[position] = ready_at
        heappush(state.retries, (ready_at, job.job.id, position))
        return
    job.wait_again(position)
    if job.has_ready:
        state.waiting.add(job)


def _release(state: ClusterState, job: JobState, attempt: Attempt) -> None:
    """The attempt is over; its lane's grant too, if it was the last in it."""
    node = state.nodes[attempt.node]
    lane = node.lanes[attempt.lane]
    del node.attempts[attempt.key]
    del job.live[attempt.key[1]]
    del lane.attempts[attempt.key]
    if not lane.attempts:
        del node.lanes[attempt.lane]
        del job.lanes[attempt.node, attempt.lane]
        state.table.give_back(node.row, attempt.grant)
        state.gain += 1
    if job.has_ready:
        state.waiting.add(job)


def _live(state: ClusterState, key: tuple[str, int, int]) -> Attempt:
    attempt = state.attempt(key)
    if attempt is None:
        raise KeyError(key)
    return attempt
