"""Approve and deny jobs and workflows that wait for it."""

from __future__ import annotations

from phalanx.api.schema.approvals import ApprovalReply
from phalanx.coordinator import lookup
from phalanx.coordinator.refusals import accepted
from phalanx.coordinator.requests import Requests
from phalanx.core.cluster.inputs import Approve, ApproveWorkflow
from phalanx.errors import NotFound
from phalanx.store.protocol import Store


class CoordinatorApprovals:
    """Who may, is decided with the job: the queue names its approvers."""

    def __init__(self, loop: Requests, store: Store) -> None:
        self._loop, self._store = loop, store

    async def approve(
        self, id: str, user: str, role: str, *, approves: bool = True, text: str = ""
    ) -> ApprovalReply:
        """An id names a job, or a workflow as a whole."""
        try:
            flow = await lookup.find_workflow(self._loop, self._store, id)
        except NotFound:
            job = await lookup.find_job(self._loop, self._store, lookup.job_part(id))
            given = Approve(job.job.id, approves, user, role, text)
            accepted(await self._loop.ask([given]), job.job.id)
            return ApprovalReply(job.job.id, approves, user, job.arrival)
        whole = ApproveWorkflow(flow.workflow.id, approves, user, role, text)
        accepted(await self._loop.ask([whole]), flow.workflow.id)
        return ApprovalReply(flow.workflow.id, approves, user, flow.number)
