"""The routes of tasks: show, cancel, evict, pause, resume, wait, why, story, and their output.

Output is bytes as the task wrote them, with their place in four headers.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec import structs

from phalanx.api.schema.attempts import AttemptView
from phalanx.api.schema.jobs import (
    CancelReply,
    EvictReply,
    JobView,
    LogChunk,
    Page,
    StoryLine,
    TaskView,
    WhyReply,
)
from phalanx.api.schema.log_times import LogTimesQuery, LogTimesView, gap_mark
from phalanx.api.schema.queries import LogsQuery, StoryQuery, WaitQuery
from phalanx.api.server.auth import forbidden
from phalanx.api.server.messages import Header, HttpRequest, Response, StreamedResponse, json_reply
from phalanx.api.server.route import Route, Service, held
from phalanx.api.server.routes.files import with_result
from phalanx.api.server.routes.jobs import asker_of, cancel, evict, seen, seen_task, story, waited, why
from phalanx.errors import BadRequest

MEDIA_TYPE = "application/octet-stream"


async def task(service: Service, http_request: HttpRequest) -> Response:
    view = seen_task(http_request, await service.commands.task(http_request.id))
    return json_reply(await with_result(service, http_request, view))


async def attempts(service: Service, http_request: HttpRequest) -> Response:
    told = service.commands.in_numbers
    views = await service.commands.attempts(http_request.id)
    return json_reply([structs.replace(view, message=told(view.message)) for view in views])


async def pause(service: Service, http_request: HttpRequest) -> Response:
    return json_reply(seen_task(http_request, await service.commands.pause(http_request.id)))


async def resume(service: Service, http_request: HttpRequest) -> Response:
    return json_reply(seen_task(http_request, await service.commands.resume(http_request.id)))


async def wait(service: Service, http_request: HttpRequest) -> Response:
    view = await waited(service, http_request)
    if isinstance(view, JobView):  # the only task of a job shares its id
        view = await service.commands.task(http_request.id)
    return json_reply(seen(http_request, view))


async def logs(service: Service, http_request: HttpRequest) -> StreamedResponse[LogChunk | None]:
    query: LogsQuery = http_request.query
    if query.offset is not None and query.lines is not None:
        raise BadRequest("offset and lines: give one of them, not both")
    if query.hold:
        job, user = await service.commands.owner(http_request.id)
        if not http_request.identity.may("control", job, user):
            raise forbidden(http_request.identity, "control", whose=user)
        if http_request.connection is not None:
            http_request.connection.wait_for_reader()
    source = service.commands.logs(
        http_request.id,
        stream=query.stream,
        attempt=query.attempt,
        offset=query.offset,
        lines=query.lines,
        follow=query.follow,
        hold=query.hold,
    )
    chunks = held(service, http_request, source)
    first = await _first(chunks)
    if query.split:
        return StreamedResponse(_headers(first), first.data, _without_gap(chunks), _spell)
    return StreamedResponse(_headers(first), _spell(first), chunks, _spell)


async def log_times(service: Service, http_request: HttpRequest) -> Response:
    query: LogTimesQuery = http_request.query
    found = await service.commands.log_times(http_request.id, attempt=query.attempt, after=query.after)
    return json_reply(found)


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
        path="/v1/tasks/{id}",
        permission="follow",
        handler=task,
        summary="One task and its newest attempt.",
        answer=TaskView,
        is_about_a_job=True,
    ),
    Route(
        method="POST",
        path="/v1/tasks/{id}/cancel",
        permission="control",
        handler=cancel,
        summary="Cancel one task.",
        answer=CancelReply,
        is_about_a_job=True,
    ),
    Route(
        method="POST",
        path="/v1/tasks/{id}/evict",
        permission="control",
        handler=evict,
        summary="Preempt one task; its job's restart policy decides what follows.",
        answer=EvictReply,
        is_about_a_job=True,
    ),
    Route(
        method="POST",
        path="/v1/tasks/{id}/pause",
        permission="control",
        handler=pause,
        summary="Pause a running task; its resources stay allocated.",
        answer=TaskView,
        is_about_a_job=True,
    ),
    Route(
        method="POST",
        path="/v1/tasks/{id}/resume",
        permission="control",
        handler=resume,
        summary="Resume a paused task.",
        answer=TaskView,
        is_about_a_job=True,
    ),
    Route(
        method="GET",
        path="/v1/tasks/{id}/why",
        permission="read",
        handler=why,
        summary="Explain a task's state: the reasons and a fix that would work.",
        answer=WhyReply,
        sees=asker_of,
        is_about_a_job=True,
        is_costly=True,
        is_heavy=True,
    ),
    Route(
        method="GET",
        path="/v1/tasks/{id}/story",
        permission="follow",
        handler=story,
        summary="The event history of a task.",
        answer=Page[StoryLine],
        query=StoryQuery,
        is_about_a_job=True,
    ),
    Route(
        method="GET",
        path="/v1/tasks/{id}/attempts",
        permission="follow",
        handler=attempts,
        summary="The attempts of a task: where each was, from when to when, and how it ended.",
        answer=list[AttemptView],
        is_about_a_job=True,
        is_costly=True,
    ),
    Route(
        method="GET",
        path="/v1/tasks/{id}/wait",
        permission="follow",
        handler=wait,
        summary="Wait until the task ends or the timeout passes, and return its state.",
        answer=TaskView,
        query=WaitQuery,
        lasting=True,
        is_about_a_job=True,
    ),
    Route(
        method="GET",
        path="/v1/tasks/{id}/logs",
        permission="inspect",
        handler=logs,
        summary="The output of a task: all of it, from an offset, or the last lines; with follow until it ends.",
        answer=None,
        query=LogsQuery,
        media=MEDIA_TYPE,
        lasting=True,
        is_about_a_job=True,
    ),
    Route(
        method="GET",
        path="/v1/tasks/{id}/log-times",
        permission="inspect",
        handler=log_times,
        summary="When the output of a task was written, and on which node.",
        answer=LogTimesView,
        query=LogTimesQuery,
        is_about_a_job=True,
    ),
)
