"""The order that starts an attempt, made from the state, so that it can be told again word for word."""

from __future__ import annotations

from phalanx.core.cluster.effects import Effect, Send
from phalanx.core.cluster.jobs import Attempt
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Brief, Start


def start_order(state: ClusterState, attempt: Attempt) -> list[Effect]:
    """One order; the shell sends the job's brief before it where the runner has not had it yet."""
    job_id, position, number = attempt.key
    job = state.jobs[job_id].job
    index = None if job.array is None else job.array.index(position)
    return [Send(attempt.node, Start(attempt.key, attempt.lane, attempt.grant, index, number - 1))]


def brief(job: Job) -> Brief:
    """What all attempts of a job share."""
    return Brief(
        job.id,
        job.command,
        job.name,
        job.queue,
        job.batch,
        job.tasks,
        None if job.array is None else str(job.array),
        job.grace_s,
        job.time_limit_s,
    )
