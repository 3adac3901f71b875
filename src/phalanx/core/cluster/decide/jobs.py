"""Choices about what users want: which jobs are accepted, which placements stand, what a cancel does."""

from __future__ import annotations

from msgspec import structs

from phalanx.core.cluster import dispatch_events as d
from phalanx.core.cluster import events as e
from phalanx.core.cluster.change_events import JobHeld
from phalanx.core.cluster.decide.applied_objects import applied_before
from phalanx.core.cluster.decide.approvals import needed_again, needed_until
from phalanx.core.cluster.decide.closed_nodes import why_closed
from phalanx.core.cluster.decide.dependencies import never_after
from phalanx.core.cluster.decide.endings import is_all_done, outcome_of_others, recalled
from phalanx.core.cluster.decide.environments import environments_kept, without_environment
from phalanx.core.cluster.decide.gangs import STALE, placed
from phalanx.core.cluster.decide.limits import too_many
from phalanx.core.cluster.decide.merging import may_merge
from phalanx.core.cluster.decide.overlay import with_reservation
from phalanx.core.cluster.decision import Accepted, Decision, Refused, refuse, refuse_because
from phalanx.core.cluster.environments import digests_of
from phalanx.core.cluster.inputs import Cancel, Defer, Propose, SetPaused, Submit
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.repairs import awaits_repair
from phalanx.core.cluster.stage_dispatch import dispatch_of, mode_of
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model import reason
from phalanx.core.model.dispatch import TASK_TYPE_TAG, checked
from phalanx.core.model.job import Group, Job
from phalanx.core.model.orders import Status
from phalanx.core.model.plan import Placement
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.resources import Request

_UNWELCOME = {"QueueNotFound": "bad", "QueueNotAllowed": "forbidden", "PriorityTooHigh": "range"}


def submit(state: ClusterState, given: Submit, now: float) -> Decision:
    """Accept a job, or say why it can never run here (or, with `no_queue`, not now)."""
    job, amends = given.job, given.amends is not None
    if given.ip_digest:
        reserved = with_reservation(state, given, now)
        if isinstance(reserved, Refused):
            return Decision([], [], reserved)
        job, given = reserved, structs.replace(given, job=reserved)
    if given.amends is not None and (refused := _why_not_amended(state, job, given.amends)) is not None:
        return refused
    if job.repeats and len(state.repeated.get(job.repeats, ())) != given.retries:
        return refuse_because("RetriedMeanwhile", "others retried it meanwhile", tier=Tier.PROGRESS)
    if job.applied and (known := applied_before(state, job, amends=amends)) is not None:
        return Decision([], [], known)
    if (no := too_many(state, job, amends=amends)) is not None:
        return refuse(no, "too_many")
    named = tuple(digests_of(job))
    if (refused := without_environment(state, job.user, named, given.environments)) is not None:
        return refused
    if (never := never_after(state, job)) is not None:
        return Decision([], [], never)
    if given.role and (no_entry := unwelcome(state, job, given.role)) is not None:
        return Decision([], [], no_entry)
    if given.no_queue and (no := _why_away(state, job)) is not None:  # asked first, as KohakuRiver does
        return refuse(no, "busy")
    no = None if given.allow_infeasible else (given.never or why_never(state, job))
    if no is not None:
        return refuse(no, "target" if reason.is_about_target(no) else "never")
    if (asked := dispatch_of(state, job, dict(job.tags).get(TASK_TYPE_TAG, ""))) is not None:
        job = structs.replace(job, dispatch=asked)
    cause = f"user {job.user}"
    kept = environments_kept(state, job.user, named, given.environments, now)
    if amends:
        whole = _amended(state.jobs[job.id].job, job)
        until = needed_again(state, whole, given.role, now)
        event = e.JobAmended(at=now, cause=cause, job=whole, request_id=given.request_id, approve_by=until)
        return Decision([*kept, event], [], Accepted(job.tasks))
    number, request = state.next_number(), given.request_id
    until = needed_until(state, job, given.role, now)
    submitted = e.JobSubmitted(
        at=now, cause=cause, job=job, request_id=request, number=number, approve_by=until
    )
    if given.no_queue:
        if until is not None:
            text = f"queue {job.queue} requires approval: omit no_queue"
            return refuse_because("WaitingApproval", text, "bad")
        return _at_once(state, given, [*kept, submitted], now)
    held = [JobHeld(at=now, cause=cause, job=job.id, because=f"by {job.user}", user=job.user)]
    return Decision([*kept, submitted, *(held if given.hold else [])], [], Accepted(job.tasks))


def _at_once(state: ClusterState, given: Submit, kept: list[e.Event], now: float) -> Decision:
    """A job that is placed now or not at all."""
    job, found = given.job, given.placement
    if job.tasks != 1:
        text = f"no_queue is for a single task, and this array has {job.tasks}"
        return refuse(Reason("ArrayNeedsQueue", Tier.NEVER, text, {"tasks": job.tasks}), "bad")
    if found is None:
        return refuse(why_not_now(state, job), "busy" if job.groups[0].request.target else "no_room")
    lane = state.nodes[found.node].next_lane
    start = placed(found, (found.job, found.position, 1), lane, now, "no_queue")
    return Decision([*kept, start], [], Accepted(1))


def unwelcome(state: ClusterState, job: Job, role: str) -> Refused | None:
    """Why a job may not join its queue: not declared, for others, or its priority is too high; else None."""
    no = state.queues.unwelcome(job, role)
    return None if no is None else Refused(no, _UNWELCOME[no.code])


def _why_not_amended(state: ClusterState, job: Job, version: int) -> Decision | None:
    """Why a gang cannot be amended, or None if it can."""
    old = state.jobs.get(job.id)
    if old is None or old.job.draft is None or old.is_over:
        ended = ": it has ended" if old is not None and old.is_over else ""
        return refuse_because("NotAmendable", f"{job.id} is not waiting for members{ended}")
    if old.job.user != job.user:
        text = f"{job.id} belongs to {old.job.user}, and only its user may add members"
        return refuse_because("NotAmendable", text)
    if old.counts[Status.PENDING] != old.job.tasks:
        text = f"a member of {job.id} was cancelled: cancel the whole gang and apply all of it again"
        return refuse_because("NotAmendable", text)
    if old.job.draft.version != version:
        text = f"others have added members to {job.id} in the meantime; read it again"
        return refuse_because("Amended", text, tier=Tier.PROGRESS)
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
        return STALE
    if node is None or not node.takes_work_of(job.job) or not job.is_ready(placement.position):
        return STALE
    if placement.lane is None:
        if not state.table.ledgers[node.row].has_room(placement.grant):
            return STALE
        if state.queues.refuses(job.job.queue_user, (placement.grant,), ()):
            return STALE
    elif not _takes_more(job, placement):
        return STALE
    if placement.merged and not may_merge(state, job, placement.merged):
        return STALE
    key = (placement.job, placement.position, job.attempts[placement.position] + 1)
    lane = node.next_lane if placement.lane is None else placement.lane
    return Decision([placed(placement, key, lane, now, "plan")], [], Accepted())


def defer(state: ClusterState, given: Defer, now: float) -> Decision:
    """A stage waits for its sticky node: that is recorded when it begins, and costs it nothing."""
    job = state.jobs.get(given.job)
    asked = None if job is None else job.job.dispatch
    if asked is None or not asked.waits_for_sticky or given.job in state.bindings.deferred:
        return Decision([], [], Accepted())
    return Decision([d.TaskDeferred(at=now, cause="plan", job=given.job, node=asked.sticky)], [], Accepted())


def _takes_more(job: JobState, placement: Placement) -> bool:
    """Whether a task may be queued in a lane: it is one of its group or of its pool, and need not be left."""
    assert placement.lane is not None
    lane = job.group_of(placement.position).lanes.get((placement.node, placement.lane))
    return lane is not None and not lane.is_slow and lane.grant == placement.grant


def cancel(state: ClusterState, given: Cancel, now: float) -> Decision:
    """Cancel what has not ended. Whatever is on a node is told to stop, again if it was told before."""
    job = state.jobs.get(given.job)
    if job is None:
        return refuse_because("NotFound", f"no job {given.job}", "not_found")
    if job.is_over or (given.position is not None and Status(job.status[given.position]).is_final):
        what = "job " + given.job if given.position is None else f"task {job.job.task_id(given.position)}"
        return refuse_because("AlreadyEnded", f"{what} has already ended")
    if given.position is not None and (no := _needed_by_gang(job, given.position)) is not None:
        return refuse(no)
    if given.position is None:
        count, live = sum(job.counts[:3]) - len(job.done), len(job.live)  # who has done its part is Completed
    else:
        count, live = 1, int(given.position in job.live)
    positions = None if given.position is None else (given.position,)
    events: list[e.Event] = [
        e.TasksCancelled(at=now, cause=given.cause, job=given.job, positions=positions, by=given.by)
    ]
    if positions is not None and job.forming is not None and given.position in job.forming.positions:
        events.insert(0, recalled(state, job, now, given.cause, "one of its members was cancelled"))
    if given.position is not None and not live and is_all_done(job, given.position):
        status = outcome_of_others(job, Status.CANCELLED)
        text = "all that is left of it has done its work"
        events.append(e.JobSettled(at=now, cause=given.cause, job=given.job, status=status, text=text))
    return Decision(events, [], Accepted(count, live))


def set_paused(state: ClusterState, given: SetPaused, now: float) -> Decision:
    """Pause or resume a running task, which keeps all that it holds."""
    job, at = state.jobs.get(given.job), given.position
    attempt = None if job is None or at is None else job.live.get(at)
    is_paused = attempt is not None and bool(attempt.paused)
    if job is None or at is None or attempt is None or job.status[at] != Status.RUNNING:
        return refuse_because("NotRunning", "only a running task can be paused or resumed")
    if is_paused == given.paused:
        code, word = ("AlreadyPaused", "already paused") if given.paused else ("NotPaused", "not paused")
        return refuse_because(code, f"it is {word}", "bad")
    kind = e.TaskPaused if given.paused else e.TaskResumed
    return Decision([kind(at=now, cause="user", key=attempt.key)], [], Accepted())


def why_never(state: ClusterState, job: Job, *, is_stage: bool = False) -> Reason | None:
    """Why one task of some group of this job could never be held by any node, or None if all could."""
    mode = mode_of(state, job, is_stage=is_stage)
    for group in job.groups:
        count = group.needed if job.gang is not None else 1
        no = _never(state, checked(group.request, mode)) or state.queues.lacks(
            job.queue_user, [(ever_counted(state, job, group), count)], ever=True
        )
        if no is not None:
            return no
    return None


def ever_counted(state: ClusterState, job: Job, group: Group) -> Request:
    """What the limits of its queue count for one task of a job, if nothing were used."""
    left = state.queues.free(job.queue_user, ever=True) if group.request.exclusive else ()
    return state.table.counted(group.request, left)


def _never(state: ClusterState, request: Request) -> Reason | None:
    for name in (*request.nodes, *request.exclude):
        if name not in state.table.rows:
            return reason.target_not_found(name, sorted(state.table.names))
    if request.target is not None:
        row = state.table.rows.get(request.target.host)
        if row is None:
            return reason.target_not_found(request.target.host, sorted(state.table.names))
        no = state.table.ledgers[row].never(request)
        return None if no is not None and awaits_repair(state, request) else no
    if not len(state.table) or state.table.could_ever(request) or awaits_repair(state, request):
        return None
    said = [
        (ledger.never(request), is_open)
        for ledger, is_open in zip(state.table, state.table.open, strict=True)
    ]
    return _nearest([(no, bool(is_open)) for no, is_open in said if no is not None])


def why_not_now(state: ClusterState, job: Job) -> Reason:
    """The first reason, in the order of `Ledger.fit`, why one task of this job cannot start at once."""
    request = job.groups[0].request
    quota = state.queues.lacks(job.queue_user, [(request, 1)])
    if request.target is None:
        no_room = Reason("WaitingCapacity", Tier.CAPACITY, "No suitable node available for this task.")
        return quota or _why_all_closed(state, request) or no_room
    node = state.nodes.get(request.target.host)
    if node is None:  # only with allow_infeasible does a job get here whose node has never been seen
        return reason.target_not_found(request.target.host, sorted(state.table.names))
    if (no := why_closed(node)) is not None:
        return no
    answer = state.table.ledgers[node.row].fit(request)
    return answer if isinstance(answer, Reason) else quota or reason.evaluating()


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


def _nearest(reasons: list[tuple[Reason, bool]]) -> Reason:
    """Of several nodes' no, the one that asks for the smallest change: most available against what is wanted.

    That of a node without the labels only if no node has them, that of one that takes no work only if no other says so.
    """

    def gap(said: tuple[Reason, bool]) -> tuple[bool, bool, float]:
        no, is_open = said
        wanted, total = no.numbers.get("wanted", 1), no.numbers.get("total", 0)
        return "lacking" in no.numbers, not is_open, float(wanted) / max(float(total), 0.5)

    best, _ = min(reasons, key=gap)
    text = f"No node can hold this, even when empty; closest: {best.text}"
    return Reason(best.code, Tier.NEVER, text, best.numbers)


def _needed_by_gang(job: JobState, position: int) -> Reason | None:
    """Why a single member cannot be cancelled: its gang would be too small ever to start or go on."""
    group = job.group_of(position)
    if job.gang is None:
        return None
    left = job.left_in(group) - 1
    if left >= group.group.needed:
        return None
    text = (
        f"{job.job.task_id(position)} is needed by its gang ({group.group.needed} of {group.group.tasks} must run); "
        f"cancel the whole job: phalanx cancel {job.job.id}"
    )
    return Reason("NeededByGang", Tier.NEVER, text, {"needed": group.group.needed, "left": left})
