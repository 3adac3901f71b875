"""Choices about members that are placed together: may they start there, may a promise be redeemed, who is evicted.

A plan may be stale by the time it arrives, so everything is checked again here, for all members at once: either
every one of them gets its place, or none does.

At the barrier no member's command runs before every member of its formation is ready. A runner that holds a member
there says so; with the last of them the formation is released, and only then is any member told to go. While the node
of a member is away nobody is released: it could not be told to go, and the others would start without it. A formation
that is not whole in time is recalled: its members give back their places, and none of them has run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from phalanx.core.cluster import events as e
from phalanx.core.cluster.conditions import preemptor
from phalanx.core.cluster.decide.endings import recalled
from phalanx.core.cluster.decision import Accepted, Decision, refuse, refuse_because
from phalanx.core.cluster.inputs import Evict, ProposeGang, Redeem
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.units import Attempt
from phalanx.core.model import reason
from phalanx.core.model.ledger import Ledger
from phalanx.core.model.orders import AttemptKey
from phalanx.core.model.plan import GangPlacement, Placement

STALE = refuse(reason.evaluating(), "stale")


def propose_gang(state: ClusterState, given: ProposeGang, now: float) -> Decision:
    """All members, or none; with victims, places are promised and the victims asked to leave in one step."""
    gang_placement = given.gang_placement
    job = state.jobs.get(gang_placement.job)
    if job is None or not gang_placement.members or not _may_be_placed(state, job, gang_placement):
        return STALE
    if gang_placement.is_promise:
        return _promise(state, job, gang_placement, now)
    if not _is_within_limits(state, job, gang_placement):
        return STALE
    if not _fits_after(state, gang_placement) or _would_be_second_part(state, job, gang_placement.members):
        return STALE
    return Decision(_placed(state, job, gang_placement.members, now, "plan", promised=False), [], Accepted())


def redeem(state: ClusterState, given: Redeem, now: float) -> Decision:
    """The last victim has left: the members get the places that were kept for them."""
    job = state.jobs.get(given.job)
    if job is None or job.promise is None or job.promise.victims:
        return STALE
    members = tuple(
        Placement(given.job, position, node, grant) for position, (node, grant) in job.promise.members.items()
    )
    ready = all(
        state.nodes[each.node].takes_work_of(job.job) and job.is_ready(each.position) for each in members
    )
    ready = ready and not _would_be_second_part(state, job, members)
    if not ready or not _fits_after(state, GangPlacement(given.job, members, displaced=(given.job,))):
        gone = e.PromiseWithdrawn(at=now, cause="a promised place is no longer there", job=given.job)
        return Decision([gone], [], Accepted())
    return Decision(_placed(state, job, members, now, "promise", promised=True), [], Accepted())


def overdue(state: ClusterState, now: float) -> list[e.Event]:
    """Promises whose victims did not leave in time, or of which a node will take no work when they have."""
    events: list[e.Event] = []
    for job, promise in state.promises():
        nodes = (state.nodes[node] for node, _ in promise.members.values())
        if any(
            node.lost
            or node.drain_reason is not None
            or node.disabled_reason is not None
            or node.health.reason
            for node in nodes
        ):
            events.append(e.PromiseWithdrawn(at=now, cause="a promised node closed", job=job.job.id))
        elif now > promise.until:
            cause = "its victims did not leave in time"
            events.append(e.PromiseWithdrawn(at=now, cause=cause, job=job.job.id))
    return events


def evict(state: ClusterState, given: Evict, now: float) -> Decision:
    """Take the places of a job's live attempts; the tasks wait again as the job's restart policy says."""
    job = state.jobs.get(given.job)
    if job is None:
        return refuse_because("NotFound", f"no job {given.job}", "not_found")
    chosen = job.live.values() if given.position is None else [job.live.get(given.position)]
    keys = tuple(attempt.key for attempt in chosen if attempt is not None and attempt.ending is None)
    if not keys:
        return refuse_because("NotRunning", "only running tasks can be evicted")
    event = e.TasksEvicted(at=now, cause=given.cause, keys=keys, text=f"phalanx: evicted by {given.cause}")
    return Decision([event, *recalls(state, keys, now, given.cause)], [], Accepted(len(keys), len(keys)))


def _may_be_placed(state: ClusterState, job: JobState, gang_placement: GangPlacement) -> bool:
    if job.is_held or (job.forming is not None and job.gang is not None and job.gang.gang.strict):
        return False
    return all(
        each.node in state.nodes
        and state.nodes[each.node].takes_work_of(job.job)
        and job.is_ready(each.position)
        for each in gang_placement.members
    )


def _promise(state: ClusterState, job: JobState, gang_placement: GangPlacement, now: float) -> Decision:
    keys = _victims(state, job, gang_placement)
    if keys is None or not _fits_after(state, gang_placement):
        return STALE
    if not _is_within_limits(state, job, gang_placement):
        return STALE
    awaited = _still_leaving(state, gang_placement)
    grace_s = max((state.jobs[key[0]].job.grace_s for key in (*keys, *awaited)), default=0.0)
    event = e.RoomPromised(
        at=now,
        cause="plan",
        job=gang_placement.job,
        members=tuple((each.position, each.node, each.grant) for each in gang_placement.members),
        victims=keys,
        displaced=gang_placement.displaced,
        trigger=gang_placement.trigger,
        until=now + grace_s + state.rules.promise_s,
        awaited=awaited,
        preemptor=preemptor(job.job, job.arrival),
    )
    return Decision([event, *recalls(state, keys, now, "plan")], [], Accepted())


def recalls(state: ClusterState, keys: tuple[AttemptKey, ...], now: float, cause: str) -> list[e.Event]:
    """Formations that lose a member at the barrier cannot start whole; the others need not wait for it."""
    events: list[e.Event] = []
    for id in dict.fromkeys(key[0] for key in keys):
        job = state.jobs[id]
        if job.forming is None or job.gang is None or not (job.gang.gang.strict or job.satisfied):
            continue
        if any(key[0] == id and key[1] in job.forming.positions for key in keys):
            events.append(recalled(state, job, now, cause, "one of its members was evicted"))
    return events


def _victims(
    state: ClusterState, job: JobState, gang_placement: GangPlacement
) -> tuple[AttemptKey, ...] | None:
    """Who is to leave the lanes; None if one of them may not be evicted, or a lane is gone.

    A lane that stages share may also have some that are leaving already: those are only waited for.
    """
    keys: list[AttemptKey] = []
    for lane in map(state.lane, gang_placement.victims):
        if lane is None:
            return None
        keys += (key for key in lane.attempts if not _is_leaving(state, key))
    if any(state.jobs[key[0]].job.priority >= job.job.priority for key in keys):
        return None
    if any(id not in state.promised for id in gang_placement.displaced) or _breaks_a_gang(state, keys):
        return None
    return tuple(keys)


def _still_leaving(state: ClusterState, gang_placement: GangPlacement) -> tuple[AttemptKey, ...]:
    """Who is still leaving of those who were when the plan was made, and who is in the lanes of victims."""
    lanes = map(state.lane, gang_placement.awaited)
    awaited = [key for lane in lanes if lane is not None for key in lane.attempts]
    for lane in map(state.lane, gang_placement.victims):
        awaited += () if lane is None else (key for key in lane.attempts if _is_leaving(state, key))
    return tuple(awaited)


def _is_leaving(state: ClusterState, key: AttemptKey) -> bool:
    attempt = state.attempt(key)
    return attempt is None or attempt.ending is not None


def _breaks_a_gang(state: ClusterState, keys: list[AttemptKey]) -> bool:
    """Whether one would keep some members, but of a group that loses some fewer than it needs."""
    for id in {key[0] for key in keys}:
        job = state.jobs[id]
        if job.gang is None:
            continue
        losing = Counter(job.group_of(position).number for owner, position, _ in keys if owner == id)
        staying = job.gang.staying() - losing
        if staying and any(staying[number] < job.groups[number].group.needed for number in losing):
            return True
    return False


def _would_be_second_part(state: ClusterState, job: JobState, members: tuple[Placement, ...]) -> bool:
    """Whether a gang would hold a part with these while another does (decision 14): it lost members since the plan."""
    if job.gang is None or job.satisfied or job.gang.gang.strict or not state.incomplete - {job.job.id}:
        return False
    held = job.gang.staying() + Counter(job.group_of(each.position).number for each in members)
    return any(held[group.number] < group.group.needed for group in job.groups)


def _is_within_limits(state: ClusterState, job: JobState, gang_placement: GangPlacement) -> bool:
    """Whether queue and user may hold all members at once when the victims, if any, have left."""
    if job.job.queue not in state.queues.quotas:
        return True
    keys = (*gang_placement.victims, *gang_placement.awaited)
    leaving = [tenant for key in keys if (tenant := state.tenants.get(key)) is not None]
    for id in gang_placement.displaced:
        leaving += state.tenants.of_job.get(id, {}).values()
    gone = ((each.queue_user, each.grant) for each in leaving)
    return not state.queues.refuses(job.job.queue_user, (each.grant for each in gang_placement.members), gone)


def _fits_after(state: ClusterState, gang_placement: GangPlacement) -> bool:
    """Whether all members fit beside each other once the victims, if any, have left."""
    tried: dict[str, Ledger] = {}  # the accounts of the nodes concerned, as they would be

    def account(node: str) -> Ledger:
        if node not in tried:
            tried[node] = state.table.ledger(node).copied()
        return tried[node]

    for key in (*gang_placement.victims, *gang_placement.awaited):
        if (lane := state.lane(key)) is not None:  # it has not been left since
            account(lane.node).give_back(lane.grant)
    for id in gang_placement.displaced:
        promise = state.jobs[id].promise
        for node, grant in promise.members.values() if promise else ():
            account(node).withdraw(grant)
    members = Counter(each.node for each in gang_placement.members)
    for each in gang_placement.members:
        if members[each.node] == 1 and each.node not in tried:  # nothing else changes there
            if not state.table.ledger(each.node).has_room(each.grant):
                return False
            continue
        if not account(each.node).has_room(each.grant):
            return False
        account(each.node).take(each.grant)
    return True


def _placed(
    state: ClusterState, job: JobState, members: tuple[Placement, ...], now: float, cause: str, promised: bool
) -> list[e.Event]:
    lanes: dict[str, int] = {}
    formation = 0
    if job.gang is not None:
        formation = job.forming.number if job.forming is not None else job.formations + 1
    events: list[e.Event] = []
    for each in members:
        lane = lanes.get(each.node, state.nodes[each.node].next_lane)
        lanes[each.node] = lane + 1
        key = (each.job, each.position, job.attempts[each.position] + 1)
        events.append(placed(each, key, lane, now, cause, formation, promised))
    return events


def placed(
    place: Placement,
    key: AttemptKey,
    lane: int,
    now: float,
    cause: str,
    formation: int = 0,
    promised: bool = False,
) -> e.TaskPlaced:
    """An attempt is given its place; unless the plan queues it in a lane, it opens one."""
    return e.TaskPlaced(
        at=now,
        cause=cause,
        key=key,
        node=place.node,
        lane=lane,
        grant=place.grant,
        opens=place.lane is None,
        formation=formation,
        promised=promised,
        note=place.note,
        merged=place.merged,
    )


def ready(state: ClusterState, attempts: list[Attempt], now: float, cause: str) -> list[e.Event]:
    """Members are held at the barrier. If they were the last ones missing, their gang may go.

    Several may be told of in one message, so they are judged together: each alone would seem to miss the others.
    """
    events: list[e.Event] = []
    for id in dict.fromkeys(attempt.key[0] for attempt in attempts):
        job = state.jobs[id]
        members = [
            each for each in attempts if each.key[0] == id and not each.released and each.ending is None
        ]
        if job.forming is None or job.gang is None or not members:
            continue
        fresh = [each for each in members if not each.ready]
        events += [e.AttemptReady(at=now, cause=cause, key=each.key) for each in fresh]
        missing = not_ready(state, job) - {each.key[1] for each in fresh if state.nodes[each.node].connected}
        if not missing and job.gang.is_whole:
            number = job.forming.number
            events.append(e.GangReleased(at=now, cause=cause, job=id, formation=number))
    return events


def not_ready(state: ClusterState, job: JobState) -> set[int]:
    """The members that a formation still waits for: their runners have not said that they are ready, or are away."""
    if job.forming is None:
        return set()
    ready = job.forming.ready
    return {
        position
        for position in job.forming.positions
        if position not in ready or not state.nodes[job.live[position].node].connected
    }


def _prepared_at(job: JobState, positions: Iterable[int], now: float) -> float:
    """When the last image of these members was ready; now, while one is not: nobody waits in vain for that."""
    members = [job.live[position] for position in positions if position in job.live]
    if any(each.preparing for each in members):
        return now
    return max((each.prepared_at for each in members), default=0.0)


def late(state: ClusterState, now: float) -> list[e.Event]:
    """Formations whose members have waited for each other too long."""
    events: list[e.Event] = []
    for id in state.forming:
        job = state.jobs[id]
        gang, forming = job.job.gang, job.forming
        if gang is None or forming is None or now - forming.formed_at <= gang.wait_s:
            continue
        if now - _prepared_at(job, forming.positions, now) > gang.wait_s:
            missing = len(not_ready(state, job))
            text = f"not whole after {gang.wait_s:.0f} s: {missing} of {len(forming.positions)} members were not ready"
            if not missing:
                text = f"not whole after {gang.wait_s:.0f} s: members are still without a place"
            events.append(recalled(state, job, now, "gang timeout", text))
    return events
