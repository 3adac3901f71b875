"""Which jobs wait: those with a task that is Pending, whatever else of them runs, is held or has ended.

The overview, the list of jobs and the queues ask here, so that their numbers agree.
"""

from __future__ import annotations

from collections import Counter

from phalanx.api.server.limits import TimeSlices
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.orders import Status


def waiting_tasks(job: JobState) -> int:
    """How many tasks of a job wait; a job with any is one that waits."""
    return job.counts[Status.PENDING]


def first_waiting(job: JobState) -> int:
    """The position of the first task that waits, if there is one rather one that is not in backoff."""
    first = at = job.status.find(Status.PENDING)
    while at in job.delayed:
        at = job.status.find(Status.PENDING, at + 1)
    return first if at < 0 else at


async def waiting_by_queue(state: ClusterState, slices: TimeSlices) -> Counter[str]:
    """How many jobs wait in each queue, counted in pieces."""
    found: Counter[str] = Counter()
    piece = await slices.turn()
    for number, job in enumerate(list(state.jobs.values())):
        if not number % 64 and piece.is_over:
            piece = await slices.turn()
        if waiting_tasks(job):
            found[job.job.queue] += 1
    return found
