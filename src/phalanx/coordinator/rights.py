"""What somebody may do to a job as it is, so that a page has no button that is refused."""

from __future__ import annotations

from phalanx.coordinator.retries import repeatable
from phalanx.core.cluster.jobs import JobState
from phalanx.core.explain.change import Asker
from phalanx.core.model.orders import Status


def possible(job: JobState, asker: Asker) -> list[str]:
    """The words of `JobView.may`. A job is repeated by its user alone; what an operator holds is released by one."""
    if not asker.may_cancel(job.job):
        return []
    repeats = repeatable(job) if asker.user == job.job.user else []
    if job.is_over:
        return repeats
    words = ["cancel"]
    if job.held_because:
        words += ["release"] if asker.controls_all or job.held_by in ("", asker.user) else []
    elif job.counts[Status.PENDING] and job.merged_into is None:
        words.append("hold")
    return words + repeats
