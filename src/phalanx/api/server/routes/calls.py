"""The routes of calls: an executor's client posts them and reads results, a worker takes them and gives results.

A client reaches the calls of its own user alone, a worker those of the executor that its own job names.
"""

from __future__ import annotations

from phalanx.api.schema.calls import (
    CALLS_BODY_BYTES_MAX,
    CallsReply,
    CallsRequest,
    GiveReply,
    GiveRequest,
    ResultsQuery,
    ResultsReply,
    TakeReply,
    TakeRequest,
)
from phalanx.api.server.messages import HttpRequest, Response, json_reply
from phalanx.api.server.route import Route, Service


async def post(service: Service, http_request: HttpRequest) -> Response:
    request: CallsRequest = http_request.document
    return json_reply(await service.commands.post_calls(http_request.user, http_request.id, request))


async def results(service: Service, http_request: HttpRequest) -> Response:
    query: ResultsQuery = http_request.query
    with service.waits.taken(http_request):
        return json_reply(await service.commands.call_results(http_request.user, http_request.id, query))


async def close(service: Service, http_request: HttpRequest) -> Response:
    return json_reply(await service.commands.close_calls(http_request.user, http_request.id))


async def take(service: Service, http_request: HttpRequest) -> Response:
    request: TakeRequest = http_request.document
    return json_reply(await service.commands.take_calls(http_request.identity.job, request))


async def give(service: Service, http_request: HttpRequest) -> Response:
    request: GiveRequest = http_request.document
    return json_reply(await service.commands.give_results(http_request.identity.job, request))


ROUTES = (
    Route(
        method="POST",
        path="/v1/executors/{id}/calls",
        permission="submit",
        handler=post,
        summary="Post calls of Python functions for the workers of an executor, or withdraw some.",
        answer=CallsReply,
        body=CallsRequest,
        body_bytes=CALLS_BODY_BYTES_MAX,
        is_traffic=True,
    ),
    Route(
        method="GET",
        path="/v1/executors/{id}/results",
        permission="submit",
        handler=results,
        summary="Wait for results of the calls of an executor.",
        answer=ResultsReply,
        query=ResultsQuery,
        lasting=True,
    ),
    Route(
        method="POST",
        path="/v1/executors/{id}/close",
        permission="submit",
        handler=close,
        summary="End an executor: its calls are forgotten, and its workers end.",
        answer=CallsReply,
    ),
    Route(
        method="POST",
        path="/v1/jobs/{id}/take",
        permission="serve",
        handler=take,
        summary="Wait for calls, as a worker of an executor's job.",
        answer=TakeReply,
        body=TakeRequest,
        is_traffic=True,
        is_about_a_job=True,
    ),
    Route(
        method="POST",
        path="/v1/jobs/{id}/give",
        permission="serve",
        handler=give,
        summary="Give results of calls, as a worker of an executor's job; also its sign of life.",
        answer=GiveReply,
        body=GiveRequest,
        body_bytes=CALLS_BODY_BYTES_MAX,
        is_traffic=True,
        is_about_a_job=True,
    ),
)
