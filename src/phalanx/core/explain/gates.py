"""Why work is not even looked at for a place: every closed gate of `core/cluster/units.py` in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from phalanx.core.cluster.decide.gangs import not_ready
from phalanx.core.cluster.dependencies import (
    WORDS,
    name_of,
    predecessor,
    task_has_come,
    told_abandoned,
    what_came,
)
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.units import GangState, Gate, GroupState, Promise
from phalanx.core.explain.gate_fixes import who_approves
from phalanx.core.model import gang_reasons, reason
from phalanx.core.model.amounts import describe_seconds
from phalanx.core.model.orders import AttemptKey, Status
from phalanx.core.model.reason import Reason, Tier

COME_BY_THEMSELVES = {
    Gate.BEGIN,
    Gate.DEPENDENCY,
    Gate.MERGED,
    Gate.AFTER,
    Gate.LIMIT,
}  # nobody has to do anything about these


def closed_gates(job: JobState, position: int) -> list[Gate]:
    """The closed gates of a task that waits, in the order in which they are told."""
    group = job.group_of(position)
    unit = group if job.gang is None else job.gang
    closed = [*unit.closed_gates(), *group.closed_gates_of_task(position)]
    return sorted(closed, key=lambda gate: gate.value)


def why_closed(state: ClusterState, job: JobState, position: int, now: float) -> list[Reason]:
    """Why a waiting task is not looked at for a place; nothing if it is."""
    closed = closed_gates(job, position)
    return [no for gate in closed for no in _in_words(gate, state, job, position, now)]


def at_barrier(state: ClusterState, job: JobState, now: float) -> Reason:
    """Members hold their places and wait for each other: who is missing, and for how long they wait."""
    assert job.forming is not None
    assert job.gang is not None
    late = sorted(not_ready(state, job))
    missing = [f"{job.job.task_name(each)} on {_whereabouts(state, job.live[each].node)}" for each in late]
    held = job.gang.staying()
    short = 0 if job.satisfied else sum(max(0, g.needed - held[n]) for n, g in enumerate(job.job.groups))
    seconds = max(0.0, job.forming.formed_at + job.gang.gang.wait_s - now)
    placed = len(job.forming.positions)
    return gang_reasons.barrier_wait(placed - len(late), placed, short, missing, seconds)


def comes_first(job: JobState, group: GroupState) -> Iterator[Reason]:
    """The groups that have to come first and have not."""
    for name, when in group.group.after:
        if not job.has_come(name, when):
            other = next(each for each in job.groups if each.group.name == name)
            status = job.status[other.first : other.last]
            done = job.well_in(other)
            if when == "started":
                done = len(status) - status.count(Status.PENDING) - status.count(Status.ASSIGNED)
            yield reason.waiting_dependency(name, when, done, len(status))


def task_names(state: ClusterState, keys: set[AttemptKey]) -> list[str]:
    """What attempts' tasks are called, in order."""
    return [state.jobs[id].job.task_name(position) for id, position, _ in sorted(keys) if id in state.jobs]


def nominated(promise: Promise) -> dict[str, int]:
    """The nodes that are kept for a job, and how many members will stand on each."""
    return dict(sorted(Counter(node for node, _ in promise.members.values()).items()))


def _in_words(gate: Gate, state: ClusterState, job: JobState, position: int, now: float) -> Iterator[Reason]:
    match gate:
        case Gate.HELD:
            yield reason.held_back(job.held_because)
        case Gate.APPROVAL if job.approve_by is not None:
            yield waits_for_approval(state, job, job.approve_by, now)
        case Gate.BEGIN:
            yield reason.begins_later(job.begins_at, max(0.0, job.begins_at - now))
        case Gate.APPLIED if job.job.draft is not None:
            yield reason.members_to_come(job.job.draft.lacks)
        case Gate.DEPENDENCY:
            yield from _jobs_before(state, job, position)
        case Gate.MERGED if job.merged_into is not None:
            yield _merged(state, job.merged_into)
        case Gate.PROMISE if job.promise is not None:
            left = max(0.0, job.promise.until - now)
            yield gang_reasons.waiting_victims(
                task_names(state, job.promise.victims), nominated(job.promise), left
            )
        case Gate.RESTART:
            yield reason.restarting(len(job.live))
        case Gate.RETRY:
            left, used = max(0.0, job.delayed[position] - now), job.charged.get(position, 0)
            yield reason.backing_off(left, used, job.job.max_retries)
        case Gate.BACKOFF:
            yield _backs_off(job, max(0.0, job.hold_until - now))
        case Gate.AFTER:
            yield from comes_first(job, job.group_of(position))
        case Gate.LIMIT:
            yield reason.at_once_limit(job.group_of(position).group.at_once)
        case Gate.BARRIER:
            yield at_barrier(state, job, now)
        case Gate.MEMBERS if job.gang is not None:
            yield from _members_missing(job, job.gang)
            yield from comes_first(job, job.group_of(position))


def waits_for_approval(state: ClusterState, job: JobState, until: float, now: float) -> Reason:
    """Who may approve it, and for how long it waits for that."""
    quota = state.queues.quotas.get(job.job.queue)
    who = who_approves(quota, job.job.user)
    expires = f"; it is cancelled in {describe_seconds(max(0.0, until - now))} otherwise" if until else ""
    return reason.waiting_approval(job.job.queue, who, expires)


def _merged(state: ClusterState, key: AttemptKey) -> Reason:
    parent = state.jobs[key[0]]
    attempt = parent.live.get(key[1])
    return reason.merged(parent.job.id, "" if attempt is None else attempt.node)


def _jobs_before(state: ClusterState, job: JobState, position: int) -> Iterator[Reason]:
    """The jobs, and the tasks of the same index, that come first and have not come yet."""
    for after in job.job.after:
        other = state.jobs.get(after.job)
        if after.each and other is not None:
            come, status = task_has_come(other, position, after.when), Status(other.status[position])
            task = other.job.task_id(position)
            if come is False:  # of a job that is only planned; tasks of others would have ended
                text = told_abandoned(task, what_came(status, after.when))
                yield Reason("DependencyNever", Tier.NEVER, text[:1].upper() + text[1:], {"task": task})
            elif come is None and job.is_locked(position):
                yield reason.waiting_task(task, WORDS[after.when], status.word)
        elif after.job in job.awaits:
            before = predecessor(state, after.job)
            if before is None:
                yield reason.waiting_unknown_job(after.job)
            else:
                name = name_of(before, after.job)
                what = f"job {name}" if isinstance(before, JobState) else name
                yield reason.waiting_job(after.job, what, WORDS[after.when], before.overall_status.word)


def _backs_off(job: JobState, seconds: float) -> Reason:
    if job.recalls:
        return reason.recall_backoff(seconds, job.recalls)
    return reason.restart_backoff(
        seconds, job.restarts, job.job.restart.limit if job.restarts_whole else None
    )


def _members_missing(job: JobState, gang: GangState) -> Iterator[Reason]:
    """Groups of which too few tasks could be placed, however much room there is."""
    for group, wanted in zip(job.groups, gang.wanted(), strict=True):
        if wanted.need > wanted.most:
            why = _where_they_are(job, group)
            yield gang_reasons.members_missing(group.group.name, wanted.need, wanted.most, why)


def _whereabouts(state: ClusterState, node: str) -> str:
    return node if state.nodes[node].connected else f"{node}, which is not connected"


def _where_they_are(job: JobState, group: GroupState) -> list[str]:
    positions = range(group.first, group.last)
    status = job.status[group.first : group.last]
    counts = {
        "in backoff": sum(position in job.delayed for position in positions),
        "still ending": sum(
            each.ending is not None for each in job.live.values() if each.group == group.number
        ),
        "done": job.done_in(group),
        "completed": status.count(Status.COMPLETED),
        "failed": status.count(Status.FAILED),
        "cancelled": status.count(Status.CANCELLED),
    }
    return [f"{count} {word}" for word, count in counts.items() if count] or ["the others are placed"]
