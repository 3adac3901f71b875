"""Usage of jobs and tasks: what has ended is known here, what runs is asked of the runners.

Runners are asked over the connection for logs, each once for all its attempts, several at the same time. One that does
not answer costs only the numbers of its own tasks. Nothing of it is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from phalanx.api.schema.usage import TaskUsage, UsageReply
from phalanx.clock import Clock
from phalanx.coordinator import lookup
from phalanx.coordinator.logs import LogLinks
from phalanx.coordinator.requests import Requests
from phalanx.coordinator.views import task_number
from phalanx.coordinator.views_usage import device_view, ended_usage, point_view, summary, sums_view
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.units import Attempt
from phalanx.core.model.amounts import MILLI, MILLICORES
from phalanx.core.model.cost import held_rate
from phalanx.core.model.orders import AttemptKey, Status
from phalanx.core.model.usage import UsageTotals, run_seconds
from phalanx.errors import BadRequest
from phalanx.link.usage import KEYS_MAX, AttemptSamples
from phalanx.store.protocol import Store

ASKED_MAX = 10_000  # running attempts of one job; of more, only some are in the sums
NODES_AT_ONCE = 64
NOT_SAMPLED = "its runner has not sampled it yet, is not connected, or does not sample usage"
NOT_MEASURED = "its usage was not measured"
NOT_RUN = "it has not run"


class UsageReads:
    """Answers `phalanx usage`."""

    def __init__(self, loop: Requests, store: Store, log_links: LogLinks, clock: Clock) -> None:
        self._loop = loop
        self._store = store
        self._log_links = log_links
        self._clock = clock

    async def usage(self, id: str, *, points: int, cursor: str | None, limit: int) -> UsageReply:
        """One task with its curve, or a page of the tasks of a job; sums are those of the whole job."""
        job, position = await lookup.find_task(self._loop, self._store, id)
        first = _first(cursor) if position is None else position
        last = min(len(job.status), first + limit) if position is None else position + 1
        samples, interval_s = await self._samples(job.live.values(), points if position is not None else 0)
        job = self._loop.state.jobs.get(job.job.id, job)  # it went on meanwhile
        last = min(last, len(job.status))
        now, state = self._clock.now(), self._loop.state
        whole = job.overall_status if position is None else Status(job.status[position])
        return UsageReply(
            id=job.job.id if position is None else job.job.task_id(position),
            status=whole.word,  # type: ignore[arg-type]  # the names are those of the table
            tasks=[_task(job, each, samples, state.known_names, now) for each in range(first, last)],
            totals=sums_view(_totals(state, job, samples, now), len(job.status)),
            at=now,
            interval_s=interval_s,
            next_cursor=str(last) if position is None and last < len(job.status) else None,
        )

    async def _samples(
        self, attempts: Iterable[Attempt], points: int
    ) -> tuple[dict[AttemptKey, AttemptSamples], float | None]:
        by_node: dict[str, list[AttemptKey]] = {}
        for attempt, _ in zip(attempts, range(ASKED_MAX), strict=False):
            by_node.setdefault(attempt.node, []).append(attempt.key)
        questions = [
            (node, keys[at : at + KEYS_MAX])
            for node, keys in by_node.items()
            for at in range(0, len(keys), KEYS_MAX)
        ]
        gate = asyncio.Semaphore(NODES_AT_ONCE)

        async def ask(node: str, keys: list[AttemptKey]) -> tuple[list[AttemptSamples], float]:
            async with gate:
                data = await self._log_links.usage(node, keys, points)
            asked = set(keys)
            return (
                ([], 0.0)
                if data is None
                else (
                    [each for each in data.attempts if each.key in asked],
                    data.interval_s,
                )
            )

        found = await asyncio.gather(*(ask(node, keys) for node, keys in questions))
        intervals = [interval_s for _, interval_s in found if interval_s]
        return {each.key: each for part, _ in found for each in part}, max(intervals, default=None)


def _task(
    job: JobState, position: int, samples: dict[AttemptKey, AttemptSamples], names: list[str], now: float
) -> TaskUsage:
    request, live = job.group_of(position).request, job.live.get(position)
    node_number = job.node_number(position, job.attempts[position])
    view = TaskUsage(
        id=job.job.task_id(position),
        status=Status(job.status[position]).word,  # type: ignore[arg-type]  # as above
        attempt=job.attempts[position],
        node=None if node_number is None or node_number >= len(names) else names[node_number],
        run_s=_run_s(job, position, live, now),
        cores=request.cores,
        memory_bytes=request.memory_bytes,
        gpus=request.gpus,
        number=task_number(job, position),
    )
    if live is None:
        view.summary = ended_usage(job, position)
        view.note = "" if view.summary is not None else NOT_MEASURED if view.run_s else NOT_RUN
    elif (found := samples.get(live.key)) is None:
        view.note = NOT_SAMPLED if live.started_at is not None else NOT_RUN
    else:
        view.summary = summary(job, position, found.usage, view.run_s)
        view.now = None if found.last is None else point_view(found.last)
        view.devices = [device_view(each) for each in found.devices]
        view.points = [point_view(each) for each in found.points]
        view.source = found.source
    return view


def _run_s(job: JobState, position: int, live: Attempt | None, now: float) -> float:
    if live is None:
        return run_seconds(job.started_at(position), job.finished_at(position))
    return run_seconds(live.started_at, now)


def _totals(
    state: ClusterState, job: JobState, samples: dict[AttemptKey, AttemptSamples], now: float
) -> UsageTotals:
    """All attempts that have ended, and those that run with what they used so far."""
    totals = UsageTotals()
    totals.add(job.usage.totals)
    add_running(state, job, totals, now, samples)
    return totals


def add_running(
    state: ClusterState,
    job: JobState,
    totals: UsageTotals,
    now: float,
    samples: dict[AttemptKey, AttemptSamples] | None = None,
) -> None:
    """Add what running attempts have held so far, and what they used as far as it is known."""
    for attempt in job.live.values():
        if attempt.started_at is None or attempt.node not in state.nodes:
            continue
        held, run_s = attempt.grant, max(0.0, now - attempt.since)
        cores = MILLICORES[held.cores] / MILLI
        totals.hold(run_s, cores, len(held.devices), held_rate(state.nodes[attempt.node].capacity, held))
        if samples is not None and (found := samples.get(attempt.key)) is not None:
            totals.use(found.usage, run_s, cores, held.memory_bytes)


def _first(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= 15):
        raise BadRequest(f"{cursor[:80]!r} is not a cursor of this list", reason="BadCursor")
    return int(cursor)
