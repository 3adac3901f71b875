"""The routes that change a job after it was submitted: hold, release, other settings."""

from __future__ import annotations

from phalanx.api.schema.changes import HoldRequest, UpdateRequest
from phalanx.api.schema.jobs import JobView
from phalanx.api.server.messages import HttpRequest, Response, json_reply
from phalanx.api.server.route import Route, Service
from phalanx.api.server.routes.jobs import seen_job


async def hold(service: Service, http_request: HttpRequest) -> Response:
    request: HoldRequest = http_request.document
    is_operator = http_request.identity.scope("control") == "all"
    view = await service.commands.hold(http_request.id, request, http_request.user, is_operator=is_operator)
    return json_reply(seen_job(http_request, view))


async def release(service: Service, http_request: HttpRequest) -> Response:
    is_operator = http_request.identity.scope("control") == "all"
    view = await service.commands.release(http_request.id, http_request.user, is_operator=is_operator)
    return json_reply(seen_job(http_request, view))


async def update(service: Service, http_request: HttpRequest) -> Response:
    request: UpdateRequest = http_request.document
    role = http_request.identity.role
    view = await service.commands.update(http_request.id, request, http_request.user, role)
    return json_reply(seen_job(http_request, view))


ROUTES = (
    Route(
        method="POST",
        path="/v1/jobs/{id}/hold",
        permission="control",
        handler=hold,
        summary="Hold a job: nothing more of it is placed until it is released.",
        answer=JobView,
        body=HoldRequest,
        is_about_a_job=True,
    ),
    Route(
        method="POST",
        path="/v1/jobs/{id}/release",
        permission="control",
        handler=release,
        summary="Release a job that is held.",
        answer=JobView,
        is_about_a_job=True,
    ),
    Route(
        method="PATCH",
        path="/v1/jobs/{id}",
        permission="control",
        handler=update,
        summary="Change the priority, time limit, queue or begin of a job.",
        answer=JobView,
        body=UpdateRequest,
        is_about_a_job=True,
    ),
)
