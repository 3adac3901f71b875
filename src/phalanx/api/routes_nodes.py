"""The routes of nodes: list, show, drain, resume, story."""

from __future__ import annotations

from phalanx.api.queries import StoryQuery
from phalanx.api.reply import Reply, json_reply
from phalanx.api.route import Route, Service
from phalanx.api.routes_jobs import story
from phalanx.api.schema import DrainRequest, NodeView, Page, StoryLine
from phalanx.api.visit import Visit
from phalanx.errors import BadRequest

REASON_MAX = 1000


async def nodes(service: Service, _visit: Visit) -> Reply:
    return json_reply(await service.commands.nodes())


async def node(service: Service, visit: Visit) -> Reply:
    return json_reply(await service.commands.node(visit.id))


async def drain(service: Service, visit: Visit) -> Reply:
    request: DrainRequest = visit.document
    reason = request.reason.strip()
    if not reason or len(reason) > REASON_MAX or not reason.isprintable():
        raise BadRequest(f"reason: say why in 1 to {REASON_MAX} printable characters, all in one line")
    return json_reply(await service.commands.drain(visit.id, reason))


async def resume(service: Service, visit: Visit) -> Reply:
    return json_reply(await service.commands.undrain(visit.id))


ROUTES = (
    Route(
        method="GET",
        path="/v1/nodes",
        permission="read",
        handler=nodes,
        summary="All nodes: what each has, what is free, who is on it.",
        answer=list[NodeView],
    ),
    Route(
        method="GET",
        path="/v1/nodes/{id}",
        permission="read",
        handler=node,
        summary="One node.",
        answer=NodeView,
    ),
    Route(
        method="POST",
        path="/v1/nodes/{id}/drain",
        permission="operate",
        handler=drain,
        summary="Place nothing more on a node, and say why.",
        answer=NodeView,
        body=DrainRequest,
    ),
    Route(
        method="POST",
        path="/v1/nodes/{id}/resume",
        permission="operate",
        handler=resume,
        summary="Place work on a drained node again.",
        answer=NodeView,
    ),
    Route(
        method="GET",
        path="/v1/nodes/{id}/story",
        permission="read",
        handler=story,
        summary="All that happened to a node, in order.",
        answer=Page[StoryLine],
        query=StoryQuery,
    ),
)
