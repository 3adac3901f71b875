"""The routes of tasks: show, cancel, evict, pause, resume, wait, why, story. Their output is in `routes_logs.py`."""

from __future__ import annotations

from phalanx.api.queries import StoryQuery, WaitQuery
from phalanx.api.reply import Reply, json_reply
from phalanx.api.route import Route, Service
from phalanx.api.routes_jobs import cancel, evict, story, waited, why
from phalanx.api.schema import CancelReply, EvictReply, JobView, Page, StoryLine, TaskView, WhyReply
from phalanx.api.sight import seen, seen_task
from phalanx.api.visit import Visit


async def task(service: Service, visit: Visit) -> Reply:
    return json_reply(seen_task(visit, await service.commands.task(visit.id)))


async def pause(service: Service, visit: Visit) -> Reply:
    return json_reply(seen_task(visit, await service.commands.pause(visit.id)))


async def resume(service: Service, visit: Visit) -> Reply:
    return json_reply(seen_task(visit, await service.commands.resume(visit.id)))


async def wait(service: Service, visit: Visit) -> Reply:
    view = await waited(service, visit)
    if isinstance(view, JobView):  # the only task of a job shares its id
        view = await service.commands.task(visit.id)
    return json_reply(seen(visit, view))


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
