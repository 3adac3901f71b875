"""The use of the last day: a sample a minute, taken by every coordinator for itself from the state as it knows it.

A standby follows the log and takes samples, too, so the curve goes on after a failover. They are kept in a file of the
coordinator's state folder, so that it goes on after a restart as well, with a gap for the time between.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from pathlib import Path

from msgspec import DecodeError, Struct, msgpack

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
GAP_S = 3 * SAMPLE_S  # samples further apart do not follow each other
DAY_S = SAMPLES_MAX * SAMPLE_S


class UseSample(Struct, frozen=True, array_like=True):
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

    async def keep(self, file: Path) -> None:
        """Take samples for the life of the process, after those of a former one."""
        self._samples.extend(await asyncio.to_thread(read_samples, file, self._clock.now()))
        while True:
            with suppress(Unavailable):  # the log was not read yet
                self._samples.append(use_now(self._loop.state, self._clock.now()))
                await asyncio.to_thread(write_samples, file, list(self._samples))
            await asyncio.sleep(SAMPLE_S)

    def told(self) -> UseHistory:
        """Means, with what is so right now at the end."""
        samples = list(self._samples)
        samples.append(use_now(self._loop.state, self._clock.now()))
        parts = _parts(samples)
        columns = [
            [round(sum(getattr(each, name) for each in part) / len(part), 2) for part in parts]
            for name in UseSample.__struct_fields__[1:]
        ]
        return UseHistory(MEAN_OF * SAMPLE_S, [round(part[-1].at, 1) for part in parts], *columns)


def read_samples(file: Path, now: float) -> list[UseSample]:
    """The samples of the last day in a file; none if there is no such file, or it cannot be read."""
    try:
        samples = msgpack.decode(file.read_bytes(), type=list[UseSample])
    except (OSError, DecodeError):
        return []
    return [each for each in samples[-SAMPLES_MAX:] if now - DAY_S < each.at <= now]


def write_samples(file: Path, samples: list[UseSample]) -> None:
    """Replace the file. Without room on the disk the samples are in memory alone."""
    other = file.with_suffix(".new")
    with suppress(OSError):
        other.write_bytes(msgpack.encode(samples))
        other.replace(file)


def _parts(samples: list[UseSample]) -> list[list[UseSample]]:
    """Samples whose mean is one value: a few that follow each other without a gap."""
    parts: list[list[UseSample]] = []
    for sample in samples:
        if not parts or len(parts[-1]) == MEAN_OF or sample.at - parts[-1][-1].at > GAP_S:
            parts.append([])
        parts[-1].append(sample)
    return parts


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
