"""A job as it would stand in the queue if it were submitted now: at which gates it would wait."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, structs

from phalanx.core.cluster.decide.approvals import needed_until
from phalanx.core.cluster.dependencies import not_come, task_has_come
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.stage_dispatch import dispatch_of
from phalanx.core.cluster.state import ClusterState
from phalanx.core.explain.change import ADMIN, Asker
from phalanx.core.model.dispatch import TASK_TYPE_TAG
from phalanx.core.model.job import Job, JobId


class Submitter(Struct, frozen=True):
    """Who would submit jobs, and which of them held. Without a role no queue asks for an approval."""

    asker: Asker = ADMIN
    role: str = ""
    held: frozenset[JobId] = frozenset()


def as_submitted(state: ClusterState, job: Job, arrival: int, now: float, by: Submitter) -> JobState:
    """The state of a job of which nothing else knows."""
    if job.workflow is None:
        chosen = dispatch_of(state, job, dict(job.tags).get(TASK_TYPE_TAG, ""))
        job = job if chosen is None else structs.replace(job, dispatch=chosen)
    found = JobState(job, arrival, [0] * 6, state.incomplete, state.rules.aging_s)
    found.begins_at = job.begin_at if job.begin_at > now else 0.0
    found.approve_by = needed_until(state, job, by.role, now)
    if job.id in by.held:
        found.held_because, found.held_by = f"by {job.user or 'its user'}", job.user
    found.awaits = not_come(state, job)
    if found.by_task:
        found.wait_one_by_one(tuple(_come(state, job)))
    return found


def _come(state: ClusterState, job: Job) -> Iterator[int]:
    """Which of its tasks need not wait for that of the same index of another array, for it has come."""
    others = [(state.jobs[each.job], each.when) for each in job.after if each.each and each.job in state.jobs]
    for position in range(job.tasks):
        if all(task_has_come(other, position, when) for other, when in others):
            yield position
