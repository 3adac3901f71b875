"""Places: what an attempt holds on its node, which ones have to leave, and which may wait for a place again.

Lanes, the node table, the tenants' columns and the queues' usage change together here, so that no two of them can
disagree about who holds what.
"""

from __future__ import annotations

from heapq import heappush

from msgspec import structs

from phalanx.core.cluster.apply.overlay import end_use, rest
from phalanx.core.cluster.decision import Send
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import BACKOFF, BEGIN, STALE_MAX, ClusterState
from phalanx.core.cluster.units import Attempt
from phalanx.core.model.job import JobId
from phalanx.core.model.lanes import Lane
from phalanx.core.model.orders import Stop, Why
from phalanx.core.model.tenants import NEVER, Tenant


def open_lane(state: ClusterState, job: JobState, attempt: Attempt, at: float) -> Lane:
    """A lane with the attempt's grant, held from now on."""
    node = state.nodes[attempt.node]
    state.table.take(node.row, attempt.grant)
    if attempt.grant.address:
        state.overlay.hold(attempt.grant.address, attempt.node, job.job.user)
    if state.rules.overlay.is_on:
        state.overlay.came(attempt.node, job.job.user)
    state.queues.take(job.job.queue_user, attempt.grant)
    lane = Lane(attempt.lane, attempt.node, attempt.grant, job.groups[attempt.group].lanes)
    node.lanes[attempt.lane] = lane
    node.next_lane, node.idle_since = attempt.lane + 1, None
    state.tenants.add(tenant(job, attempt, at))
    if job.gang is not None:
        state.tenants.needed[job.job.id] = tuple(group.needed for group in job.job.groups)
    return lane


def share_lanes(state: ClusterState, job: JobState) -> None:
    """Let a job that may share lanes with others of its kind do so."""
    pool = state.pools.of(job.job)
    if pool is not None:
        job.groups[0].share_lanes(pool)


def tenant(job: JobState, attempt: Attempt, at: float) -> Tenant:
    """What placement may know of the holder of a lane."""
    spec = job.job
    limit = spec.time_limit_s
    return Tenant(
        (attempt.node, attempt.lane),
        spec.id,
        spec.queue,
        attempt.group,
        attempt.row,
        attempt.grant,
        spec.priority,
        at + spec.min_run_s if spec.evictable else NEVER,
        at + limit if limit is not None else NEVER,
        at,
        affinity=spec.gang.affinity if spec.gang else "",
        user=spec.user,
    )


def note_start(state: ClusterState, job: JobState, attempt: Attempt, at: float) -> None:
    """Its time limit and its protection count from its real start."""
    counts = job.job.time_limit_s is not None or job.job.min_run_s
    if counts and attempt.ending is None and state.tenants.get((attempt.node, attempt.lane)) is not None:
        state.tenants.replace(tenant(job, attempt, at))


def tell_to_leave(state: ClusterState, job: JobState, attempt: Attempt, why: Why, at: float) -> Send:
    """Mark an attempt as being stopped, for its first reason, and give the order. Nobody need evict it again."""
    job.mark(attempt, why)
    assert attempt.ending is not None
    lane = state.nodes[attempt.node].lanes[attempt.lane]
    held = state.tenants.get((attempt.node, attempt.lane))
    grace_s = 0.0 if why == Why.RECALLED else job.job.grace_s
    all_leave = _all_leave(state, lane)
    if why == Why.EVICTED or all_leave:
        lane.is_slow = True  # nobody queues where all have to leave: the place is soon another's
    if held is not None and all_leave:
        leaving = structs.replace(held, evictable_at=NEVER, ends_at=at + grace_s, is_leaving=True)
        state.tenants.replace(leaving)
    return Send(attempt.node, Stop(attempt.key, attempt.ending, grace_s))


def end_attempt(state: ClusterState, job: JobState, attempt: Attempt, at: float) -> None:
    """The attempt is over; its lane's grant too, if it was the last in it."""
    node = state.nodes[attempt.node]
    lane = node.lanes[attempt.lane]
    del node.attempts[attempt.key]
    job.leave(attempt)
    del lane.attempts[attempt.key]
    if not lane.attempts:
        del node.lanes[attempt.lane]
        lane.close()
        state.table.give_back(node.row, attempt.grant)
        state.queues.give_back(job.job.queue_user, attempt.grant)
        state.tenants.remove((attempt.node, attempt.lane))
        if job.gang is not None and job.job.id not in state.tenants.of_job:
            state.tenants.needed.pop(job.job.id, None)
        if state.rules.overlay.is_on:
            state.overlay.went(attempt.node, job.job.user)
        if attempt.grant.address:
            state.overlay.leave(attempt.grant.address)
            rest(state, attempt.node, attempt.grant.address, at)
            end_use(state, job, at)
        state.gain += 1
        if not node.lanes:
            node.idle_since = at
    else:
        _pass_on(state, lane, at)
    if job.forming is not None:
        job.forming.positions.discard(attempt.key[1])
        job.forming.ready.discard(attempt.key[1])
        if not job.forming.positions:
            end_forming(state, job)
        else:
            note_completeness(state, job)
    if job.restarting and not job.live:
        job.restarting = False
    if attempt.merged:
        _part(state, attempt)
    _nobody_left(state, attempt)


def merge(state: ClusterState, attempt: Attempt, children: tuple[JobId, ...]) -> None:
    """These jobs run as a part of an attempt of another, and are not placed by themselves meanwhile."""
    attempt.merged = children
    for id in children:
        job = state.job(id)
        job.merged_into = attempt.key
        queue_up(state, job)


def restore_merged(state: ClusterState) -> None:
    """Who runs as a part of which attempt follows from the attempts of an image."""
    for node in state.nodes.values():
        for attempt in node.attempts.values():
            for id in attempt.merged:
                if (job := state.jobs.get(id)) is not None and not job.is_over:
                    job.merged_into = attempt.key


def _part(state: ClusterState, attempt: Attempt) -> None:
    """An attempt is over, so what ran as a part of it waits again."""
    for id in attempt.merged:
        job = state.jobs.get(id)
        if job is not None and job.merged_into == attempt.key:
            job.merged_into = None
            queue_up(state, job)


def _pass_on(state: ClusterState, lane: Lane, at: float) -> None:
    """An attempt of a lane has ended and others are left: the lane is held by the job of the first of them."""
    first = state.attempt(next(iter(lane.attempts)))
    held = state.tenants.get((lane.node, lane.id))
    if first is None or held is None:  # only after a damaged record
        return
    is_leaving = held.is_leaving or (first.ending is not None and _all_leave(state, lane))
    if held.job == first.key[0] and held.is_leaving == is_leaving:
        return
    holder = tenant(state.jobs[first.key[0]], first, at)
    if is_leaving:
        lane.is_slow = True
        holder = structs.replace(holder, evictable_at=NEVER, ends_at=min(held.ends_at, at), is_leaving=True)
    state.tenants.replace(holder)


def _all_leave(state: ClusterState, lane: Lane) -> bool:
    """Whether every attempt of a lane was told to leave: of several, one alone may be cancelled."""
    attempts = (state.attempt(key) for key in lane.attempts)
    return all(each is None or each.ending is not None for each in attempts)


def end_forming(state: ClusterState, job: JobState) -> None:
    """No member waits at the barrier any more."""
    job.forming = None
    state.forming.pop(job.job.id, None)
    state.incomplete.discard(job.job.id)


def note_completeness(state: ClusterState, job: JobState) -> None:
    """Whether a formation that may hold a part holds all that it needs by now."""
    if job.gang is None or job.gang.gang.strict:
        return
    (state.incomplete.discard if job.gang.is_whole else state.incomplete.add)(job.job.id)


def queue_up(state: ClusterState, job: JobState) -> None:
    """Let what is ready of a job wait for a place, and only that."""
    if job.is_over:
        leave_queue(state, job)
        return
    for unit in job.units:
        if unit.has_ready:
            state.waiting.add(unit)
        else:
            state.waiting.discard(unit)


def leave_queue(state: ClusterState, job: JobState) -> None:
    for unit in job.units:
        state.waiting.discard(unit)


def back_off(state: ClusterState, job: JobState, until: float, now: float) -> None:
    """Nothing of the job is placed before `until`."""
    if until > now:
        job.hold_until = until
        heappush(state.retries, (until, job.job.id, BACKOFF))


def wait_to_begin(state: ClusterState, job: JobState, now: float) -> None:
    """Nothing of the job is placed before the instant that it is to begin at."""
    job.begins_at = job.job.begin_at if job.job.begin_at > now else 0.0
    if job.begins_at:
        heappush(state.retries, (job.begins_at, job.job.id, BEGIN))
        if len(state.retries) > state.retries_most:
            _drop_stale(state)


def _drop_stale(state: ClusterState) -> None:
    """Forget instants that others have replaced: who changes a job's begin a million times leaves one."""

    def counts(at: float, id: JobId, position: int) -> bool:
        job = state.jobs.get(id)
        if job is None:
            return False
        if position >= 0:
            return job.delayed.get(position) == at
        return at == (job.begins_at if position == BEGIN else job.hold_until)

    state.retries = sorted({each for each in state.retries if counts(*each)})
    state.retries_most = max(STALE_MAX, 2 * len(state.retries))


def hold_back(state: ClusterState, job: JobState, because: str, user: str = "") -> None:
    """Nothing of the job is placed until somebody releases it. What runs goes on."""
    drop_promise(state, job)
    job.held_because, job.held_by = because, user
    queue_up(state, job)


def keep_for(state: ClusterState, job: JobState, at: float) -> None:
    """Set the places of the job's promise aside."""
    assert job.promise is not None
    for position, (node, grant) in job.promise.members.items():
        row = state.nodes[node].row
        state.table.promise(row, grant)
        state.queues.take(job.job.queue_user, grant)
        state.tenants.add(
            Tenant(
                (job.job.id, position),
                job.job.id,
                job.job.queue,
                job.group_of(position).number,
                row,
                grant,
                job.job.priority,
                at if job.job.evictable else NEVER,
                NEVER if job.job.time_limit_s is None else at + job.job.time_limit_s,
                at,
                is_promise=True,
                user=job.job.user,
            )
        )
    state.promised[job.job.id] = None


def drop_promise(state: ClusterState, job: JobState) -> None:
    """The places set aside for the job are free for all again."""
    if job.promise is None:
        return
    for position, (node, grant) in job.promise.members.items():
        state.table.withdraw(state.nodes[node].row, grant)
        state.queues.give_back(job.job.queue_user, grant)
        state.tenants.remove((job.job.id, position))
    job.promise = None
    del state.promised[job.job.id]
    state.gain += 1


def _nobody_left(state: ClusterState, attempt: Attempt) -> None:
    """Whoever waited for this attempt to leave need not any more."""
    for _, promise in state.promises() if state.promised else ():
        promise.victims.discard(attempt.key)
