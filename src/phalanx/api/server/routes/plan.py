"""The routes of what would happen and of where everything stands: plans, and the map of the network."""

from __future__ import annotations

from phalanx.api.schema.plan import PlanReply, PlanRequest, TopologyView
from phalanx.api.server.request import HttpRequest
from phalanx.api.server.response import Response, json_reply
from phalanx.api.server.route import Route, Service


async def plan(service: Service, http_request: HttpRequest) -> Response:
    request: PlanRequest = http_request.document
    return json_reply(
        await service.commands.plan(request, http_request.user, http_request.identity.priority_max)
    )


async def topology(service: Service, _http_request: HttpRequest) -> Response:
    return json_reply(await service.commands.topology())


ROUTES = (
    Route(
        method="POST",
        path="/v1/plan",
        permission="read",
        handler=plan,
        summary="What the scheduler would do with jobs that nobody has submitted. Nothing changes.",
        answer=PlanReply,
        body=PlanRequest,
    ),
    Route(
        method="GET",
        path="/v1/topology",
        permission="read",
        handler=topology,
        summary="The tree of the network: its domains, what is free in them, and who sits where.",
        answer=TopologyView,
    ),
)
