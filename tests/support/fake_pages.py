"""Fake of the commands of the dashboard: an empty cluster, and one message of changes."""

from __future__ import annotations

from collections.abc import AsyncIterator

from phalanx.api.schema.apply import PlanReply
from phalanx.api.schema.attempts import AttemptView
from phalanx.api.schema.cluster import ClusterView
from phalanx.api.schema.jobs import Counts
from phalanx.api.schema.pages import (
    HeldCounts,
    JobRows,
    JobRowsQuery,
    MapView,
    NodeCounts,
    OverviewView,
    TaskStates,
    TimesQuery,
    TimesView,
    UseHistory,
)
from phalanx.core.explain.change import ADMIN, Asker


class FakePages:
    """The part of `Commands` that is made for the page."""

    async def cluster(self) -> ClusterView:
        raise NotImplementedError

    async def overview(self) -> OverviewView:
        use = UseHistory(60.0, [], [], [], [], [], [], [])
        nodes, held = NodeCounts(0, 0, 0, 0, 0), HeldCounts(0, 0, 0)
        return OverviewView(
            1.0, 1, await self.cluster(), Counts(), 0, nodes, held, held, [], [], [], 0.0, use
        )

    async def map(self) -> MapView:
        return MapView(1.0, 1, ["rack"], [], [])

    async def job_rows(self, query: JobRowsQuery, user: str) -> JobRows:
        return JobRows(1.0, 1, 0, query.offset, [])

    async def plan_job(self, id: str, asker: Asker = ADMIN) -> PlanReply:
        return PlanReply([], [], [], 0)

    async def attempts(self, id: str) -> list[AttemptView]:
        return []

    async def task_states(self, id: str) -> TaskStates:
        return TaskStates(1, id, 1, "P", Counts(1), 0, 1, [])

    async def times(self, query: TimesQuery) -> TimesView:
        return TimesView(1.0, 1, query.since or 0.0, query.until or 1.0, [], [], [], False)

    async def changes(self, after: int | None) -> AsyncIterator[tuple[int, bytes]]:
        yield 1, b"{}"
