"""What placement may see of the cluster, and what is due by now."""

from __future__ import annotations

from heapq import heappop

from phalanx.core.cluster.apply.grants import queue_up
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.plan import PlanMemory, Snapshot


def snapshot(state: ClusterState, now: float, memory: PlanMemory | None = None) -> Snapshot:
    """The live columns, to be read within this turn, and what the last plan remembered."""
    memory = memory or PlanMemory()
    gain = state.gain + memory.refusals
    return Snapshot(state.table, state.waiting, gain, state.tenants, state.queues, now, memory)


def wake(state: ClusterState, now: float) -> bool:
    """Tasks whose backoff is over wait for a place again. Follows from the events and the time alone."""
    woken = False
    while state.retries and state.retries[0][0] <= now:
        at, job_id, position = heappop(state.retries)
        job = state.jobs.get(job_id)
        if job is None:
            continue
        if position < 0 and job.hold_until == at:
            job.hold_until = 0.0
        elif position >= 0 and job.delayed.get(position) == at:
            job.wait_again(position)
        else:
            continue
        woken = True
        queue_up(state, job)
    return woken


def next_due(state: ClusterState) -> float | None:
    """When `wake` will have something to do."""
    return state.retries[0][0] if state.retries else None
