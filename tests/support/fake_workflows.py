"""Fake of the commands about workflows: they are stored, and stand still."""

from __future__ import annotations

from phalanx.api.schema.apply import check_files
from phalanx.api.schema.groupspec import GroupSpec
from phalanx.api.schema.jobs import CancelReply, Page
from phalanx.api.schema.jobspec import JobSpec
from phalanx.api.schema.workflow_files import WorkflowFilesRequest
from phalanx.api.schema.workflows import (
    RetryReply,
    RetryRequest,
    StageSpec,
    StageView,
    SubmittedWorkflow,
    TaskProgram,
    WorkflowRequest,
    WorkflowSpec,
    WorkflowView,
    to_workflow,
)
from phalanx.core.model.workflow import Workflow, stage_job_id, workflow_id
from phalanx.errors import NotFound


class FakeWorkflows:
    """The part of `Commands` that is about workflows."""

    def __init__(self) -> None:
        self.flows: dict[str, Workflow] = {}

    async def submit_workflow(
        self, request: WorkflowRequest, user: str, role: str = "user"
    ) -> SubmittedWorkflow:
        id = workflow_id(1, len(self.flows) + 1 << 24)
        flow = to_workflow(
            request.workflow,
            id=id,
            now=1.0,
            user=user,
            default_retries=2,
            command_of=lambda _: TaskProgram(["true"]),
        )
        self.flows[id] = flow
        return SubmittedWorkflow(id, flow.name, _jobs(flow))

    async def submit_workflow_files(
        self, request: WorkflowFilesRequest, user: str, role: str = "user"
    ) -> SubmittedWorkflow:
        check_files(request.files)
        group = GroupSpec(command=["cat", request.files[0].name])
        spec = WorkflowSpec([StageSpec("it", JobSpec([group]))])
        return await self.submit_workflow(WorkflowRequest(spec), user, role)

    async def workflows(self, *, cursor: str | None, limit: int) -> Page[WorkflowView]:
        views = [
            _view(flow, []) for id, flow in sorted(self.flows.items(), reverse=True) if id < (cursor or "~")
        ]
        return Page(views[:limit], views[limit - 1].id if len(views) > limit else None)

    async def workflow(self, id: str) -> WorkflowView:
        flow = self._flow(id)
        stages = [
            StageView(stage.name, "Waiting", job_id, result={"secret": 1})
            for stage, job_id in zip(flow.stages, _jobs(flow).values(), strict=True)
        ]
        return _view(flow, stages)

    async def wait_workflow(self, id: str, timeout_s: float) -> WorkflowView:
        return await self.workflow(id)

    async def cancel_workflow(self, id: str, user: str = "") -> CancelReply:
        return CancelReply(id, len(self._flow(id).stages), 0)

    async def retry_workflow(self, id: str, request: RetryRequest, role: str = "user") -> RetryReply:
        flow = self._flow(id)
        return RetryReply(id, _jobs(flow))

    def _flow(self, id: str) -> Workflow:
        if id not in self.flows:
            raise NotFound(f"no workflow {id[:80]!r}", reason="WorkflowNotFound")
        return self.flows[id]


def _jobs(flow: Workflow) -> dict[str, str]:
    return {stage.name: stage_job_id(flow.id, number, 0) for number, stage in enumerate(flow.stages)}


def _view(flow: Workflow, stages: list[StageView]) -> WorkflowView:
    counts = {"Waiting": len(flow.stages)}
    return WorkflowView(flow.id, flow.name, flow.user, "Pending", flow.submitted_at, counts, stages=stages)
