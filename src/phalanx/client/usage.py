"""Calls about usage, as values, and as methods of both clients."""

from __future__ import annotations

from datetime import datetime

from phalanx.api.schema.usage import ReportBy, ReportReply, UsageReply
from phalanx.client.calls import Call, get, noun_of, path_of, query_of
from phalanx.client.environments import AsyncEnvironmentCalls, EnvironmentCalls
from phalanx.client.ids import AnyId

Moment = float | datetime


def usage_call(id: AnyId, points: int, cursor: str | None, limit: int) -> Call[UsageReply]:
    return get(
        path_of(noun_of(id), id, "usage"), UsageReply, query_of(points=points, cursor=cursor, limit=limit)
    )


def report_call(
    by: ReportBy,
    user: str | None,
    queue: str | None,
    since: Moment | None,
    until: Moment | None,
    limit: int,
) -> Call[ReportReply]:
    query = query_of(by=by, user=user, queue=queue, since=_seconds(since), until=_seconds(until), limit=limit)
    return get("/v1/report", ReportReply, query)


def _seconds(at: Moment | None) -> float | None:
    return at.timestamp() if isinstance(at, datetime) else at


class UsageCalls(EnvironmentCalls):
    """What a client has of usage, and of the variables of jobs."""

    def usage(
        self, id: AnyId, *, points: int = 60, cursor: str | None = None, limit: int = 100
    ) -> UsageReply:
        """What a job or task uses or used, against what it asked for; a running task with a curve of so many points."""
        reply: UsageReply = self._ask(usage_call(id, points, cursor, limit))
        return reply

    def report(
        self,
        by: ReportBy = "user",
        *,
        user: str | None = None,
        queue: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        limit: int = 1000,
    ) -> ReportReply:
        """What users, queues or jobs were granted, used and cost, of jobs that ended in a time and those that live."""
        reply: ReportReply = self._ask(report_call(by, user, queue, since, until, limit))
        return reply


class AsyncUsageCalls(AsyncEnvironmentCalls):
    """The same for asyncio."""

    async def usage(
        self, id: AnyId, *, points: int = 60, cursor: str | None = None, limit: int = 100
    ) -> UsageReply:
        reply: UsageReply = await self._ask(usage_call(id, points, cursor, limit))
        return reply

    async def report(
        self,
        by: ReportBy = "user",
        *,
        user: str | None = None,
        queue: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        limit: int = 1000,
    ) -> ReportReply:
        reply: ReportReply = await self._ask(report_call(by, user, queue, since, until, limit))
        return reply
