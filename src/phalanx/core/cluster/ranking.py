"""Where a job stands in the queue."""

from __future__ import annotations

from phalanx.core.model.job import Job


def urgency_of(job: Job, aging_s: float) -> float:
    """Where it stands by its priority, and by its age if that counts; the smaller goes first."""
    return -float(job.priority) + (job.submitted_at / aging_s if aging_s else 0.0)
