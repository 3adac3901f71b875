"""The overview: counts, alarms, why jobs wait, and the use of the last day. It is made once for all who ask."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from phalanx.api.schema.cluster import ClusterView
from phalanx.api.schema.jobs import Counts
from phalanx.api.schema.pages import AlarmView, OverviewView, WaitingReason
from phalanx.api.server.limits import TimeSlices
from phalanx.clock import Clock
from phalanx.coordinator.idle_devices import IdleDevices, idle_text
from phalanx.coordinator.pages.changed import Changed
from phalanx.coordinator.pages.failures import failed_jobs
from phalanx.coordinator.pages.totals import core_counts, gpu_counts, node_counts
from phalanx.coordinator.pages.use_history import UseRing
from phalanx.coordinator.pages.waiting import Ask, WaitingWords, count_waiting
from phalanx.coordinator.requests import Requests
from phalanx.coordinator.views_cluster import node_status, note_of
from phalanx.coordinator.waiting_jobs import waiting_tasks
from phalanx.core.cluster.nodes import NodeState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.amounts import describe_seconds, plural
from phalanx.core.model.orders import Status
from phalanx.errors import Unavailable

ALARMS_MAX = 200
RECENT_MAX = 50
RECENT_S = 86_400.0
FRESH_S = 1.0  # for so long an overview is told as it is
WAITING_S = 3.0  # and the reasons of waiting
WAITING_OLD_S = 5.0  # an answer does not tell older ones
WAITING_SHARE = 30.0  # or so many times as long as they took to count
RANKS = {"critical": 0, "warning": 1, "notice": 2}
BEHIND_S = 5.0


class Overview:
    """What the first page shows."""

    def __init__(
        self,
        loop: Requests,
        clock: Clock,
        slices: TimeSlices,
        idle: IdleDevices,
        changed: Changed,
        use: UseRing,
        cluster: Callable[[], Awaitable[ClusterView]],
        reasons: Ask,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._slices = slices
        self._idle = idle
        self._changed = changed
        self._use = use
        self._cluster = cluster
        self._reasons = reasons
        self._lock = asyncio.Lock()
        self._made: OverviewView | None = None
        self._waiting: list[WaitingReason] = []
        self.words = WaitingWords()
        self._waiting_at, self._count_again_at = 0.0, -1.0
        self._counting: asyncio.Task[None] | None = None

    async def overview(self) -> OverviewView:
        async with self._lock:
            now = self._clock.now()
            if self._made is None or not 0 <= now - self._made.at < FRESH_S:
                self._made = await self._make()
            return self._made

    async def _make(self) -> OverviewView:
        await self.counted()
        revision = self._loop.state.revision  # what changes meanwhile is told by the stream after it
        cluster = await self._cluster()
        state = self._loop.state
        alarms = [*_of_cluster(cluster), *await self._of_nodes(state)]
        alarms.sort(key=lambda each: (RANKS[each.severity], each.subject))
        jobs, waiting = await self._jobs(state)
        return OverviewView(
            self._clock.now(),
            revision,
            cluster,
            jobs,
            waiting,
            node_counts(state),
            gpu_counts(state),
            core_counts(state),
            alarms[:ALARMS_MAX],
            await self._recent(state),
            self._waiting,
            self._waiting_at,
            self._use.told(),
        )

    async def _recent(self, state: ClusterState) -> list[AlarmView]:
        """Failed jobs, and nodes that were lost while this coordinator has been up."""
        since = self._clock.now() - RECENT_S
        lost = [alarm for _, alarm in self._changed.alarms if alarm.about == "node"]
        found = [*lost, *await failed_jobs(state, self._slices, since)]
        found.sort(key=lambda each: each.at or 0.0, reverse=True)
        return [each for each in found if (each.at or 0.0) >= since][:RECENT_MAX]

    async def _jobs(self, state: ClusterState) -> tuple[Counts, int]:
        """Jobs by status, and how many of them wait."""
        counts, waiting = [0] * len(Status), 0
        piece = await self._slices.turn()
        for number, job in enumerate(list(state.jobs.values())):
            if not number % 64 and piece.is_over:
                piece = await self._slices.turn()
            counts[job.overall_status] += 1
            waiting += bool(waiting_tasks(job))
        return Counts(*counts), waiting

    async def counted(self) -> None:
        """Wait for a count of why jobs wait, if the last one is old because nobody has asked for long."""
        self.count_soon()
        if self._clock.now() - self._waiting_at > WAITING_OLD_S and self._counting is not None:
            await asyncio.shield(self._counting)

    def count_soon(self) -> None:
        """Begin to count why jobs wait, if that was long ago."""
        is_counting = self._counting is not None and not self._counting.done()
        if not is_counting and self._clock.monotonic() >= self._count_again_at:
            self._counting = asyncio.create_task(self._counted())

    async def _counted(self) -> None:
        began = self._clock.monotonic()
        try:
            self._waiting = await count_waiting(self._loop.state, self._slices, self._reasons, self.words)
            self._waiting_at = self._clock.now()
        except Unavailable:  # the log is being read anew
            pass
        finally:
            took_s = self._clock.monotonic() - began
            self._count_again_at = self._clock.monotonic() + max(WAITING_S, WAITING_SHARE * took_s)

    async def _of_nodes(self, state: ClusterState) -> list[AlarmView]:
        found: list[AlarmView] = []
        piece = await self._slices.turn()
        for node in list(state.nodes.values()):
            if piece.is_over:
                piece = await self._slices.turn()
            if node.name in state.nodes:
                found += _of_node(state, node, self._idle)
        return found


def _of_cluster(cluster: ClusterView) -> Iterator[AlarmView]:
    by = cluster.coordinator
    if cluster.brake:
        yield AlarmView("critical", "cluster", "", cluster.brake)
    if by is not None and by.trouble:
        yield AlarmView("critical", "coordinator", by.name, f"coordinator in trouble: {by.trouble}")
    if by is not None and by.role != "Active":
        text = f"no active coordinator; {by.name} answers from a state {describe_seconds(by.behind_s)} old"
        yield AlarmView("critical" if by.behind_s > BEHIND_S else "warning", "coordinator", by.name, text)


def _of_node(state: ClusterState, node: NodeState, idle: IdleDevices) -> Iterator[AlarmView]:
    status, note = node_status(node), note_of(state, node)
    if status not in ("Online", "Stopping"):
        there = f", {plural(len(node.attempts), 'task')} there" if node.attempts else ""
        text = f"{status}{there}{f': {note}' if note else ''}"
        yield AlarmView("critical", "node", node.name, text)
    elif node.drain_reason is not None:
        yield AlarmView("notice", "node", node.name, f"drained: {node.drain_reason or 'no reason given'}")
    elif note:
        yield AlarmView("warning", "node", node.name, note)
    for index, why in node.health.failed.items() if node.health.devices else ():
        yield AlarmView("warning", "node", node.name, f"GPU {index} out of service: {why}")
    held = [device for lane in node.lanes.values() for device in lane.grant.devices]
    if unused := idle.of(node.name, held):
        yield AlarmView("notice", "node", node.name, idle_text(unused))
