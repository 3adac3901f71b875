"""Attempts in time: those that run, the last attempts of tasks that ended, and what the planner keeps places for.

Of an attempt that ended the state keeps when and on which node; its devices are known of those that ended while this
coordinator looked on. Earlier attempts of a task are in its story. Jobs that have left memory are not told; an answer
says since when all are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from math import isfinite

from phalanx.api.schema.pages import FutureStart, TimeBar, TimesQuery, TimesView
from phalanx.api.server.limits import TimeSlices
from phalanx.clock import Clock
from phalanx.coordinator import lookup
from phalanx.coordinator.pages.map import holder
from phalanx.coordinator.requests import Requests
from phalanx.coordinator.turn import Turn
from phalanx.core.cluster.events import AttemptEnded, TaskPlaced
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.units import Attempt
from phalanx.core.explain.reserved import forecast, head_of
from phalanx.core.model.orders import AttemptKey, Status, Why
from phalanx.errors import NotFound
from phalanx.store.protocol import Store

HOUR_S = 3600.0
GRANTS_KEPT = 50_000
POSITIONS_PER_GLANCE = 256
FORECAST_S = 5.0  # for so long a forecast is told as it is
FORECAST_SHARE = 50.0  # or so many times as long as it took


class Grants:
    """The devices of attempts of late, by attempt: the state forgets them with the attempt."""

    def __init__(self) -> None:
        self._devices: OrderedDict[AttemptKey, tuple[int, ...]] = OrderedDict()

    def note(self, turn: Turn) -> None:
        for event in turn.events:
            if isinstance(event, TaskPlaced) and event.grant.devices:
                self._devices[event.key] = event.grant.devices
                if len(self._devices) > GRANTS_KEPT:
                    self._devices.popitem(last=False)
            elif isinstance(event, AttemptEnded) and event.key in self._devices:
                self._devices.move_to_end(event.key)

    def of(self, key: AttemptKey) -> list[int]:
        return list(self._devices.get(key, ()))


class TimeReads:
    """Bars for the page."""

    def __init__(
        self, loop: Requests, store: Store, clock: Clock, slices: TimeSlices, grants: Grants
    ) -> None:
        self._loop = loop
        self._store = store
        self._clock = clock
        self._slices = slices
        self._grants = grants
        self._future: list[FutureStart] = []
        self._forecast_again_at = -1.0

    async def times(self, query: TimesQuery) -> TimesView:
        now = self._clock.now()
        until = now if query.until is None else query.until
        since = until - HOUR_S if query.since is None else query.since
        state = self._loop.state
        revision = state.revision  # what changes meanwhile is told by the stream after it
        if query.node is not None and query.node not in state.nodes:
            raise NotFound(f"no node {query.node[:80]!r}", reason="NodeNotFound")
        if query.job is not None:
            jobs = [await lookup.find_job(self._loop, self._store, query.job)]
        else:
            jobs = list(state.jobs.values())
        found: list[TimeBar] = []
        of: dict[str, JobState] = {}
        piece = await self._slices.turn()
        for job in reversed(jobs):
            if piece.is_over:
                piece = await self._slices.turn()
            if _is_outside(job, since, until):
                continue
            for number, bar in enumerate(self._bars(state, job, since, until, query.node)):
                found.append(bar)
                of[job.job.id] = job
                if not number % POSITIONS_PER_GLANCE and piece.is_over:
                    piece = await self._slices.turn()
                if len(found) > query.limit:
                    break
            if len(found) > query.limit:
                break
        shown = [holder(state, job) for job in of.values()]
        left_out = len(found) > query.limit
        bars = sorted(found[: query.limit], key=lambda bar: (bar.node, bar.started_at))
        await self._foresee(query)
        known = {each.id for each in shown}
        ahead = dict.fromkeys(each.id for each in self._future if each.id in state.jobs)
        shown += [holder(state, state.jobs[id]) for id in ahead if id not in known]
        whole = _whole_since(state, now) if query.job is None else None
        return TimesView(now, revision, since, until, bars, shown, self._future, left_out, whole)

    def _bars(
        self, state: ClusterState, job: JobState, since: float, until: float, node: str | None
    ) -> Iterator[TimeBar]:
        for position, attempt in list(job.live.items()):
            at = attempt.started_at or attempt.placed_at
            if at < until and node in (None, attempt.node):
                yield _live_bar(job, position, attempt, at)
        if job.times is None or job.nodes is None:
            return
        names = state.known_names
        for position, row in enumerate(job.nodes):
            if not row or position in job.live:
                continue
            started_at, ended_at = job.times[2 * position], job.times[2 * position + 1]
            name = names[row - 1] if row <= len(names) else ""
            if ended_at >= since and 0 < started_at < until and node in (None, name):
                yield self._ended_bar(job, position, name, started_at, ended_at)

    def _ended_bar(
        self, job: JobState, position: int, node: str, started_at: float, ended_at: float
    ) -> TimeBar:
        attempt, why = job.attempts[position], Why(job.why[position])
        return TimeBar(
            job.arrival,
            position,
            attempt,
            node,
            started_at,
            ended_at,
            status=Status(job.status[position]).word,
            reason="" if why is Why.NONE else why.word,
            devices=self._grants.of((job.job.id, position, attempt)),
        )

    async def _foresee(self, query: TimesQuery) -> None:
        """When the head of the queue starts, as a plan would work it out now."""
        if self._clock.monotonic() < self._forecast_again_at:
            return
        await self._slices.turn()
        began = self._clock.monotonic()
        self._future = list(_future(self._loop, self._clock.now()))
        took_s = self._clock.monotonic() - began
        self._forecast_again_at = self._clock.monotonic() + max(FORECAST_S, FORECAST_SHARE * took_s)


def _future(loop: Requests, now: float) -> Iterator[FutureStart]:
    """Promises, which are kept, and then the head's reservation."""
    state, engine = loop.state, loop.engine
    for id in state.promised:
        job = state.jobs[id]
        if job.promise is not None:
            nodes = sorted({place[0] for place in job.promise.members.values()})
            yield FutureStart(job.arrival, id, nodes, text="places are promised; their holders are leaving")
    snapshot = state.snapshot(now, engine.memory)
    unit = head_of(snapshot)
    found = None if unit is None else forecast(snapshot, unit, engine.policy)
    if unit is None or found is None:
        return
    job = state.jobs[unit.job.id]
    at = found.at if isfinite(found.at) else None
    passes_s = found.passes_s if isfinite(found.passes_s) else 0.0
    yield FutureStart(
        job.arrival, job.job.id, list(found.nodes), at, passes_s, "places are kept for the first in the queue"
    )


def _live_bar(job: JobState, position: int, attempt: Attempt, at: float) -> TimeBar:
    limit_s = job.job.time_limit_s
    return TimeBar(
        job.arrival,
        position,
        attempt.key[2],
        attempt.node,
        at,
        limit_at=None if limit_s is None or attempt.started_at is None else at + limit_s,
        status=Status.RUNNING.word if attempt.started_at is not None else Status.ASSIGNED.word,
        devices=list(attempt.grant.devices),
    )


def _whole_since(state: ClusterState, now: float) -> float | None:
    """From when on every job that ended is in memory; None if none has left it."""
    if len(state.jobs) + len(state.workflows) >= state.arrivals:
        return None
    oldest = next((state.jobs[id].ended_at for id in state.ended), None)
    return now if oldest is None else oldest


def _is_outside(job: JobState, since: float, until: float) -> bool:
    """Whether nothing of a job ran in a time."""
    if job.live:
        return False
    begun = job.first_started_at
    return begun is None or begun >= until or (job.ended_at is not None and job.ended_at < since)
