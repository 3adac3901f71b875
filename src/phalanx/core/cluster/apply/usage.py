"""What the end of an attempt means for the usage of its job: what it held, for how long, and what it used of that."""

from __future__ import annotations

from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.units import Attempt
from phalanx.core.model.amounts import MILLI, MILLICORES
from phalanx.core.model.cost import held_rate
from phalanx.core.model.orders import Exit
from phalanx.core.model.usage import run_seconds


def note_usage(state: ClusterState, job: JobState, attempt: Attempt, exit: Exit, at: float) -> None:
    """Count an attempt that ran. An end that nobody saw came when it was told."""
    if exit.started_at is not None and exit.ended_at is not None:
        run_s = run_seconds(exit.started_at, exit.ended_at)
    elif attempt.started_at is not None:
        run_s = max(0.0, at - attempt.since)
    else:
        return
    held, totals = attempt.grant, job.usage.totals
    cores = MILLICORES[held.cores] / MILLI
    totals.hold(run_s, cores, len(held.devices), held_rate(state.nodes[attempt.node].capacity, held))
    if exit.usage is not None:
        job.usage.note(attempt.key[1], len(job.status), exit.usage)
        totals.use(exit.usage, run_s, cores, held.memory_bytes)
