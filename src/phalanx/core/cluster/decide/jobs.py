"""Choices about what users want: which jobs are accepted, which placements stand, what a cancel does."""

from __future__ import annotations

from msgspec import structs

from phalanx.core.cluster import events as e
from phalanx.core.cluster.decide.applied_objects import applied_before
from phalanx.core.cluster.decide.endings import is_all_done, outcome_of_others, recalled
from phalanx.core.cluster.decision import Accepted, Decision, Refused
from phalanx.core.cluster.inputs import Cancel, Propose, SetPaused, Submit
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState, NodeState
from phalanx.core.model import reason
from phalanx.core.model.job import Job
from phalanx.core.model.plan import Placement
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.resources import Request
from phalanx.core.model.status import Status

USER_TASKS_MIN = 1000


def submit(state: ClusterState, given: Submit, now: float) -> Decision:
    """Accept a job, or say why it can never run here (or, with `no_queue`, not now)."""
    job = given.job
    if given.amends is not None and (no := _why_not_amended(state, job, given.amends)) is not None:
        return _refuse(no, "conflict")
    if (known := applied_before(state, job, amends=given.amends is not None)) is not None:
        return Decision([], [], known)
    added = job.tasks - (0 if given.amends is None else state.jobs[job.id].job.tasks)
    if state.counts[Status.PENDING] + added > state.rules.pending_max:
        return _refuse(_queue_full(state), "too_many")
    if (held := state.tasks_of.get(job.user, 0)) + added > _user_share(state):
        return _refuse(_user_has_enough(state, job.user, held), "too_many")
    if given.priority_max is not None and (refused := unwelcome(state, job, given.priority_max)) is not None:
        return Decision([], [], refused)
    if given.no_queue and (no := _why_away(state, job)) is not None:  # asked first, as KohakuRiver does
        return _refuse(no, "busy")
    no = None if given.allow_infeasible else (given.never or why_never(state, job))
    if no is not None:
        return _refuse(no, "target" if reason.is_about_target(no) else "never")
    if given.amends is not None:
        whole = _amended(state.jobs[job.id].job, job)
        event = e.JobAmended(at=now, cause=f"user {job.user}", job=whole, request_id=given.request_id)
        return Decision([event], [], Accepted(job.tasks))
    accepted: list[e.Event] = [
        e.JobSubmitted(at=now, cause=f"user {job.user}", job=job, request_id=given.request_id)
    ]
    if given.no_queue:
        if job.tasks != 1:
            return _refuse(_array_needs_queue(job), "bad")
        if given.placement is None:
            return _refuse(why_not_now(state, job), "busy" if job.groups[0].request.target else "no_room")
        accepted.append(_placed(state, given.placement, 1, now, "no_queue"))
    return Decision(accepted, [], Accepted(job.tasks))


def unwelcome(state: ClusterState, job: Job, priority_max: int) -> Refused | None:
    """Why a job may not join its queue: nobody declared it, or its priority is too high; None if it may."""
    no = state.queues.unwelcome(job.queue, job.priority, priority_max)
    return None if no is None else Refused(no, "range" if no.code == "PriorityTooHigh" else "bad")


def _why_not_amended(state: ClusterState, job: Job, version: int) -> Reason | None:
    """Why a gang cannot be amended, or None if it can."""
    old = state.jobs.get(job.id)
    if old is None or old.job.draft is None or old.is_over:
        text = f"{job.id} is not waiting for members" + (
            "" if old is None or not old.is_over else ": it has ended"
        )
        return Reason("NotAmendable", Tier.NEVER, text)
    if old.job.user != job.user:
        return Reason(
            "NotAmendable",
            Tier.NEVER,
            f"{job.id} belongs to {old.job.user}, and only its user may add members",
        )
    if old.counts[Status.PENDING] != old.job.tasks:
        text = f"a member of {job.id} was cancelled: cancel the whole gang and apply all of it again"
        return Reason("NotAmendable", Tier.NEVER, text)
    if old.job.draft.version != version:
        return Reason(
            "Amended", Tier.PROGRESS, f"others have added members to {job.id} in the meantime; read it again"
        )
    return None


def _amended(old: Job, job: Job) -> Job:
    """The gang with what has come, known as before."""
    draft = job.draft
    if draft is not None and old.draft is not None:
        draft = structs.replace(draft, version=old.draft.version + 1)
    return structs.replace(job, batch=old.batch, submitted_at=old.submitted_at, draft=draft)


def propose(state: ClusterState, given: Propose, now: float) -> Decision:
    """A plan may be stale by the time it arrives, so everything is checked again here."""
    placement = given.placement
    job, node = state.jobs.get(placement.job), state.nodes.get(placement.node)
    if job is None or job.gang is not None or job.is_held:
        return _refuse(reason.evaluating(), "stale")
    if node is None or not node.takes_work or not job.is_ready(placement.position):
        return _refuse(reason.evaluating(), "stale")
    if placement.lane is None:
        if not state.table.ledgers[node.row].has_room(placement.grant):
            return _refuse(reason.evaluating(), "stale")
    elif (job.job.id, placement.lane) != _owner(node, placement.lane) or node.lanes[placement.lane].is_slow:
        return _refuse(reason.evaluating(), "stale")
    number = job.attempts[placement.position] + 1
    return Decision([_placed(state, placement, number, now, "plan")], [], Accepted())


def cancel(state: ClusterState, given: Cancel, now: float) -> Decision:
    """Cancel what has not ended. Whatever is on a node is told to stop, again if it was told before."""
    job = state.jobs.get(given.job)
    if job is None:
        return _refuse(Reason("NotFound", Tier.NEVER, f"no job {given.job}"), "not_found")
    if job.is_over or (given.position is not None and Status(job.status[given.position]).is_final):
        return _refuse(_already_ended(job, given.position), "conflict")
    if given.position is not None and (no := _needed_by_gang(job, given.position)) is not None:
        return _refuse(no, "conflict")
    if given.position is None:
        count, live = sum(job.counts[:3]) - len(job.done), len(job.live)  # who has done its part is Completed
    else:
        count, live = 1, int(given.position in job.live)
    positions = None if given.position is None else (given.position,)
    events: list[e.Event] = [e.TasksCancelled(at=now, cause=given.cause, job=given.job, positions=positions)]
    if positions is not None and job.forming is not None and given.position in job.forming.positions:
        events.insert(0, recalled(state, job, now, given.cause, "one of its members was cancelled"))
    if given.position is not None and not live and is_all_done(job, given.position):
        status = outcome_of_others(job, Status.CANCELLED)
        text = "all that is left of it has done its work"
        events.append(e.JobSettled(at=now, cause=given.cause, job=given.job, status=status, text=text))
    return Decision(events, [], Accepted(count, live))


def set_paused(state: ClusterState, given: SetPaused, now: float) -> Decision:
    """Pause or resume a running task, which keeps all that it holds; or release a job that a repair held back.

    A paused task of a held job is resumed, and its job stays held.
    """
    job, at = state.jobs.get(given.job), given.position
    attempt = None if job is None or at is None else job.live.get(at)
    is_paused = attempt is not None and bool(attempt.paused)
    if job is not None and job.held_because and not given.paused and not job.is_over and not is_paused:
        return Decision([e.JobReleased(at=now, cause="user", job=given.job)], [], Accepted())
    if job is None or at is None or attempt is None or job.status[at] != Status.RUNNING:
        return _refuse(
            Reason("NotRunning", Tier.NEVER, "only a running task can be paused or resumed"), "conflict"
        )
    if is_paused == given.paused:
        word = "already paused" if given.paused else "not paused"
        return _refuse(
            Reason("NotPaused" if not given.paused else "AlreadyPaused", Tier.NEVER, f"it is {word}"), "bad"
        )
    kind = e.TaskPaused if given.paused else e.TaskResumed
    return Decision([kind(at=now, cause="user", key=attempt.key)], [], Accepted())


def why_never(state: ClusterState, job: Job) -> Reason | None:
    """Why one task of some group of this job could never be held by any node, or None if all could."""
    for group in job.groups:
        count = group.needed if job.gang is not None else 1
        no = _never(state, group.request) or state.queues.never(job.queue, group.request, count)
        if no is not None:
            return no
    return None


def _never(state: ClusterState, request: Request) -> Reason | None:
    if request.target is not None:
        row = state.table.rows.get(request.target.host)
        if row is None:
            return reason.target_not_found(request.target.host, sorted(state.table.names))
        return state.table.ledgers[row].never(request)
    if not len(state.table) or state.table.could_ever(request):
        return None
    reasons = [no for ledger in state.table if (no := ledger.never(request))]
    return _nearest(reasons)


def why_not_now(state: ClusterState, job: Job) -> Reason:
    """The first reason, in the order of `Ledger.fit`, why one task of this job cannot start at once."""
    request = job.groups[0].request
    quota = state.queues.refuses(job.queue, request)
    if request.target is None:
        return quota or _why_all_closed(state, request) or _no_suitable_node()
    node = state.nodes.get(request.target.host)
    if node is None:  # only with allow_infeasible does a job get here whose node has never been seen
        return reason.target_not_found(request.target.host, sorted(state.table.names))
    if (no := why_closed(node)) is not None:
        return no
    answer = state.table.ledgers[node.row].fit(request)
    return answer if isinstance(answer, Reason) else quota or reason.evaluating()


def _no_suitable_node() -> Reason:
    return Reason("WaitingCapacity", Tier.CAPACITY, "No suitable node available for this task.")


def _why_all_closed(state: ClusterState, request: Request) -> Reason | None:
    """Why every node that could hold this takes no work at all, or None if one of them does, or there is none."""
    able = [node for node in state.nodes.values() if state.table.ledgers[node.row].never(request) is None]
    said = [why_closed(node) for node in able]
    first = next(iter(said), None)
    if first is None or not all(said):
        return None
    if len(said) == 1:
        return first
    text = f"None of the {len(said)} nodes that could hold it takes work: {first.text}"
    return Reason(first.code, first.tier, text, first.numbers)


def _why_away(state: ClusterState, job: Job) -> Reason | None:
    """Why the node that a job names cannot be asked at all just now."""
    target = job.groups[0].request.target
    node = state.nodes.get(target.host) if target else None
    return None if node is None else why_closed(node)


def why_closed(node: NodeState) -> Reason | None:
    """Why a node takes no work at all, or None if it does."""
    if node.lost:
        return reason.offline(node.name)
    if node.drain_reason is not None:
        return reason.drained(node.name, node.drain_reason)
    if node.leaving:
        return reason.stopped(node.name)
    if not node.connected:
        return reason.unreachable(node.name)
    if node.trouble:
        return reason.unhealthy(node.name, node.trouble)
    if node.leftovers:
        return reason.quarantined(node.name, len(node.leftovers))
    if node.is_kept_away:
        return reason.resting(node.name, node.failures, node.rests_until or 0.0, node.rest_text)
    return None


def _placed(state: ClusterState, placement: Placement, number: int, now: float, cause: str) -> e.TaskPlaced:
    node = state.nodes[placement.node]
    opens = placement.lane is None
    return e.TaskPlaced(
        at=now,
        cause=cause,
        key=(placement.job, placement.position, number),
        node=placement.node,
        lane=node.next_lane if placement.lane is None else placement.lane,
        grant=placement.grant,
        opens=opens,
    )


def _owner(node: NodeState, lane_id: int) -> tuple[str, int] | None:
    lane = node.lanes.get(lane_id)
    if lane is None or not lane.attempts:
        return None
    return next(iter(lane.attempts))[0], lane_id


def _nearest(reasons: list[Reason]) -> Reason:
    """Of several nodes' no, the one that asks for the smallest change: most available against what is wanted."""

    def gap(no: Reason) -> float:
        wanted, total = no.numbers.get("wanted", 1), no.numbers.get("total", 0)
        return float(wanted) / max(float(total), 0.5)

    best = min(reasons, key=gap)
    text = f"No node can hold this, even when empty; closest: {best.text}"
    return Reason("ExceedsLargestNode", Tier.NEVER, text, best.numbers)


def _queue_full(state: ClusterState) -> Reason:
    text = f"{state.counts[Status.PENDING]} tasks are waiting, the maximum is {state.rules.pending_max}"
    return Reason("QueueFull", Tier.POLICY, text, {"limit": state.rules.pending_max})


def _user_share(state: ClusterState) -> int:
    """How many tasks one user's jobs that have not ended may have, so that others find room: half of what may wait."""
    return max(USER_TASKS_MIN, state.rules.pending_max // 2)


def _user_has_enough(state: ClusterState, user: str, held: int) -> Reason:
    most = _user_share(state)
    text = f"{user} has {held} unfinished tasks, the maximum per user is {most}"
    return Reason("QueueFull", Tier.POLICY, text, {"limit": most})


def _array_needs_queue(job: Job) -> Reason:
    text = f"no_queue is for a single task, and this array has {job.tasks}"
    return Reason("ArrayNeedsQueue", Tier.NEVER, text, {"tasks": job.tasks})


def _needed_by_gang(job: JobState, position: int) -> Reason | None:
    """Why a single member cannot be cancelled: its gang would be too small ever to start or go on."""
    group = job.group_of(position)
    if job.gang is None:
        return None
    status = job.status[group.first : group.last]
    left = group.group.tasks - status.count(Status.FAILED) - status.count(Status.CANCELLED) - 1
    if left >= group.group.needed:
        return None
    text = (
        f"{job.job.task_id(position)} is needed by its gang ({group.group.needed} of {group.group.tasks} must run); "
        f"cancel the whole job: phalanx cancel {job.job.id}"
    )
    return Reason("NeededByGang", Tier.NEVER, text, {"needed": group.group.needed, "left": left})


def _already_ended(job: JobState, position: int | None) -> Reason:
    what = f"job {job.job.id}" if position is None else f"task {job.job.task_id(position)}"
    return Reason("AlreadyEnded", Tier.NEVER, f"{what} has already ended")


def _refuse(no: Reason, kind: str) -> Decision:
    return Decision([], [], Refused(no, kind))
