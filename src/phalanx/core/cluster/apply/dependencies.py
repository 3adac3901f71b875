"""What the start and the end of jobs and tasks do to those that start after them."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.core.cluster.apply.grants import queue_up
from phalanx.core.cluster.dependencies import Predecessor, has_come, predecessor, task_has_come
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.job import After, JobId
from phalanx.core.model.orders import Status


def wait_for_others(state: ClusterState, job: JobState) -> None:
    """A job is new: note what it waits for. One that nobody knows, as after a damaged record, is waited for."""
    _add(state, job)
    for after in job.job.after:
        if not after.each or after.job not in state.jobs:
            job.awaits.add(after.job)
    if job.by_task:
        job.wait_one_by_one()
        if not any(_has_not_begun(state, after) for after in job.job.after):
            _judge(state, job, range(job.job.tasks))
    for after in job.job.after:
        if not after.each and (other := predecessor(state, after.job)) is not None:
            _tell(state, job, other, after)


def _has_not_begun(state: ClusterState, after: After) -> bool:
    """Whether nothing of the other array has come, so that there is no need to ask for each task of it."""
    other = state.jobs.get(after.job)
    return after.each and other is not None and other.counts[Status.PENDING] == other.job.tasks


def tell_dependents(state: ClusterState, other: JobState) -> None:
    """A job has ended. Its outcome may still change with the next event of the same decision."""
    for id in list(state.dependents.get(other.job.id, ())):
        job, after = _dependent(state, id, other.job.id)
        if not after.each:
            _tell(state, job, other, after)
        elif other.is_over:
            _judge(state, job, range(job.job.tasks))
        queue_up(state, job)


def tell_of_end(state: ClusterState, id: JobId) -> None:
    """A workflow has ended, or a stage that had no job: nothing more will become of it under this id."""
    if (other := predecessor(state, id)) is not None:
        for each in list(state.dependents.get(id, ())):
            job, after = _dependent(state, each, id)
            _tell(state, job, other, after)
            queue_up(state, job)
    forget_dependents(state, id)


def _dependent(state: ClusterState, id: JobId, other: JobId) -> tuple[JobState, After]:
    """A job that starts after another, and how."""
    job = state.jobs[id]
    return job, next(each for each in job.job.after if each.job == other)


def tell_of_task(state: ClusterState, other: JobState, position: int) -> None:
    """A task has started or ended: tasks of the same index may begin by now, and who waits for the start of all."""
    for id in list(state.task_dependents.get(other.job.id, ())):
        _judge(state, state.jobs[id], (position,))
        queue_up(state, state.jobs[id])
    if other.job.id in state.start_dependents and has_come(other, "started"):
        for id in state.start_dependents.pop(other.job.id):
            job = state.jobs[id]
            job.awaits.discard(other.job.id)
            queue_up(state, job)


def restore_dependents(state: ClusterState) -> None:
    """The index over the jobs of an image. Whom a job waits for is told again of those that have ended."""
    for job in state.jobs.values():
        if not job.is_over:
            _add(state, job)
    for id in list(state.dependents):
        if (known := state.jobs.get(id)) is not None:
            tell_dependents(state, known)
        elif (other := predecessor(state, id)) is not None and other.is_over:
            tell_of_end(state, id)


def forget_dependents(state: ClusterState, id: JobId) -> None:
    """Nothing more will become of this job."""
    for index in state.dependent_indexes:
        index.pop(id, None)


def _add(state: ClusterState, job: JobState) -> None:
    """Let those that come before a job know of it."""
    for after in job.job.after:
        state.dependents.setdefault(after.job, {})[job.job.id] = None
        if after.each:
            state.task_dependents.setdefault(after.job, {})[job.job.id] = None
        elif after.when == "started":
            state.start_dependents.setdefault(after.job, {})[job.job.id] = None


def _tell(state: ClusterState, job: JobState, other: Predecessor, after: After) -> None:
    """Note for one job what has become of one that comes before it."""
    come = has_come(other, after.when)
    if come:
        job.awaits.discard(after.job)
        if state.abandoned.get(job.job.id) == after.job:
            del state.abandoned[job.job.id]
    elif come is False and not job.is_over:
        job.awaits.add(after.job)
        state.abandoned.setdefault(job.job.id, after.job)


def _judge(state: ClusterState, job: JobState, positions: Iterable[int]) -> None:
    """Let tasks go, or give them up, as the tasks of the same index have it. Jobs that left memory had come."""
    others = [(each, state.jobs[each.job]) for each in job.job.after if each.each and each.job in state.jobs]
    for position in positions:
        if not job.is_locked(position):
            continue
        come = {after.job: task_has_come(other, position, after.when) for after, other in others}
        if False in come.values():
            cause = next(id for id, has in come.items() if has is False)
            state.abandoned_tasks.setdefault(job.job.id, {})[position] = cause
        elif None not in come.values():
            job.wait_again(position)
