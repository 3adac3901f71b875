"""Which jobs failed lately: read from the state, so it does not matter when the page was opened.

A job is told once, with the newest of its failed tasks, so that one array does not hide all others.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest

import numpy as np

from phalanx.api.schema.pages import AlarmView
from phalanx.api.server.limits import TimeSlices
from phalanx.coordinator.naming import in_numbers
from phalanx.coordinator.views import task_number
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.explain.attempts import why_placed
from phalanx.core.model.orders import Status, Why

TOLD_MAX = 50


async def failed_jobs(state: ClusterState, slices: TimeSlices, since: float) -> list[AlarmView]:
    """Jobs that failed, and those that go on with failed tasks; the newest first."""
    found: list[tuple[float, int, JobState]] = []
    piece = await slices.turn()
    for number, job in enumerate(list(state.jobs.values())):
        if not number % 64 and piece.is_over:
            piece = await slices.turn()
        if job.counts[Status.FAILED] and (not job.is_over or job.overall_status is Status.FAILED):
            at = job.ended_at or job.finished_at(_newest(job)) or 0.0
            if at >= since:
                found.append((at, job.arrival, job))
    return list(_told(state, nlargest(TOLD_MAX, found)))


def _told(state: ClusterState, found: Iterable[tuple[float, int, JobState]]) -> Iterable[AlarmView]:
    for at, _, job in found:
        position, spec, failed = _newest(job), job.job, job.counts[Status.FAILED]
        text = in_numbers(state, why_placed(state, job, position, at).text)
        if failed > 1:
            text = f"{failed} of {spec.tasks} tasks failed, the last one: {text}"
        yield AlarmView("notice", "job", task_number(job, position), text, at, spec.name or "", spec.user)


def _newest(job: JobState) -> int:
    """The failed task that ended last, and by itself if there is one: others may have ended because the job did."""
    failed = np.frombuffer(job.status, dtype=np.uint8) == Status.FAILED
    own = failed & (np.frombuffer(job.why, dtype=np.uint8) != Why.JOB_FAILED)
    positions = np.flatnonzero(own if own.any() else failed)
    if job.times is None:
        return int(positions[0])
    ended = np.frombuffer(job.times)[1::2][positions]
    return int(positions[ended.argmax()])
