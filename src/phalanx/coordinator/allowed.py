"""What the asker may do to a job as it is, so that a page has no button that is refused."""

from __future__ import annotations

from phalanx.coordinator.retries import repeatable
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.explain.change import Asker
from phalanx.core.explain.gate_fixes import may_approve
from phalanx.core.model.orders import Status


def possible(state: ClusterState, job: JobState, asker: Asker) -> list[str]:
    """The words of `JobView.may`. A job is repeated by its user alone; what an operator holds is released by one."""
    waits_for_approval = job.approve_by is not None and not job.is_over
    quota = state.queues.quotas.get(job.job.queue)
    approves = waits_for_approval and may_approve(quota, job.job.user, asker)
    return [*(["approve"] if approves else []), *_of_control(job, asker)]


def _of_control(job: JobState, asker: Asker) -> list[str]:
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
