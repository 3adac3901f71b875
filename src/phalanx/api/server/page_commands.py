"""What the REST app may ask for the dashboard; `commands.py` has the rest."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from phalanx.api.schema.apply import PlanReply
from phalanx.api.schema.attempts import AttemptView
from phalanx.api.schema.pages import (
    JobRows,
    JobRowsQuery,
    MapView,
    OverviewView,
    TaskStates,
    TimesQuery,
    TimesView,
)
from phalanx.core.explain.change import ADMIN, Asker


class PageCommands(Protocol):
    """What is made for the page, and once for all who ask alike."""

    def revision(self) -> int:
        """Of the state as this coordinator knows it now."""
        ...

    async def overview(self) -> OverviewView: ...

    async def map(self) -> MapView: ...

    async def job_rows(self, query: JobRowsQuery, user: str) -> JobRows: ...

    async def plan_job(self, id: str, asker: Asker = ADMIN) -> PlanReply:
        """Where the next pass would place what waits of a job. Conflict if nothing of it waits."""
        ...

    async def task_states(self, id: str) -> TaskStates: ...

    async def attempts(self, id: str) -> list[AttemptView]:
        """The attempts of one task, the oldest first, as far back as its events are kept."""
        ...

    async def times(self, query: TimesQuery) -> TimesView: ...

    def changes(self, after: int | None) -> AsyncIterator[tuple[int, bytes]]:
        """Revisions with `ChangesView`s as JSON, a few a second at most. Gone if too much has changed since `after`."""
        ...
