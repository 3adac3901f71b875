"""How much of one user's may wait at once: tasks, in the cluster and in each queue, and bytes of what describes them.

Jobs, workflows and their retries are counted alike: stages that have no job yet count with their tasks. What a job or
workflow is described by (commands, environments, parameters) stays in memory until some time after its end, so that of
one user has a limit.
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.job import Job, QueueUser, job_bytes
from phalanx.core.model.reason import Reason, Tier

USER_TASKS_MIN = 1000
USER_BYTES_MAX = (
    512 << 20
)  # of all jobs and workflows of one user in memory; ended ones leave it at half as much


def too_many(state: ClusterState, job: Job, *, amends: bool = False) -> Reason | None:
    """Why a job may not wait with the others: too many tasks do, or too much of its user's has not ended."""
    old = state.jobs[job.id] if amends else None
    added = job.tasks - (old.job.tasks if old else 0)
    moved = job.tasks if old and old.job.queue != job.queue else added
    return (
        queue_full(state, job.user, added)
        or too_large(state, job.user, job_bytes(job) - (old.size_bytes if old else 0))
        or state.queues.too_many(job.queue_user, moved)
    )


def too_many_together(state: ClusterState, jobs: Sequence[Job]) -> Reason | None:
    """Why the tasks of a user's jobs that are submitted together may not all wait, or be in their queues."""
    added: dict[QueueUser, int] = {}
    for job in jobs:
        added[job.queue_user] = added.get(job.queue_user, 0) + job.tasks
    if (no := queue_full(state, jobs[0].user, sum(added.values()))) is not None:
        return no
    found = (state.queues.too_many(whose, tasks) for whose, tasks in added.items())
    return next((no for no in found if no is not None), None)


def queue_full(state: ClusterState, user: str, added: int) -> Reason | None:
    """Why so many more tasks of a user may not wait: too many do already, or too many of his have not ended."""
    most, waiting, held = state.rules.pending_max, state.waiting_tasks, state.unfinished_tasks(user)
    if waiting + added > most:
        text = f"{waiting} tasks are waiting, the maximum is {most}"
        return Reason("QueueFull", Tier.POLICY, text, {"limit": most})
    share = max(USER_TASKS_MIN, most // 2)  # so that others find room
    if held + added > share:
        text = f"{user} has {held} unfinished tasks, the maximum per user is {share}"
        return Reason("QueueFull", Tier.POLICY, text, {"limit": share})
    return None


def too_large(state: ClusterState, user: str, added: int) -> Reason | None:
    """Why so many more bytes of a user's jobs and workflows may not be kept in memory."""
    held = state.bytes_of.get(user, 0)
    if held + added <= USER_BYTES_MAX:
        return None
    text = (
        f"{user}'s jobs and workflows in memory, with commands, environments and parameters, have {held} bytes,"
        f" {added} more would exceed the maximum per user of {USER_BYTES_MAX}"
    )
    return Reason("JobsTooLarge", Tier.POLICY, text, {"limit": USER_BYTES_MAX})
