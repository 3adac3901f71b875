"""Why a job holds its tasks back, or a task on a node does not run: what the job itself says, not the nodes."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.coordinator.views_gang import nominated, task_names
from phalanx.core.cluster.attempt import Attempt
from phalanx.core.cluster.barrier import not_ready
from phalanx.core.cluster.decide.brake import holds_for
from phalanx.core.cluster.gangs import GangState
from phalanx.core.cluster.groups import GroupState
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model import reason
from phalanx.core.model.reason import Reason
from phalanx.core.model.status import Status, Why


def standstill(state: ClusterState, job: JobState, position: int, now: float) -> Iterator[Reason]:
    """Why a waiting task is not even looked at for a place; nothing if it is."""
    if job.held_because:
        yield reason.held_back(job.held_because)
    if job.job.draft is not None:
        yield reason.members_to_come(job.job.draft.lacks)
    if job.promise is not None:
        left = max(0.0, job.promise.until - now)
        yield reason.waiting_victims(task_names(state, job.promise.victims), nominated(job.promise), left)
    if job.restarting:
        yield reason.restarting(len(job.live))
    if position in job.delayed:
        used = job.charged.get(position, 0)
        yield reason.backing_off(max(0.0, job.delayed[position] - now), used, job.job.max_retries)
    if job.hold_until > now:
        yield _held(job, job.hold_until - now)
    if job.gang is None:
        yield from comes_first(job, job.group_of(position))
    elif job.forming is not None and job.gang.gang.strict:
        yield _at_the_barrier(state, job, job.gang, now)
    elif not job.is_held:
        yield from _members_missing(job, job.gang)


def on_its_node(state: ClusterState, job: JobState, attempt: Attempt, now: float) -> Reason:
    """What a task that holds a place is waiting for, or that it runs."""
    group = job.groups[attempt.group]
    if state.brake is not None and holds_for(state, state.nodes[attempt.node]):
        return reason.losses_braked(attempt.node, state.brake.silent, state.brake.nodes)
    if attempt.ending is not None:
        condition = job.conditions.get(attempt.key[1])
        said = condition.message if condition is not None and attempt.ending == Why.EVICTED else ""
        return reason.leaving(attempt.node, attempt.ending.word, said)
    if job.status[attempt.key[1]] == Status.RUNNING:
        return reason.running(attempt.node, bool(attempt.paused))
    if attempt.formation and not attempt.released and job.forming is not None and job.gang is not None:
        return _at_the_barrier(state, job, job.gang, now)
    if attempt.formation and (first := next(comes_first(job, group), None)) is not None:
        return first
    trouble = state.nodes[attempt.node].trouble
    return reason.unhealthy(attempt.node, trouble) if trouble else reason.starting(attempt.node)


def _held(job: JobState, seconds: float) -> Reason:
    if job.recalls:
        return reason.recall_backoff(seconds, job.recalls)
    limit = job.job.restart.limit if job.restarts_whole else None
    return reason.restart_backoff(seconds, job.restarts, limit)


def _at_the_barrier(state: ClusterState, job: JobState, gang: GangState, now: float) -> Reason:
    forming = job.forming
    assert forming is not None
    late = sorted(not_ready(state, job))
    missing = [f"{job.job.task_name(each)} on {_whereabouts(state, job.live[each].node)}" for each in late]
    held = gang.held()
    short = 0 if job.satisfied else sum(max(0, g.needed - held[n]) for n, g in enumerate(job.job.groups))
    seconds = max(0.0, forming.formed_at + gang.gang.wait_s - now)
    placed = len(forming.positions)
    return reason.barrier_wait(placed - len(late), placed, short, missing, seconds)


def _whereabouts(state: ClusterState, node: str) -> str:
    return node if state.nodes[node].connected else f"{node}, which is not connected"


def comes_first(job: JobState, group: GroupState) -> Iterator[Reason]:
    """The groups that have to come first and have not."""
    for name, when in group.group.after:
        if not job.has_come(name, when):
            other = next(each for each in job.groups if each.group.name == name)
            status = job.status[other.first : other.last]
            if when == "started":
                done = len(status) - status.count(Status.PENDING) - status.count(Status.ASSIGNED)
            else:
                done = status.count(Status.COMPLETED)
                done += sum(other.first <= position < other.last for position in job.done)
            yield reason.waiting_dependency(name, when, done, len(status))


def _members_missing(job: JobState, gang: GangState) -> Iterator[Reason]:
    """Groups of which too few tasks could be placed, however much room there is."""
    for group, wanted in zip(job.groups, gang.wanted(), strict=True):
        if wanted.need > wanted.most:
            why = _where_they_are(job, group)
            yield reason.members_missing(group.group.name, wanted.need, wanted.most, why)


def _where_they_are(job: JobState, group: GroupState) -> list[str]:
    positions = range(group.first, group.last)
    status = job.status[group.first : group.last]
    counts = {
        "in backoff": sum(position in job.delayed for position in positions),
        "still ending": sum(
            each.ending is not None for each in job.live.values() if each.group == group.number
        ),
        "done": sum(position in job.done for position in positions),
        "completed": status.count(Status.COMPLETED),
        "failed": status.count(Status.FAILED),
        "cancelled": status.count(Status.CANCELLED),
    }
    return [f"{count} {word}" for word, count in counts.items() if count] or ["the others have places"]
