"""The metrics of one coordinator put together: what REST asks for, from the recorder and a look at the state.

Looking at the whole state takes a while where there are many jobs, so one look serves everybody for a second.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from phalanx.api.schema.metrics import MetricsReport
from phalanx.api.server.limits import TimeSlices
from phalanx.clock import Clock
from phalanx.coordinator.idle_devices import IdleDevices
from phalanx.coordinator.metrics.exposition import exposition
from phalanx.coordinator.metrics.families import Moment
from phalanx.coordinator.metrics.idle import idle_samples
from phalanx.coordinator.metrics.recorder import Recorder
from phalanx.coordinator.metrics.report import metrics_report
from phalanx.coordinator.metrics.survey import Survey, survey
from phalanx.coordinator.requests import Requests
from phalanx.core.cluster.state import ClusterState
from phalanx.errors import Unavailable

FRESH_S = 1.0


class MetricsBoard:
    def __init__(
        self,
        loop: Requests,
        recorder: Recorder,
        clock: Clock,
        slices: TimeSlices,
        idle: IdleDevices | None = None,
    ) -> None:
        self.idle = idle or IdleDevices()
        self.recorder = recorder
        self.requests: Counter[tuple[str, int]] = Counter()
        self._loop = loop
        self._clock = clock
        self._slices = slices
        self._look: asyncio.Task[Survey] | None = None
        self._looked_at = 0.0

    def count_request(self, route: str, status: int) -> None:
        """A request was answered. `route` is from the route table."""
        self.requests[route, status] += 1

    async def metrics(self) -> bytes:
        """Prometheus text."""
        found, state, view = await self._survey(), self._state(), self._loop.view()
        self.recorder.accounts.settle(self._clock.now())
        return exposition(
            Moment(
                recorder=self.recorder,
                survey=found,
                counts=state.counts,
                epoch=state.epoch,
                is_leader=view.role == "Active",
                behind_s=self._loop.behind_s(),
                requests=self.requests,
                idle=idle_samples(self.idle, state),
            )
        )

    async def metrics_report(self) -> MetricsReport:
        """The same as JSON."""
        found = await self._survey()
        name = self._loop.view().name
        return metrics_report(self.recorder, self._state(), self._clock.now(), name, found.ready)

    def _state(self) -> ClusterState:
        """The state; while a coordinator stops, the one of its last turn."""
        try:
            return self._loop.state
        except Unavailable:
            if self.recorder.state is None:
                raise
            return self.recorder.state

    async def _survey(self) -> Survey:
        now = self._clock.monotonic()
        if self._look is None or (self._look.done() and now - self._looked_at >= FRESH_S):
            self._looked_at = now
            looking = survey(self._state(), self._slices, self._clock.now())
            self._look = asyncio.create_task(looking)
        return await asyncio.shield(self._look)
