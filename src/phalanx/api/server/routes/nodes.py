"""The routes of nodes: list, show, drain, resume, disable and enable, lose, remove, story."""

from __future__ import annotations

from phalanx.api.schema.cluster import (
    DrainRequest,
    ElasticReply,
    ElasticRequest,
    LoseRequest,
    NodeView,
    RemovedNode,
)
from phalanx.api.schema.jobs import Page, StoryLine
from phalanx.api.schema.queries import StoryQuery
from phalanx.api.server.messages import HttpRequest, Response, json_reply
from phalanx.api.server.route import Route, Service, all_alike
from phalanx.api.server.routes.jobs import story
from phalanx.errors import BadRequest

REASON_MAX = 1000


async def nodes(service: Service, _http_request: HttpRequest) -> Response:
    return json_reply(await service.commands.nodes())


async def node(service: Service, http_request: HttpRequest) -> Response:
    return json_reply(await service.commands.node(http_request.id))


async def drain(service: Service, http_request: HttpRequest) -> Response:
    request: DrainRequest = http_request.document
    reason = _said(request.reason or f"by {http_request.user}")
    return json_reply(await service.commands.drain(http_request.id, reason, evict=request.evict))


async def resume(service: Service, http_request: HttpRequest) -> Response:
    return json_reply(await service.commands.undrain(http_request.id))


async def elastic(service: Service, http_request: HttpRequest) -> Response:
    return json_reply(await _set_elastic(service, http_request))


async def worker_elastic(service: Service, http_request: HttpRequest) -> Response:
    view = await _set_elastic(service, http_request)
    return json_reply(ElasticReply(view.name, not view.elastic_disabled, view.elastic_disabled))


async def _set_elastic(service: Service, http_request: HttpRequest) -> NodeView:
    request: ElasticRequest = http_request.document
    reason = _said(request.reason) if request.reason else ""
    return await service.commands.set_elastic(http_request.id, request.enabled, reason, http_request.user)


async def lose(service: Service, http_request: HttpRequest) -> Response:
    request: LoseRequest = http_request.document
    return json_reply(await service.commands.lose(http_request.id, _said(request.reason), http_request.user))


async def remove(service: Service, http_request: HttpRequest) -> Response:
    return json_reply(await service.commands.remove_node(http_request.id, http_request.user))


def _said(reason: str) -> str:
    said = reason.strip()
    if not said or len(said) > REASON_MAX or not said.isprintable():
        raise BadRequest(f"reason: expected 1 to {REASON_MAX} printable characters on one line")
    return said


ROUTES = (
    Route(
        method="GET",
        path="/v1/nodes",
        permission="read",
        handler=nodes,
        summary="List nodes: capacity, free resources, running tasks.",
        answer=list[NodeView],
        sees=all_alike,
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
        summary="Drain a node: place nothing more on it. A reason is required.",
        answer=NodeView,
        body=DrainRequest,
    ),
    Route(
        method="POST",
        path="/v1/nodes/{id}/resume",
        permission="operate",
        handler=resume,
        summary="Make a drained or temporarily excluded node schedulable again.",
        answer=NodeView,
    ),
    Route(
        method="POST",
        path="/v1/nodes/{id}/elastic",
        permission="operate",
        handler=elastic,
        summary="Disable an elastic node, so that it takes no work of any kind, or enable it.",
        answer=NodeView,
        body=ElasticRequest,
    ),
    Route(
        method="POST",
        path="/v1/workers/{id}/elastic",
        permission="operate",
        handler=worker_elastic,
        summary="Disable or enable an elastic node, as in FlowMesh; the path without /v1 is served too.",
        answer=ElasticReply,
        body=ElasticRequest,
    ),
    Route(
        method="POST",
        path="/v1/nodes/{id}/lose",
        permission="operate",
        handler=lose,
        summary="Mark an unreachable node as lost, so that its tasks are placed again.",
        answer=NodeView,
        body=LoseRequest,
    ),
    Route(
        method="POST",
        path="/v1/nodes/{id}/remove",
        permission="operate",
        handler=remove,
        summary="Remove a node that is offline and runs nothing.",
        answer=RemovedNode,
    ),
    Route(
        method="GET",
        path="/v1/nodes/{id}/story",
        permission="read",
        handler=story,
        summary="The event history of a node.",
        answer=Page[StoryLine],
        query=StoryQuery,
    ),
)
