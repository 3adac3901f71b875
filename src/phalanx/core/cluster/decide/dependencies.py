"""Choices about jobs that start after others: which can never start, and how they end."""

from __future__ import annotations

from phalanx.core.cluster import events as e
from phalanx.core.cluster.decision import Accepted, Decision, Refused
from phalanx.core.cluster.dependencies import (
    Predecessor,
    has_come,
    name_of,
    not_accepted_after,
    outcome_of_abandoned,
    predecessor,
    runs_of,
    told_abandoned,
    what_came,
)
from phalanx.core.cluster.inputs import Abandon
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.job import EACH_TASKS_MAX, After, Job, JobId
from phalanx.core.model.orders import Status
from phalanx.core.model.reason import Reason, Tier


def never_after(state: ClusterState, job: Job) -> Refused | None:
    """Why a job can never start after the others that it names, if so."""
    for after in job.after:
        if (other := predecessor(state, after.job)) is None:
            return Refused(Reason("NotFound", Tier.NEVER, f"after: no job {after.job}"), "not_found")
        if after.each and (no := _not_alike(job, other, after)) is not None:
            return Refused(no, "bad")
        if not after.each and has_come(other, after.when) is False:
            return Refused(Reason("DependencyNever", Tier.NEVER, not_accepted_after(other, after)))
    return None


def _not_alike(job: Job, before: Predecessor, after: After) -> Reason | None:
    """Why the tasks of two jobs cannot follow each other one by one."""
    name = name_of(before, after.job).rpartition(" ")[2]
    if not isinstance(before, JobState):
        text = (
            f"after: {name}:each: it takes a job that exists; leave :each out to start after the whole of it"
        )
        return Reason("ArraysDiffer", Tier.NEVER, text)
    other = before.job
    ranges = {None if each.array is None else each.array.ranges for each in (job, other)}
    text = ""
    if job.array is None or len(ranges) != 1:
        shown = [str(each.array or "none") for each in (other, job)]
        text = f"it takes two arrays of the same indexes, and these are {shown[0]} and {shown[1]}"
    elif job.tasks > EACH_TASKS_MAX:
        text = f"it takes arrays of at most {EACH_TASKS_MAX} tasks, and this has {job.tasks}"
    return Reason("ArraysDiffer", Tier.NEVER, f"after: {name}:each: {text}") if text else None


def abandon(state: ClusterState, given: Abandon, now: float) -> Decision:
    """End a job, or tasks of it, that can never start, as what they were to start after has it."""
    job = state.jobs[given.job].job
    if (cause := state.abandoned.get(given.job)) is None:
        return Decision(_abandoned_tasks(state, job, now), [], Accepted(len(state.abandoned_tasks[job.id])))
    after = next(each for each in job.after if each.job == cause)
    other = predecessor(state, cause)
    ended = Status.CANCELLED if other is None else other.overall_status  # None: that stage begins again
    status = outcome_of_abandoned(ended, after.when)
    name = cause if other is None else name_of(other, cause)
    text = told_abandoned(name, what_came(ended, after.when))
    event = e.JobSettled(at=now, cause=f"job {cause}", job=job.id, status=status, text=text)
    return Decision([event], [], Accepted(job.tasks))


def _abandoned_tasks(state: ClusterState, job: Job, now: float) -> list[e.Event]:
    """One event for all tasks with the same cause and the same end."""
    found: dict[tuple[JobId, Status], list[int]] = {}
    for position, cause in sorted(state.abandoned_tasks[job.id].items()):
        found.setdefault((cause, Status(state.jobs[cause].status[position])), []).append(position)
    events: list[e.Event] = []
    for (cause, ended), positions in found.items():
        after = next(each for each in job.after if each.job == cause)
        events.append(
            e.TasksAbandoned(
                at=now,
                cause=f"job {cause}",
                job=job.id,
                other=cause,
                ranges=runs_of(positions),
                status=outcome_of_abandoned(ended, after.when),
                text=what_came(ended, after.when),
            )
        )
    return events
