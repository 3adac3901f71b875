"""What events do to jobs whose tasks act as one: formations, promises, evictions, restarts and the job's own end."""

from __future__ import annotations

from phalanx.core.cluster import events as e
from phalanx.core.cluster.apply.bindings import unbind
from phalanx.core.cluster.apply.dependencies import tell_dependents
from phalanx.core.cluster.apply.grants import (
    back_off,
    drop_promise,
    end_forming,
    keep_for,
    leave_queue,
    note_completeness,
    queue_up,
    tell_to_leave,
)
from phalanx.core.cluster.apply.overlay import end_use
from phalanx.core.cluster.apply.workflows import note_over
from phalanx.core.cluster.conditions import Condition, preemptor
from phalanx.core.cluster.decision import Effect, Settle, WaitAgain, go_orders
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.nodes import Unfit
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.units import Formation, Promise
from phalanx.core.model.orders import AttemptKey, Status, Why

SCHEDULER = "phalanx"


def released(state: ClusterState, event: e.GangReleased) -> list[Effect]:
    job = state.job(event.job)
    release(state, job, event.formation, event.at)
    return go_orders(job)


def withdrawn(state: ClusterState, event: e.PromiseWithdrawn) -> None:
    job = state.job(event.job)
    drop_promise(state, job)
    queue_up(state, job)


def evicted(state: ClusterState, event: e.TasksEvicted) -> list[Effect]:
    return _asked_to_leave(state, event.keys, event.text, event.at, preempted=False)


def join_formation(state: ClusterState, job: JobState, position: int, number: int, at: float) -> None:
    """A member was placed: it waits at the barrier, and its gang for nobody else unless it may hold a part."""
    assert job.gang is not None
    if job.forming is None:
        job.forming = Formation(number, at)
        job.formations = max(job.formations, number)
        state.forming[job.job.id] = None
    job.forming.positions.add(position)
    if job.gang.gang.strict:
        state.waiting.discard(job.gang)
        return
    note_completeness(state, job)
    queue_up(state, job)


def ready(state: ClusterState, event: e.AttemptReady) -> None:
    job = state.job(event.key[0])
    attempt = state.live(event.key)
    attempt.ready = True
    attempt.suspicions = 0
    if attempt.preparing:
        attempt.preparing, attempt.prepared_at = False, event.at
    if job.forming is not None:
        job.forming.ready.add(event.key[1])


def release(state: ClusterState, job: JobState, formation: int, at: float) -> None:
    """Members of a formation may run, and its job counts as having started whole."""
    for attempt in job.live.values():
        if attempt.formation == formation:
            attempt.released = True
            if attempt.started_at is None:
                attempt.since = at  # from now on nothing keeps it from starting
    job.satisfied = True
    job.recalls = 0
    end_forming(state, job)
    queue_up(state, job)


def recalled(state: ClusterState, event: e.GangRecalled) -> list[Effect]:
    job = state.job(event.job)
    orders: list[Effect] = [
        tell_to_leave(state, job, attempt, Why.RECALLED, event.at)
        for attempt in job.live.values()
        if attempt.formation == event.formation and not attempt.released
    ]
    job.recalls += 1
    end_forming(state, job)
    back_off(state, job, event.retry_at, event.at)
    queue_up(state, job)
    return orders


def promised(state: ClusterState, event: e.RoomPromised) -> list[Effect]:
    job = state.job(event.job)
    rows = [(state.node(node).row, grant) for _, node, grant in event.members]
    for each in [*(state.job(id) for id in event.displaced), job]:
        drop_promise(state, each)
        queue_up(state, each)
    if any(not state.table.ledgers[row].devices_promised.isdisjoint(grant.devices) for row, grant in rows):
        raise Unfit(f"{event.job} is promised what an older promise still seems to hold")
    members = {position: (node, grant) for position, node, grant in event.members}
    for position in members:  # in a replay their backoff may not have been noticed to end
        if position in job.delayed:
            job.wait_again(position)
    job.hold_until = 0.0
    victims = {key for key in (*event.victims, *event.awaited) if state.attempt(key) is not None}
    job.promise = Promise(members, victims, event.trigger, event.until, event.at)
    keep_for(state, job, event.at)
    leave_queue(state, job)
    text = eviction_text(job, event.trigger, job.arrival)
    return _asked_to_leave(state, event.victims, text, event.at, preempted=True)


def eviction_text(job: JobState, trigger: int, number: int) -> str:
    """What a victim is told: for whom it leaves. Of objects of Kubernetes, in Koordinator's words."""
    spec = job.job
    if not spec.object_name:
        return f"{SCHEDULER}: preempted to make room for {preemptor(spec, number)}"
    return (
        f"{SCHEDULER}: preempting to accommodate higher priority pods, preemptor: {spec.object_name}, "
        f"triggerpod: {spec.task_name(trigger)}"
    )


def _asked_to_leave(
    state: ClusterState, keys: tuple[AttemptKey, ...], text: str, at: float, *, preempted: bool
) -> list[Effect]:
    orders: list[Effect] = []
    for key in keys:
        attempt = state.attempt(key)
        if attempt is not None:
            job = state.jobs[key[0]]
            orders.append(tell_to_leave(state, job, attempt, Why.EVICTED, at))
            job.note_condition(key[1], Condition(at, text, preempted))
    for id in dict.fromkeys(key[0] for key in keys):
        if (left := state.jobs.get(id)) is not None and left.gang is not None:
            if left.forming is not None:
                note_completeness(state, left)
            queue_up(state, left)  # without those that leave it wants more, or cannot be whole
    return orders


def restarted(state: ClusterState, event: e.JobRestarted) -> list[Effect]:
    job = state.job(event.job)
    scope = range(len(job.status)) if event.positions is None else event.positions
    orders: list[Effect] = [
        tell_to_leave(state, job, attempt, Why.RESTARTED, event.at)
        for position, attempt in job.live.items()
        if position in scope
    ]
    again = [each for each in sorted(job.done) if each in scope]
    if again:
        orders.append(WaitAgain(job.job.id, len(again)))
    for position in again:
        job.done.discard(position)
        job.move(position, Status.PENDING)
        job.wait_again(position)
    if event.counted:
        job.restarts += 1
    else:
        job.setbacks += 1
    if event.positions is None:
        job.satisfied = False
        job.restarting = bool(job.live)
    drop_promise(state, job)
    if event.positions is None:  # members of other replicas still wait at the barrier for each other
        end_forming(state, job)
    back_off(state, job, event.retry_at, event.at)
    queue_up(state, job)
    return orders


def settled(state: ClusterState, event: e.JobSettled) -> list[Effect]:
    job = state.job(event.job)
    if job.is_over:
        job.outcome = event.status
        tell_dependents(state, job)
        return []
    why, others = _REST[event.status]
    if job.awaits:  # it never started
        why, job.details[0] = Why.DEPENDENCY, (event.text, "")
    elif job.approve_by is not None:  # it was denied, or nobody approved it in time
        job.details[0] = (event.text, "")
    own = None if event.culprit is None else Why(job.why[event.culprit])
    orders, rest = end_rest(state, job, others, why, event.at)
    if event.culprit is not None and own is not None and event.status == Status.FAILED:
        job.why[event.culprit] = own  # its end is its own, not the job's
        job.first_code = job.exit_code(event.culprit) if job.first_code is None else job.first_code
    job.outcome = event.status
    return orders + over(state, job, event.at, rest)


# What becomes of the tasks that have not ended when their job does, and why.
_REST = {
    Status.COMPLETED: (Why.JOB_DONE, Status.CANCELLED),
    Status.FAILED: (Why.JOB_FAILED, Status.FAILED),
    Status.CANCELLED: (Why.CANCELLED, Status.CANCELLED),
}


Rest = tuple[int, int, int]  # how many tasks ended so: Completed, Failed, Cancelled


def end_rest(
    state: ClusterState, job: JobState, status: Status, why: Why, at: float
) -> tuple[list[Effect], Rest]:
    """Whatever of a job has not ended gets one same end; what is on a node is told to stop."""
    ended = job.counts[Status.COMPLETED :]
    orders: list[Effect] = [tell_to_leave(state, job, each, why, at) for each in job.live.values()]
    drop_promise(state, job)
    end_forming(state, job)
    job.settle_unfinished(status, why)
    leave_queue(state, job)
    completed, failed, cancelled = (
        now - before for now, before in zip(job.counts[Status.COMPLETED :], ended, strict=True)
    )
    return orders, (completed, failed, cancelled)


def over(
    state: ClusterState, job: JobState, at: float, rest: Rest = (0, 0, 0), told_at: float | None = None
) -> list[Effect]:
    """Every task of a job has ended. Ends are told late and not in their order: it ended when the last of them did."""
    last = max(job.times[1::2]) if job.times else at
    job.ended_at = max(at, last)
    state.end_job(job)
    end_use(state, job, at if told_at is None else told_at)  # nodes' clocks may be wrong by any amount
    state.leave_dependencies(job)
    tell_dependents(state, job)
    if job.job.workflow is not None:
        note_over(state, job)
    elif job.job.dispatch is not None:
        unbind(state, job.job.id)
    return [Settle(job.job.id, None, rest=rest)]
