"""The use of the last day: a sample a minute, taken by every coordinator for itself from the state as it knows it.

A standby follows the log and takes samples, too, so the curve goes on after a failover. It is in memory alone: a
coordinator that starts begins with none.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

from msgspec import Struct

from phalanx.api.schema.pages import UseHistory
from phalanx.clock import Clock
from phalanx.coordinator.pages.totals import core_counts, gpu_counts
from phalanx.coordinator.requests import Requests
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.orders import Status
from phalanx.errors import Unavailable

SAMPLE_S = 60.0
SAMPLES_MAX = 1440
MEAN_OF = 5  # samples in one value that is told


class UseSample(Struct, frozen=True):
    """Of all nodes, and how many tasks run and wait."""

    at: float
    devices: float
    devices_used: float
    cores: float
    cores_used: float
    running: int
    waiting: int


class UseRing:
    """The samples of the last day."""

    def __init__(self, loop: Requests, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._samples: deque[UseSample] = deque(maxlen=SAMPLES_MAX)

    async def keep(self) -> None:
        """Take samples for the life of the process."""
        while True:
            with suppress(Unavailable):  # the log was not read yet
                self._samples.append(use_now(self._loop.state, self._clock.now()))
            await asyncio.sleep(SAMPLE_S)

    def told(self) -> UseHistory:
        """Means, with what is so right now at the end."""
        samples = list(self._samples)
        samples.append(use_now(self._loop.state, self._clock.now()))
        parts = [samples[at : at + MEAN_OF] for at in range(0, len(samples), MEAN_OF)]
        columns = [
            [round(sum(getattr(each, name) for each in part) / len(part), 2) for part in parts]
            for name in UseSample.__struct_fields__[1:]
        ]
        return UseHistory(MEAN_OF * SAMPLE_S, [round(part[-1].at, 1) for part in parts], *columns)


def use_now(state: ClusterState, now: float) -> UseSample:
    """What is held at this moment."""
    gpus, cores = gpu_counts(state), core_counts(state)
    return UseSample(
        now,
        gpus.all,
        gpus.held,
        cores.all,
        cores.held,
        state.counts[Status.RUNNING] + state.counts[Status.ASSIGNED],
        state.counts[Status.PENDING],
    )
