"""The routes of workflows: submit, list, show, wait, cancel, retry."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec

from phalanx.api.schema.jobs import CancelReply, Page, StoryLine
from phalanx.api.schema.queries import StoryQuery, WaitQuery, WorkflowsQuery
from phalanx.api.schema.workflow_files import WorkflowFilesRequest
from phalanx.api.schema.workflows import (
    RetryReply,
    RetryRequest,
    StageView,
    SubmittedWorkflow,
    WorkflowRequest,
    WorkflowView,
)
from phalanx.api.server.messages import HttpRequest, Response, StreamedResponse, json_reply
from phalanx.api.server.route import Route, Service, held
from phalanx.api.server.routes.jobs import join_key, story
from phalanx.core.model.workflow import WORKFLOW_BYTES_MAX

WORKFLOW_LARGE_BYTES = 2048  # twenty stages or so, each of which costs as much as a job
PIECE_BYTES = 256 * 1024
STAGE_BYTES = 400  # of a stage's view beside its result
JSON_TYPE = ((b"content-type", b"application/json"),)


async def workflow_reply(
    service: Service, http_request: HttpRequest, view: WorkflowView
) -> Response | StreamedResponse[bytes | None]:
    """The workflow as this visitor may see it; one with many stages or large results is written in pieces.

    Results and reasons are for those who may inspect it.
    """
    if not http_request.is_inspector:
        for stage in view.stages:
            stage.result, stage.reason = None, ""
    if sum(map(_size, view.stages)) <= PIECE_BYTES:
        return json_reply(view)
    chunks = held(service, http_request, _pieces(service, view))
    first = await anext(chunks) or b""
    return StreamedResponse(JSON_TYPE, first, chunks, lambda piece: piece or b"")


async def _pieces(service: Service, view: WorkflowView) -> AsyncGenerator[bytes, None]:
    """The same JSON as of the whole, which `stages` stand at the end of."""
    stages, view.stages = view.stages, []
    before = json_reply(view).body.removesuffix(b"}") + b',"stages":['
    first = size = 0
    for last, stage in enumerate(stages, 1):
        size += _size(stage)
        if size >= PIECE_BYTES or last == len(stages):
            await service.slices.turn()
            yield before + json_reply(stages[first:last]).body[1:-1]
            before, first, size = b",", last, 0
    yield b"]}"


def _size(stage: StageView) -> int:
    """About how many bytes it has as JSON."""
    result = stage.result
    return STAGE_BYTES + (memoryview(result).nbytes if isinstance(result, msgspec.Raw) else 0)


async def submit_workflow(service: Service, http_request: HttpRequest) -> Response:
    request: WorkflowRequest = http_request.document
    join_key(request, http_request)
    identity = http_request.identity
    reply = await service.commands.submit_workflow(request, http_request.user, identity.role)
    http_request.made = [reply.id]
    return json_reply(reply, 202)


async def submit_workflow_files(service: Service, http_request: HttpRequest) -> Response:
    request: WorkflowFilesRequest = http_request.document
    join_key(request, http_request)
    identity = http_request.identity
    reply = await service.commands.submit_workflow_files(request, http_request.user, identity.role)
    http_request.made = [reply.id]
    return json_reply(reply, 202)


async def workflows(service: Service, http_request: HttpRequest) -> Response:
    query: WorkflowsQuery = http_request.query
    return json_reply(await service.commands.workflows(cursor=query.cursor, limit=query.limit))


async def workflow(service: Service, http_request: HttpRequest) -> Response | StreamedResponse[bytes | None]:
    return await workflow_reply(service, http_request, await service.commands.workflow(http_request.id))


async def wait_workflow(
    service: Service, http_request: HttpRequest
) -> Response | StreamedResponse[bytes | None]:
    query: WaitQuery = http_request.query
    with service.waits.taken(http_request):
        view = await service.commands.wait_workflow(http_request.id, query.timeout_s)
    return await workflow_reply(service, http_request, view)


async def cancel_workflow(service: Service, http_request: HttpRequest) -> Response:
    return json_reply(await service.commands.cancel_workflow(http_request.id, http_request.user))


async def retry_workflow(service: Service, http_request: HttpRequest) -> Response:
    request: RetryRequest = http_request.document
    role = http_request.identity.role
    return json_reply(await service.commands.retry_workflow(http_request.id, request, role))


ROUTES = (
    Route(
        method="POST",
        path="/v1/workflows",
        permission="submit",
        handler=submit_workflow,
        summary="Submit a workflow: its stages become jobs as their inputs are there. All of it, or nothing.",
        answer=SubmittedWorkflow,
        status=202,
        body=WorkflowRequest,
        body_bytes=WORKFLOW_BYTES_MAX,
        large_bytes=WORKFLOW_LARGE_BYTES,
        header="Idempotency-Key",
        is_costly=True,
    ),
    Route(
        method="POST",
        path="/v1/workflows/files",
        permission="submit",
        handler=submit_workflow_files,
        summary="Submit the workflow of a file, given as text: YAML or JSON, of Phalanx or of FlowMesh.",
        answer=SubmittedWorkflow,
        status=202,
        body=WorkflowFilesRequest,
        large_bytes=WORKFLOW_LARGE_BYTES,
        header="Idempotency-Key",
        is_costly=True,
        is_heavy=True,
    ),
    Route(
        method="GET",
        path="/v1/workflows",
        permission="read",
        handler=workflows,
        summary="Workflows in memory, newest first, without their stages.",
        answer=Page[WorkflowView],
        query=WorkflowsQuery,
    ),
    Route(
        method="GET",
        path="/v1/workflows/{id}",
        permission="follow",
        handler=workflow,
        summary="One workflow with its stages.",
        answer=WorkflowView,
        is_about_a_job=True,
    ),
    Route(
        method="GET",
        path="/v1/workflows/{id}/wait",
        permission="follow",
        handler=wait_workflow,
        summary="Wait until the workflow ends or the timeout passes, and return its state.",
        answer=WorkflowView,
        query=WaitQuery,
        lasting=True,
        is_about_a_job=True,
    ),
    Route(
        method="GET",
        path="/v1/workflows/{id}/story",
        permission="follow",
        handler=story,
        summary="The event history of a workflow.",
        answer=Page[StoryLine],
        query=StoryQuery,
        is_about_a_job=True,
    ),
    Route(
        method="POST",
        path="/v1/workflows/{id}/cancel",
        permission="control",
        handler=cancel_workflow,
        summary="Cancel every stage of a workflow that has not ended.",
        answer=CancelReply,
        is_about_a_job=True,
    ),
    Route(
        method="POST",
        path="/v1/workflows/{id}/retry",
        permission="control",
        handler=retry_workflow,
        summary="Run stages of an ended workflow again: one and all that build on it, or whatever did not complete.",
        answer=RetryReply,
        body=RetryRequest,
        is_about_a_job=True,
    ),
)
