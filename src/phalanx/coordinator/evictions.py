"""What users see of evictions: that a task was asked to leave its place, when, by whom and for whom."""

from __future__ import annotations

from phalanx.api.schema.jobs import ConditionView
from phalanx.core.cluster.conditions import Condition
from phalanx.core.cluster.jobs import JobState
from phalanx.core.model.orders import Status

PREEMPTED = "PreemptionByScheduler"
EVICTED = "EvictionByEvictionAPI"  # as Kubernetes calls an eviction that a user asked for


def last_eviction(job: JobState) -> Condition | None:
    """Of a job that waits for a place again: that it was evicted from its last one."""
    if not job.conditions or job.overall_status != Status.PENDING:
        return None
    last = job.conditions[next(reversed(job.conditions))]
    return last if last.past_at is None else None


def conditions(job: JobState, position: int) -> list[ConditionView]:
    """That a task was asked to leave its place: by whom and for whom. It is no longer true of a later attempt."""
    found = job.conditions.get(position)
    if found is None:
        return []
    reason = PREEMPTED if found.preempted else EVICTED
    if found.past_at is None:
        return [ConditionView("DisruptionTarget", "True", reason, found.message, found.at)]
    return [ConditionView("DisruptionTarget", "False", reason, found.message, found.past_at)]
