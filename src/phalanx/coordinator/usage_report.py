"""`phalanx report`: what users, queues or jobs were granted and used, over all jobs that are kept.

Jobs in memory and in the history are gone through once, in pieces between which others are served. Only rows are held,
and no more of them than asked for: what comes after that is added to one row for all others, so that the total is right
however many there are. A job counts in the time in which it ended, one that has not ended counts now.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from phalanx.api.schema.usage import ReportQuery, ReportReply, ReportRow
from phalanx.api.server.limits import TimeSlices
from phalanx.clock import Clock
from phalanx.coordinator.requests import Requests
from phalanx.coordinator.usage import add_running
from phalanx.coordinator.views_usage import sums_view
from phalanx.core.cluster.usage_image import past_usage
from phalanx.core.cluster.workflow_image import is_workflow
from phalanx.core.model.job import Job
from phalanx.core.model.usage import UsageTotals
from phalanx.errors import BadRequest
from phalanx.store.protocol import Store

RECORDS_PER_PAGE = 50
TOTAL, OTHERS = "total", "others"


class _Row:
    """The sums of one row."""

    __slots__ = ("job", "jobs", "key", "number", "status", "tasks", "totals")

    def __init__(self, key: str, job: Job | None = None, status: str = "", number: int = 0) -> None:
        self.key, self.job, self.status, self.number = key, job, status, number
        self.jobs = self.tasks = 0
        self.totals = UsageTotals()

    def add(self, tasks: int, totals: UsageTotals) -> None:
        self.jobs += 1
        self.tasks += tasks
        self.totals.add(totals)

    def view(self) -> ReportRow:
        sums = sums_view(self.totals, self.tasks)
        if self.job is None:
            return ReportRow(self.key, self.jobs, sums)
        job = self.job
        return ReportRow(self.key, self.jobs, sums, job.name, job.user, job.queue, self.status, self.number)


class UsageReports:
    """Makes reports from the state and the store."""

    def __init__(self, loop: Requests, store: Store, clock: Clock, slices: TimeSlices) -> None:
        self._loop = loop
        self._store = store
        self._clock = clock
        self._slices = slices

    async def report(self, query: ReportQuery) -> ReportReply:
        if query.since is not None and query.until is not None and query.until <= query.since:
            raise BadRequest(
                f"until = {query.until:.0f} is not after since = {query.since:.0f}", reason="BadPeriod"
            )
        now = self._clock.now()
        rows: dict[str, _Row] = {}
        total, others = _Row(TOTAL), _Row(OTHERS)
        async for job, number, status, totals in self._jobs(query, now):
            total.add(job.tasks, totals)
            key = job.id if query.by == "job" else job.user if query.by == "user" else job.queue
            row = rows.get(key)
            if row is None and len(rows) < query.limit:
                row = rows[key] = _Row(key, job if query.by == "job" else None, status, number)
            (row or others).add(job.tasks, totals)
        ordered = sorted(rows.values(), key=lambda each: (-each.totals.cost, -each.totals.core_s, each.key))
        return ReportReply(
            by=query.by,
            since=query.since,
            until=query.until,
            at=now,
            rows=[row.view() for row in ordered],
            total=total.view(),
            others=others.view() if others.jobs else None,
        )

    async def _jobs(self, query: ReportQuery, now: float) -> AsyncIterator[tuple[Job, int, str, UsageTotals]]:
        """Every job that counts, each once: what left memory meanwhile is found in the history, which is read last."""
        seen: set[str] = set()
        state = self._loop.state
        piece = await self._slices.turn()
        for id in list(state.jobs):
            if piece.is_over:
                piece = await self._slices.turn()
            job = state.jobs.get(id)
            if job is None:
                continue
            seen.add(id)
            if _is_wanted(query, job.job) and _is_within(query, job.ended_at if job.is_over else None, now):
                totals = UsageTotals()
                totals.add(job.usage.totals)
                add_running(state, job, totals, now)
                yield job.job, job.arrival, job.overall_status.word, totals
        before: str | None = None
        while records := await self._store.past(before, RECORDS_PER_PAGE):
            for record in records:
                if piece.is_over:
                    piece = await self._slices.turn()
                if record.job in seen or is_workflow(record.body):
                    continue
                past = past_usage(record.body)
                if _is_wanted(query, past.job) and _is_within(query, past.ended_at, now):
                    yield past.job, past.number, "Ended", past.totals
            before = records[-1].job


def _is_wanted(query: ReportQuery, job: Job) -> bool:
    return query.user in (None, job.user) and query.queue in (None, job.queue)


def _is_within(query: ReportQuery, ended_at: float | None, now: float) -> bool:
    """Whether a job counts: by its end, or now if it has not ended."""
    at = now if ended_at is None else ended_at
    after = query.since is None or at >= query.since
    return after and (query.until is None or at < query.until or (ended_at is None and query.until >= now))
