"""Events of approvals. A denial is the end of its job (`JobSettled`), or the cancel of its workflow."""

from __future__ import annotations

from phalanx.core.cluster.event_kinds import JobEvent, WorkflowEvent


class JobApproved(JobEvent, frozen=True):
    """A job that waited for an approval may run."""

    by: str  # who approved it


class WorkflowApproved(WorkflowEvent, frozen=True):
    """No stage of it waits for an approval any more; the jobs of those that did have events of their own."""

    by: str
