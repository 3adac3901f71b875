"""The route of a task's output: bytes as the task wrote them, with their place in four headers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from phalanx.api.schema.jobs import LogChunk
from phalanx.api.schema.log_gap import gap_mark
from phalanx.api.schema.queries import LogsQuery
from phalanx.api.server.request import HttpRequest
from phalanx.api.server.response import Header, StreamedResponse
from phalanx.api.server.route import Route, Service
from phalanx.api.server.streams import held
from phalanx.errors import BadRequest

MEDIA_TYPE = "application/octet-stream"


async def logs(service: Service, http_request: HttpRequest) -> StreamedResponse[LogChunk | None]:
    query: LogsQuery = http_request.query
    if query.offset is not None and query.lines is not None:
        raise BadRequest("offset and lines: give one of them, not both")
    source = service.commands.logs(
        http_request.id,
        stream=query.stream,
        attempt=query.attempt,
        offset=query.offset,
        lines=query.lines,
        follow=query.follow,
    )
    chunks = held(service, http_request, source)
    first = await _first(chunks)
    if query.split:
        return StreamedResponse(_headers(first), first.data, _without_gap(chunks), _spell)
    return StreamedResponse(_headers(first), _spell(first), chunks, _spell)


async def _without_gap(
    chunks: AsyncGenerator[LogChunk | None, None],
) -> AsyncGenerator[LogChunk | None, None]:
    """What follows without a gap."""
    async with aclosing(chunks):
        async for chunk in chunks:
            if chunk is not None and chunk.gap:
                return
            yield chunk


async def _first(chunks: AsyncGenerator[LogChunk | None, None]) -> LogChunk:
    async for chunk in chunks:
        if chunk is not None:
            return chunk
    # No output is an empty answer, not an error.
    return LogChunk(offset=0, data=b"", size=0, attempt=0, end=True)


def _headers(chunk: LogChunk) -> tuple[Header, ...]:
    return (
        (b"content-type", MEDIA_TYPE.encode()),
        (b"x-phalanx-offset", b"%d" % chunk.offset),
        (b"x-phalanx-size", b"%d" % chunk.size),
        (b"x-phalanx-attempt", b"%d" % chunk.attempt),
        (b"x-phalanx-gap", b"%d" % chunk.gap),
    )


def _spell(chunk: LogChunk | None) -> bytes:
    if chunk is None:
        return b""
    return gap_mark(chunk.gap) + chunk.data if chunk.gap else chunk.data


ROUTES = (
    Route(
        method="GET",
        path="/v1/tasks/{id}/logs",
        permission="inspect",
        handler=logs,
        summary="What a task wrote: all of it, from an offset, or its last lines; with follow until it ends.",
        answer=None,
        query=LogsQuery,
        media=MEDIA_TYPE,
        lasting=True,
    ),
)
