"""Workflow files from Python: the text goes to the coordinator, which reads it as `phalanx workflow submit -f` does."""

from __future__ import annotations

import re
from os import PathLike
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast

import msgspec

from phalanx.api.schema.apply import PlanFile
from phalanx.api.schema.exports import ALL, NONE, chosen
from phalanx.api.schema.workflow_files import WorkflowFilesRequest
from phalanx.api.schema.workflows import SubmittedWorkflow, check_limits
from phalanx.client.calls import Call, new_request_id
from phalanx.client.surroundings import Export
from phalanx.client.workflow_calls import WORKFLOWS
from phalanx.client.workflow_handles import AsyncWorkflowAnswers, AsyncWorkflowHandle, WorkflowHandle
from phalanx.client.workflows import WorkflowCalls
from phalanx.config import environment

_FLOWMESH = re.compile(r"""apiVersion["']?\s*:\s*["']?(flowmesh/|mloc)""")


class WorkflowFileOptions(TypedDict, total=False):
    """How a workflow file is submitted; each is that of `phalanx workflow submit`."""

    deadline: float | str | None
    budget: float | None
    strict: bool
    allow_infeasible: bool


class WorkflowFileCalls(WorkflowCalls):
    """The methods of `Client` that are about workflows, with those about their files."""

    def submit_workflow_file(
        self, file: str | PathLike[str], *, export: Export = None, **options: Unpack[WorkflowFileOptions]
    ) -> WorkflowHandle:
        """Submit the workflow of a file, YAML or JSON, of Phalanx or of FlowMesh. It is durable when this returns.

        Commands run in the current folder unless the file names another. `deadline` and `budget` replace those of the
        file, `strict=True` refuses fields that cannot be honoured, `allow_infeasible=True` waits for larger nodes.
        `export` is that of `submit`; without it a file of FlowMesh gets nothing of this process's environment.
        """
        return WorkflowHandle(self, self._ask(submit_workflow_file(file, export, **options)))


class AsyncWorkflowFileCalls:
    """The methods of `AsyncClient` about files of workflows."""

    async def _ask(self, call: Call[Any]) -> Any:
        raise NotImplementedError

    async def submit_workflow_file(
        self, file: str | PathLike[str], *, export: Export = None, **options: Unpack[WorkflowFileOptions]
    ) -> AsyncWorkflowHandle:
        """Submit the workflow of a file, YAML or JSON, of Phalanx or of FlowMesh. It is durable when this returns."""
        client = cast(AsyncWorkflowAnswers, self)
        return AsyncWorkflowHandle(client, await self._ask(submit_workflow_file(file, export, **options)))


def submit_workflow_file(
    file: str | PathLike[str], export: Export = None, **options: Unpack[WorkflowFileOptions]
) -> Call[SubmittedWorkflow]:
    path = Path(file)
    written = PlanFile(str(file), path.read_text(encoding="utf-8"))
    if export is None:
        export = NONE if _FLOWMESH.search(written.text) else ALL
    found, _ = chosen(export, environment())
    request = WorkflowFilesRequest(
        [written], str(Path.cwd()), request_id=new_request_id(), exported=found, **options
    )
    check_limits(request.deadline, request.budget)
    return Call(
        method="POST",
        path=f"{WORKFLOWS}/files",
        answer=SubmittedWorkflow,
        body=msgspec.json.encode(request),
        repeatable=True,
        request_id=request.request_id or "",
    )
