"""The routes of tasks: show, cancel, evict, pause, resume, wait, why, story. Their output is in `logs.py`."""

from __future__ import annotations

from phalanx.api.schema.jobs import CancelReply, EvictReply, JobView, Page, StoryLine, TaskView, WhyReply
from phalanx.api.schema.queries import StoryQuery, WaitQuery
from phalanx.api.server.request import HttpRequest
from phalanx.api.server.response import Response, json_reply
from phalanx.api.server.route import Route, Service
from phalanx.api.server.routes.jobs import cancel, evict, story, waited, why
from phalanx.api.server.visibility import seen, seen_task


async def task(service: Service, http_request: HttpRequest) -> Response:
    return json_reply(seen_task(http_request, await service.commands.task(http_request.id)))


async def pause(service: Service, http_request: HttpRequest) -> Response:
    return json_reply(seen_task(http_request, await service.commands.pause(http_request.id)))


async def resume(service: Service, http_request: HttpRequest) -> Response:
    return json_reply(seen_task(http_request, await service.commands.resume(http_request.id)))


async def wait(service: Service, http_request: HttpRequest) -> Response:
    view = await waited(service, http_request)
    if isinstance(view, JobView):  # the only task of a job shares its id
        view = await service.commands.task(http_request.id)
    return json_reply(seen(http_request, view))


ROUTES = (
    Route(
        method="GET",
        path="/v1/tasks/{id}",
        permission="follow",
        handler=task,
        summary="One task and its newest attempt.",
        answer=TaskView,
    ),
    Route(
        method="POST",
        path="/v1/tasks/{id}/cancel",
        permission="control",
        handler=cancel,
        summary="Cancel one task.",
        answer=CancelReply,
    ),
    Route(
        method="POST",
        path="/v1/tasks/{id}/evict",
        permission="control",
        handler=evict,
        summary="Take the place of one task; its job's restart policy says what follows.",
        answer=EvictReply,
    ),
    Route(
        method="POST",
        path="/v1/tasks/{id}/pause",
        permission="control",
        handler=pause,
        summary="Freeze a running task; it keeps what it was given.",
        answer=TaskView,
    ),
    Route(
        method="POST",
        path="/v1/tasks/{id}/resume",
        permission="control",
        handler=resume,
        summary="Let a paused task go on.",
        answer=TaskView,
    ),
    Route(
        method="GET",
        path="/v1/tasks/{id}/why",
        permission="read",
        handler=why,
        summary="Why a task is where it is, and the nearest fix.",
        answer=WhyReply,
    ),
    Route(
        method="GET",
        path="/v1/tasks/{id}/story",
        permission="follow",
        handler=story,
        summary="All that happened to a task, in order.",
        answer=Page[StoryLine],
        query=StoryQuery,
    ),
    Route(
        method="GET",
        path="/v1/tasks/{id}/wait",
        permission="follow",
        handler=wait,
        summary="The task as it stands when it has ended, or when the time is over.",
        answer=TaskView,
        query=WaitQuery,
        lasting=True,
    ),
)
