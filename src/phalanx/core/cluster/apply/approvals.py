"""What events do to jobs and workflows that wait for an approval."""

from __future__ import annotations

from phalanx.core.cluster.apply.grants import queue_up
from phalanx.core.cluster.approval_events import JobApproved, WorkflowApproved
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.nodes import Unfit
from phalanx.core.cluster.state import ClusterState


def wait_for_approval(state: ClusterState, job: JobState, until: float | None) -> None:
    """Nothing of a job is placed before it is approved; with None, it needs no approval."""
    job.approve_by = until
    if until is not None and not job.is_over:
        state.unapproved[job.job.id] = None


def job_approved(state: ClusterState, event: JobApproved) -> None:
    job = state.job(event.job)
    job.approve_by = None
    state.unapproved.pop(event.job, None)
    queue_up(state, job)


def workflow_approved(state: ClusterState, event: WorkflowApproved) -> None:
    flow = state.workflows.get(event.workflow)
    if flow is None:
        raise Unfit(f"no workflow {event.workflow}")
    flow.unapproved = False
