"""What the start and the end of a job do to those that start after it."""

from __future__ import annotations

from phalanx.core.cluster.apply.grants import queue_up
from phalanx.core.cluster.dependencies import has_come
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState


def wait_for_others(state: ClusterState, job: JobState) -> None:
    """A job is new: note what it waits for. One that nobody knows, as after a damaged record, is waited for."""
    for after in job.job.after:
        state.dependents.setdefault(after.job, {})[job.job.id] = None
        job.awaits.add(after.job)
    for after in job.job.after:
        if (other := state.jobs.get(after.job)) is not None:
            _tell(state, job, other)


def tell_dependents(state: ClusterState, other: JobState) -> None:
    """A job has started or ended. Its outcome may still change with the next event of the same decision."""
    for id in list(state.dependents.get(other.job.id, ())):
        job = state.jobs[id]
        _tell(state, job, other)
        queue_up(state, job)


def restore_dependents(state: ClusterState) -> None:
    """The index over the jobs of an image. Whom a job waits for is told again of those that have ended."""
    for job in state.jobs.values():
        if not job.is_over:
            for after in job.job.after:
                state.dependents.setdefault(after.job, {})[job.job.id] = None
    for id in [each for each in state.dependents if each in state.jobs]:
        tell_dependents(state, state.jobs[id])


def _tell(state: ClusterState, job: JobState, other: JobState) -> None:
    """Note for one job what has become of one that comes before it."""
    after = next(each for each in job.job.after if each.job == other.job.id)
    come = has_come(other, after.when)
    if come:
        job.awaits.discard(after.job)
        if state.abandoned.get(job.job.id) == after.job:
            del state.abandoned[job.job.id]
    elif come is False and not job.is_over:
        job.awaits.add(after.job)
        state.abandoned.setdefault(job.job.id, after.job)
