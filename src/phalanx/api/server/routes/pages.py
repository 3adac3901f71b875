"""The routes that the dashboard alone asks: what is long is compressed, and changes come as one stream."""

from __future__ import annotations

import asyncio
import gzip

from msgspec import json

from phalanx.api.schema import sse
from phalanx.api.schema.pages import (
    ChangesView,
    JobRows,
    JobRowsQuery,
    MapView,
    OverviewView,
    TaskStates,
    TimesQuery,
    TimesView,
)
from phalanx.api.schema.queries import EventsQuery, NoQuery
from phalanx.api.server.messages import HttpRequest, Response, StreamedResponse, encoded_reply
from phalanx.api.server.route import Route, Service, all_alike, held
from phalanx.api.server.routes.cluster import last_event_id
from phalanx.api.server.shared_answers import REVISION
from phalanx.core.model.job import is_job_id
from phalanx.errors import BadRequest

PACKED_FROM = 4096  # bytes
IN_THREAD_FROM = 256 * 1024
_encode = json.Encoder().encode


async def overview(service: Service, http_request: HttpRequest) -> Response:
    return await _packed(http_request, await service.commands.overview())


async def map(service: Service, http_request: HttpRequest) -> Response:  # noqa: A001 - the page calls it so
    return await _packed(http_request, await service.commands.map())


async def job_rows(service: Service, http_request: HttpRequest) -> Response:
    return await _packed(http_request, await service.commands.job_rows(http_request.query, http_request.user))


async def task_states(service: Service, http_request: HttpRequest) -> Response:
    return await _packed(http_request, await service.commands.task_states(http_request.id))


async def times(service: Service, http_request: HttpRequest) -> Response:
    query: TimesQuery = http_request.query
    if query.since is not None and query.until is not None and query.since >= query.until:
        raise BadRequest(f"since = {query.since:g}: expected less than until = {query.until:g}")
    if query.job and not is_job_id(query.job[:26]):
        named = await service.id_named(http_request, query.job)
        query = TimesQuery(query.since, query.until, query.node, named.partition(".")[0], query.limit)
    return await _packed(http_request, await service.commands.times(query))


async def changes(service: Service, http_request: HttpRequest) -> StreamedResponse[tuple[int, bytes] | None]:
    query: EventsQuery = http_request.query
    after = last_event_id(http_request, query.after)
    items = held(service, http_request, service.commands.changes(after))
    first = _spell(await anext(items, None))
    return StreamedResponse(
        ((b"content-type", sse.MEDIA_TYPE.encode()),),
        b"retry: 1000\n\n" + first,
        items,
        _spell,
        sse.spell_error,
    )


def _spell(item: tuple[int, bytes] | None) -> bytes:
    if item is None:
        return sse.KEEP_ALIVE
    revision, body = item
    return b"id: %d\nevent: changes\ndata: %b\n\n" % (revision, body)


def _user_if_mine(http_request: HttpRequest) -> str:
    query: JobRowsQuery = http_request.query
    return http_request.user if query.mine else ""


def _asker_if_named(http_request: HttpRequest) -> tuple[str, str]:
    """The name of a job may mean another one for another user, and with a token of more power."""
    query: TimesQuery = http_request.query
    return (http_request.user, http_request.identity.role) if query.job else ("", "")


async def _packed(
    http_request: HttpRequest, value: OverviewView | MapView | JobRows | TaskStates | TimesView
) -> Response:
    """JSON, compressed if the browser takes that. It holds nothing secret beside what the asker chose."""
    body = _encode(value)
    reply = encoded_reply(body)
    reply.headers += ((REVISION, b"%d" % value.revision),)
    if len(body) < PACKED_FROM or b"gzip" not in http_request.headers.get(b"accept-encoding", b""):
        return reply
    if len(body) >= IN_THREAD_FROM:
        reply.body = await asyncio.to_thread(gzip.compress, body, 1, mtime=0)
    else:
        reply.body = gzip.compress(body, 1, mtime=0)
    reply.headers += ((b"content-encoding", b"gzip"), (b"vary", b"accept-encoding"))
    return reply


ROUTES = (
    Route(
        method="GET",
        path="/v1/pages/overview",
        permission="read",
        handler=overview,
        summary="The cluster in one look: use, alarms, why jobs wait.",
        answer=OverviewView,
        sees=all_alike,
    ),
    Route(
        method="GET",
        path="/v1/pages/map",
        permission="read",
        handler=map,
        summary="Every node in its domains, and who holds its devices.",
        answer=MapView,
        sees=all_alike,
    ),
    Route(
        method="GET",
        path="/v1/pages/jobs",
        permission="read",
        handler=job_rows,
        summary="Rows of jobs, filtered, searched and sorted, from any row on.",
        answer=JobRows,
        query=JobRowsQuery,
        sees=_user_if_mine,
    ),
    Route(
        method="GET",
        path="/v1/pages/times",
        permission="read",
        handler=times,
        summary="What ran, runs and is to start in a time.",
        answer=TimesView,
        query=TimesQuery,
        sees=_asker_if_named,
    ),
    Route(
        method="GET",
        path="/v1/pages/changes",
        permission="read",
        handler=changes,
        summary="Changes as server-sent events, a few a second at most; 410 if too much has changed since.",
        answer=None,
        query=EventsQuery,
        header="Last-Event-ID",
        media=sse.MEDIA_TYPE,
        lasting=True,
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}/states",
        permission="follow",
        handler=task_states,
        summary="A letter for each task of a job.",
        answer=TaskStates,
        query=NoQuery,
        is_about_a_job=True,
        sees=all_alike,
    ),
)
CHANGES = ChangesView  # what the data of `changes` is
