"""The routes of what tasks leave behind: results and artifacts. Only users who may read a task's logs may have them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from msgspec import structs

from phalanx.api.schema.files import FilesQuery, FilesView
from phalanx.api.schema.jobs import TaskView
from phalanx.api.server.messages import HttpRequest, Response, StreamedResponse, encoded_reply, json_reply
from phalanx.api.server.route import Route, Service, held
from phalanx.errors import PhalanxError

MEDIA_TYPE = "application/octet-stream"


async def with_result(service: Service, http_request: HttpRequest, view: TaskView) -> TaskView:
    """The task with a result that is in the place for files, or why it cannot be read."""
    if not view.result_bytes or not http_request.is_inspector:
        return view
    try:
        return structs.replace(view, result=await service.commands.result(http_request.id))
    except PhalanxError as error:
        return structs.replace(view, result_error=str(error))


async def result(service: Service, http_request: HttpRequest) -> Response:
    return encoded_reply(bytes(await service.commands.result(http_request.id)))


async def files(service: Service, http_request: HttpRequest) -> Response:
    query: FilesQuery = http_request.query
    return json_reply(await service.commands.files(http_request.id, attempt=query.attempt))


async def file(service: Service, http_request: HttpRequest) -> StreamedResponse[bytes | None]:
    query: FilesQuery = http_request.query
    view, pieces = await service.commands.file(http_request.id, http_request.rest, attempt=query.attempt)
    chunks = held(service, http_request, pieces)
    first = await _first(chunks)
    headers = (
        (b"content-type", MEDIA_TYPE.encode()),
        (b"content-disposition", b"attachment"),
        (b"x-phalanx-size", b"%d" % view.size),
        (b"x-phalanx-sha256", view.sha256.encode()),
    )
    return StreamedResponse(headers, first, chunks, lambda piece: piece or b"")


async def _first(chunks: AsyncGenerator[bytes | None, None]) -> bytes:
    async for chunk in chunks:
        if chunk is not None:
            return chunk
    return b""


ROUTES = (
    Route(
        method="GET",
        path="/v1/tasks/{id}/result",
        permission="inspect",
        handler=result,
        summary="The result of a task: the JSON that it wrote, verified by its digest if it was large.",
        answer=Any,
        is_about_a_job=True,
    ),
    Route(
        method="GET",
        path="/v1/tasks/{id}/files",
        permission="inspect",
        handler=files,
        summary="The artifacts of a task: path, size and digest of each.",
        answer=FilesView,
        query=FilesQuery,
        is_about_a_job=True,
    ),
    Route(
        method="GET",
        path="/v1/tasks/{id}/files/{path}",
        permission="inspect",
        handler=file,
        summary="One artifact of a task. The answer is cut short if it is not what the task wrote.",
        answer=None,
        query=FilesQuery,
        media=MEDIA_TYPE,
        lasting=True,
        is_about_a_job=True,
    ),
)
