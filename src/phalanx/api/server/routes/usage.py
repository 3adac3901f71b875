"""The routes of usage: of one job or task, and reports over all jobs that are kept.

Everybody who may see a job may see what it uses. In a report a user sees own jobs; the roles that look after a cluster
or may only look see all.
"""

from __future__ import annotations

from msgspec import structs

from phalanx.api.schema.usage import ReportQuery, ReportReply, UsageQuery, UsageReply
from phalanx.api.server.messages import HttpRequest, Response, json_reply
from phalanx.api.server.route import Route, Service
from phalanx.errors import Forbidden

SEE_OWN = ("user", "task")


async def usage(service: Service, http_request: HttpRequest) -> Response:
    query: UsageQuery = http_request.query
    return json_reply(
        await service.commands.usage(
            http_request.id, points=query.points, cursor=query.cursor, limit=query.limit
        )
    )


async def report(service: Service, http_request: HttpRequest) -> Response:
    query: ReportQuery = http_request.query
    if http_request.identity.role in SEE_OWN:
        if query.user not in (None, http_request.user):
            raise Forbidden(
                f"the report of {query.user} takes the role viewer, operator or admin",
                reason="Forbidden",
                hint="without --user the report has your own jobs",
            )
        query = structs.replace(query, user=http_request.user)
    return json_reply(await service.commands.report(query))


ROUTES = (
    *(
        Route(
            method="GET",
            path=f"/v1/{noun}s/{{id}}/usage",
            permission="follow",
            handler=usage,
            summary=f"What a {noun} uses or used: processors, memory, I/O and devices, against what it asked for.",
            answer=UsageReply,
            query=UsageQuery,
            is_about_a_job=True,
        )
        for noun in ("job", "task")
    ),
    Route(
        method="GET",
        path="/v1/report",
        permission="read",
        handler=report,
        summary="What users, queues or jobs were granted, used and cost. Users see their own jobs.",
        answer=ReportReply,
        query=ReportQuery,
    ),
)
