"""The routes of what would happen and of where everything stands: plans, and the map of the network."""

from __future__ import annotations

from phalanx.api.reply import Reply, json_reply
from phalanx.api.route import Route, Service
from phalanx.api.schema_plan import PlanReply, PlanRequest, TopologyView
from phalanx.api.visit import Visit


async def plan(service: Service, visit: Visit) -> Reply:
    request: PlanRequest = visit.document
    return json_reply(await service.commands.plan(request, visit.user, visit.identity.priority_max))


async def topology(service: Service, _visit: Visit) -> Reply:
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
