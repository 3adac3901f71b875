"""Workflows in files as they were written: read here, for clients that send the text."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import structs

from phalanx.api.schema.apply import check_files
from phalanx.api.schema.workflow_files import WorkflowFilesRequest
from phalanx.api.schema.workflows import SubmittedWorkflow, WorkflowRequest
from phalanx.client.surroundings import in_folder
from phalanx.coordinator.planned_files import read_texts
from phalanx.errors import BadRequest
from phalanx.manifests.read import Manifests
from phalanx.manifests.workflows import ParsedWorkflow

Submit = Callable[[WorkflowRequest, str, str], Awaitable[SubmittedWorkflow]]


class WorkflowFiles:
    """Reads files beside the loop, and submits the workflow that they hold."""

    def __init__(self, submit: Submit) -> None:
        self._submit = submit

    async def submit_workflow_files(
        self, request: WorkflowFilesRequest, user: str, role: str = "user"
    ) -> SubmittedWorkflow:
        check_files(request.files)
        texts = [(each.name, each.text) for each in request.files]
        made = await asyncio.to_thread(read_texts, texts, for_plan=False, strict=request.strict)
        found = _only(made)
        given = {"deadline": request.deadline, "budget": request.budget}
        spec = structs.replace(
            found.spec, **{name: value for name, value in given.items() if value is not None}
        )
        spec = spec if request.cwd is None else in_folder(spec, request.cwd)
        whole = WorkflowRequest(spec, request.allow_infeasible, request.request_id, request.exported)
        try:
            reply = await self._submit(whole, user, role)
        except BadRequest as error:
            error.detail = f"{found.where}: {error.detail}"
            raise
        return structs.replace(reply, warnings=[*map(str, made.warnings), *reply.warnings])


def _only(made: Manifests) -> ParsedWorkflow:
    """The one workflow of the files."""
    if made.found or made.topology is not None or made.queues:
        raise BadRequest(
            "files: there are other things in them than a workflow", hint="phalanx apply takes them"
        )
    if len(made.workflows) != 1:
        raise BadRequest(
            f"files: there are {len(made.workflows)} workflows in them, expected one",
            hint="send each in a request of its own",
        )
    return made.workflows[0]
