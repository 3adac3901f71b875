"""Who cancelled a job or one of its tasks. What becomes of them is decided in `decide/jobs.py`."""

from __future__ import annotations

from phalanx.core.cluster.jobs import JobState
from phalanx.core.model.orders import Status, Why

WHOLE = -1  # instead of a position


def who_cancelled(job: JobState, position: int) -> str:
    """The user who cancelled a task, by itself or with its job; empty if it is not cancelled, or nobody is known."""
    if job.status[position] != Status.CANCELLED or job.why[position] != Why.CANCELLED:
        return ""
    return job.cancelled_by.get(position) or job.cancelled_by.get(WHOLE, "")
