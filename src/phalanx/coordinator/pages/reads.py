"""What the dashboard asks of a coordinator, put together; what it shares with other reads is given by those."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from phalanx.api.schema.cluster import ClusterView
from phalanx.api.schema.jobs import Counts
from phalanx.api.schema.pages import (
    JobRows,
    JobRowsQuery,
    MapHolder,
    MapNode,
    MapView,
    OverviewView,
    TaskStates,
    TimesQuery,
    TimesView,
)
from phalanx.api.server.limits import TimeSlices
from phalanx.clock import Clock
from phalanx.coordinator import lookup
from phalanx.coordinator.idle_devices import IdleDevices
from phalanx.coordinator.pages.changed import Changed
from phalanx.coordinator.pages.job_rows import JobRowReads
from phalanx.coordinator.pages.map import holder, indexes_of, layers, map_node
from phalanx.coordinator.pages.overview import Overview
from phalanx.coordinator.pages.stream import ChangeStream
from phalanx.coordinator.pages.times import Grants, TimeReads
from phalanx.coordinator.pages.use_history import UseRing
from phalanx.coordinator.pages.waiting import Ask
from phalanx.coordinator.requests import Requests
from phalanx.coordinator.turn import Turn
from phalanx.coordinator.views import ranks
from phalanx.core.cluster.state import ClusterState
from phalanx.store.protocol import Store

MAP_S = 1.0  # for so long a map is told as it is
CHARACTERS = bytes.maketrans(bytes(range(6)), b"PARCFX")


class PageReads:
    """The reads of the page, and what they have to hear of."""

    def __init__(
        self,
        loop: Requests,
        store: Store,
        clock: Clock,
        slices: TimeSlices,
        idle: IdleDevices,
        cluster: Callable[[], Awaitable[ClusterView]],
        reasons: Ask,
    ) -> None:
        self._loop = loop
        self._store = store
        self._clock = clock
        self._slices = slices
        self._idle = idle
        self._changed = Changed()
        self._grants = Grants()
        self.use = UseRing(loop, clock)

        self.overview_reads = Overview(loop, clock, slices, idle, self._changed, self.use, cluster, reasons)
        self._rows = JobRowReads(loop, store, clock, slices, self._changed, self.overview_reads.words)
        self._times = TimeReads(loop, store, clock, slices, self._grants)
        self._stream = ChangeStream(loop, clock, idle, self._changed, self.overview_reads.words)
        self._map: MapView | None = None  # as it was drawn last
        self._drawing = asyncio.Lock()

    def note(self, turn: Turn, state: ClusterState) -> None:
        """A turn is durable, of this coordinator or of one whose log it follows."""
        self._changed.note(turn, state)
        self._grants.note(turn)

    def reset(self, state: ClusterState) -> None:
        """The state was read anew."""
        self._changed.reset(state)
        self._map = None

    def revision(self) -> int:
        return self._loop.state.revision

    async def overview(self) -> OverviewView:
        return await self.overview_reads.overview()

    async def map(self) -> MapView:
        async with self._drawing:
            now = self._clock.now()
            if self._map is None or not 0 <= now - self._map.at < MAP_S:
                self._map = await self._drawn(now)
            return self._map

    async def _drawn(self, now: float) -> MapView:
        state = self._loop.state
        revision = state.revision  # what changes meanwhile is told by the stream after it
        nodes: list[MapNode] = []
        ids: dict[str, None] = {}
        piece = await self._slices.turn()
        for name in [state.table.names[row] for row in state.table.tree.order.tolist()]:
            if piece.is_over:
                piece = await self._slices.turn()
            node = state.nodes.get(name)
            if node is not None:
                nodes.append(map_node(state, node, self._idle))
                ids |= dict.fromkeys(key[0] for key in node.attempts)
        holders: list[MapHolder] = []
        for id in ids:
            if piece.is_over:
                piece = await self._slices.turn()
            if id in state.jobs:
                holders.append(holder(state, state.jobs[id]))
        return MapView(now, revision, layers(state), nodes, holders)

    async def job_rows(self, query: JobRowsQuery, user: str) -> JobRows:
        if query.reason:
            await self.overview_reads.counted()
        self.overview_reads.count_soon()
        return await self._rows.job_rows(query, user)

    async def task_states(self, id: str) -> TaskStates:
        job = await lookup.find_job(self._loop, self._store, lookup.job_part(id))
        await self._slices.turn()  # a million letters take milliseconds
        states = bytearray(bytes(job.status).translate(CHARACTERS))
        for position, attempt in job.live.items():
            if attempt.paused:
                states[position] = ord("p")
        for position in job.done:
            states[position] = ord("d")
        first, step = indexes_of(job)
        by_position = ranks(job)
        known = [by_position.get(position, -1) for position in range(job.job.tasks)] if by_position else []
        return TaskStates(
            job.arrival,
            job.job.id,
            self._loop.state.revision,
            states.decode(),
            Counts(*job.counts),
            first,
            step,
            known,
        )

    async def times(self, query: TimesQuery) -> TimesView:
        return await self._times.times(query)

    def changes(self, after: int | None) -> AsyncIterator[tuple[int, bytes]]:
        return self._stream.changes(after)
