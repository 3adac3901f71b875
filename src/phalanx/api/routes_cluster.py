"""The routes of the whole: the cluster in one line, its events, its health, and its own description."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, cast

from msgspec import Struct

from phalanx.api import sse
from phalanx.api.queries import REVISION_MAX, EventsQuery
from phalanx.api.reply import Reply, Streamed, encoded_reply, json_reply
from phalanx.api.route import Route, Service
from phalanx.api.schema import ClusterView, WatchEvent
from phalanx.api.streams import held
from phalanx.api.visit import Visit
from phalanx.errors import BadRequest, Unavailable

OF_TOKENS = ("Credential", "JoinRedeemed", "SecretKnown")


class Health(Struct):
    status: str = "ok"


class Leading(Struct):
    """The answer of the one that leads: since when, counted in terms."""

    epoch: int
    status: str = "ok"


async def cluster(service: Service, _visit: Visit) -> Reply:
    return json_reply(await service.commands.cluster())


async def events(service: Service, visit: Visit) -> Streamed[WatchEvent | None]:
    query: EventsQuery = visit.query
    after = _last_event_id(visit, query.after)
    beginning = b""
    if after is None:
        # A watcher that is cut off before its first event must still know where to go on.
        after = (await service.commands.cluster()).revision
        beginning = sse.spell_position(after)
    source = service.commands.watch(after=after, job=query.job)
    items = held(service, visit, source if visit.identity.scope("grant") == "all" else _plain(source))
    first = beginning + sse.spell_event(await anext(items, None))
    return Streamed(
        ((b"content-type", sse.MEDIA_TYPE.encode()),), first, items, sse.spell_event, sse.spell_error
    )


async def _plain(source: AsyncIterator[WatchEvent]) -> AsyncIterator[WatchEvent]:
    """Without what happens to tokens, which only those may see who may list them."""
    async with aclosing(cast(AsyncGenerator[WatchEvent, None], source)) as events:
        async for event in events:
            if not event.event.startswith(OF_TOKENS):
                yield event


async def livez(_service: Service, _visit: Visit) -> Reply:
    return json_reply(Health())


async def readyz(service: Service, _visit: Visit) -> Reply:
    try:
        async with asyncio.timeout(service.limits.ready_s):
            await service.commands.ready()
    except TimeoutError:
        raise Unavailable(f"no answer from the coordinator within {service.limits.ready_s:g} s") from None
    return json_reply(Health())


async def leaderz(service: Service, _visit: Visit) -> Reply:
    return json_reply(Leading(await service.commands.lead()))


async def openapi(service: Service, _visit: Visit) -> Reply:
    return encoded_reply(service.openapi)


def _last_event_id(visit: Visit, after: int | None) -> int | None:
    """The header wins over the query: a browser that comes back repeats the query of its first visit."""
    header = visit.headers.get(b"last-event-id")
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
        summary="The cluster in one line.",
        answer=ClusterView,
    ),
    Route(
        method="GET",
        path="/v1/events",
        permission="read",
        handler=events,
        summary="Watch what happens, as server-sent events; 410 if it asks for what is no longer kept.",
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
        summary="The process answers.",
        answer=Health,
    ),
    Route(
        method="GET",
        path="/readyz",
        permission="read",
        handler=readyz,
        summary="The coordinator can be asked: its mailbox and its store answer; a standby has read the log.",
        answer=Health,
    ),
    Route(
        method="GET",
        path="/leaderz",
        permission="read",
        handler=leaderz,
        summary="This coordinator is the active one and its lease holds; else 503, naming the one that is.",
        answer=Leading,
    ),
)
