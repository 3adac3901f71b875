"""The routes of the whole: the cluster in one line, its events, its health, and its own description."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, cast

from msgspec import UNSET, Struct, UnsetType

from phalanx.api.schema import sse
from phalanx.api.schema.cluster import ClusterView
from phalanx.api.schema.jobs import WatchEvent
from phalanx.api.schema.queries import REVISION_MAX, EventsQuery
from phalanx.api.server.messages import HttpRequest, Response, StreamedResponse, encoded_reply, json_reply
from phalanx.api.server.route import Route, Service, held
from phalanx.core.model.job import is_job_id
from phalanx.errors import BadRequest, NotActive, Unavailable

SHOW_A_TOKEN = "with a token the answer says more"  # noqa: S105 - for people
OF_TOKENS = ("Credential", "JoinRedeemed", "SecretKnown", "Login")


class Health(Struct):
    status: str = "ok"


class Leading(Struct):
    """The answer of the leader; with a token it includes the epoch."""

    status: str = "ok"
    role: str = "Active"
    epoch: int | UnsetType = UNSET


async def cluster(service: Service, _http_request: HttpRequest) -> Response:
    return json_reply(await service.commands.cluster())


async def events(service: Service, http_request: HttpRequest) -> StreamedResponse[WatchEvent | None]:
    query: EventsQuery = http_request.query
    after = last_event_id(http_request, query.after)
    beginning = b""
    if after is None:
        # A watcher that is cut off before its first event must still know where to go on.
        after = (await service.commands.cluster()).revision
        beginning = sse.spell_position(after)
    job = query.job
    if job and not is_job_id(job[:26]):
        job = (await service.id_named(http_request, job)).partition(".")[0]
    source = service.commands.watch(after=after, job=job)
    items = held(
        service, http_request, source if http_request.identity.scope("grant") == "all" else _plain(source)
    )
    first = beginning + sse.spell_event(await anext(items, None))
    return StreamedResponse(
        ((b"content-type", sse.MEDIA_TYPE.encode()),), first, items, sse.spell_event, sse.spell_error
    )


async def _plain(source: AsyncIterator[WatchEvent]) -> AsyncIterator[WatchEvent]:
    """Without events about tokens, which only admins may see."""
    async with aclosing(cast(AsyncGenerator[WatchEvent, None], source)) as events:
        async for event in events:
            if not event.event.startswith(OF_TOKENS):
                yield event


async def livez(_service: Service, _http_request: HttpRequest) -> Response:
    return json_reply(Health())


async def readyz(service: Service, http_request: HttpRequest) -> Response:
    """Without a token the answer is yes or no; the details need a token."""
    if http_request.is_insider(service.tokens):
        if http_request.wants_leader:
            await service.commands.require_leader()
        await service.readiness.require()
    elif not await service.readiness.is_given():
        raise Unavailable(
            "this coordinator is not ready", reason="NotReady", hint=SHOW_A_TOKEN, retry_after_s=1.0
        )
    return json_reply(Health())


async def leaderz(service: Service, http_request: HttpRequest) -> Response:
    """Without a token the answer is the role; the leader and its epoch need a token."""
    if http_request.is_insider(service.tokens):
        return json_reply(Leading(epoch=await service.commands.lead()))
    try:
        await service.commands.lead()
    except Unavailable:
        raise NotActive(
            "this coordinator is not the active one",
            hint=SHOW_A_TOKEN,
            retry_after_s=1.0,
            extra={"role": "Standby"},
        ) from None
    return json_reply(Leading())


async def openapi(service: Service, _http_request: HttpRequest) -> Response:
    return encoded_reply(service.openapi())


def last_event_id(http_request: HttpRequest, after: int | None) -> int | None:
    """The header wins over the query: a browser that comes back repeats the query of its first visit."""
    header = http_request.headers.get(b"last-event-id")
    if header is None:
        return after
    if not header.isdigit() or len(header) > 19 or int(header) > REVISION_MAX:
        raise BadRequest("the header Last-Event-ID must be a revision: the id of the last event seen")
    return int(header)


ROUTES = (
    Route(
        method="GET",
        path="/v1/cluster",
        permission="read",
        handler=cluster,
        summary="Summary of the cluster.",
        answer=ClusterView,
    ),
    Route(
        method="GET",
        path="/v1/events",
        permission="read",
        handler=events,
        summary="Watch events as server-sent events; 410 if the requested ones are no longer kept.",
        answer=None,
        query=EventsQuery,
        header="Last-Event-ID",
        media=sse.MEDIA_TYPE,
        lasting=True,
    ),
    Route(
        method="GET",
        path="/openapi.json",
        permission="read",
        handler=openapi,
        summary="This document.",
        answer=dict[str, Any],
    ),
    Route(
        method="GET",
        path="/livez",
        permission="open",
        handler=livez,
        summary="Liveness: the process answers.",
        answer=Health,
    ),
    Route(
        method="GET",
        path="/readyz",
        permission="open",
        handler=readyz,
        summary="Readiness: mailbox and store answer, or a standby follows the log; with a token it says why not.",
        answer=Health,
    ),
    Route(
        method="GET",
        path="/leaderz",
        permission="open",
        handler=leaderz,
        summary="200 if this coordinator is active and its lease holds, else 503; with a token it says which one is.",
        answer=Leading,
    ),
)
