"""What is said of a task or a job that has ended: its message, its reason and its exit code."""

from __future__ import annotations

from phalanx.coordinator.evictions import last_eviction
from phalanx.core.cluster.cancels import who_cancelled
from phalanx.core.cluster.jobs import NO_CODE, JobState
from phalanx.core.explain.attempts import lacking_rank
from phalanx.core.model.orders import Status, Why

DONE = "finished with code 0; Completed once its whole job is"


def last_words(job: JobState, position: int, held: dict[int, str]) -> tuple[str, str]:
    """What is said of a task, and its last lines on stderr; of one that is on a node again, that it is of before."""
    if position in job.done:
        return DONE, ""
    message, stderr_tail = job.details.get(position, ("", ""))
    if user := who_cancelled(job, position):
        return f"cancelled by {user}", stderr_tail
    if job.why[position] == Why.EVICTED and (condition := job.conditions.get(position)) is not None:
        message = condition.message
    message = "; ".join(filter(None, (message, lacking_rank(job, position))))
    attempt = job.live.get(position)
    if attempt is None:
        return message, stderr_tail
    waits = attempt.started_at is None and attempt.released and attempt.ending is None
    if waits and attempt.group in held:
        return held[attempt.group], stderr_tail
    return f"an earlier attempt: {message}" if message else "", stderr_tail


def task_reason(job: JobState, position: int, status: Status) -> str:
    why = Why(job.why[position])
    settled = status in (Status.COMPLETED, Status.RUNNING, Status.ASSIGNED)
    return "" if why == Why.NONE or settled else why.word


def task_code(job: JobState, position: int, status: Status) -> int | None:
    """How it ended; while it is on a node again, the code of the attempt before says nothing about it."""
    if status == Status.COMPLETED or position in job.done:
        return 0
    return None if status in (Status.ASSIGNED, Status.RUNNING) else job.exit_code(position)


def job_reason(job: JobState, status: Status) -> str:
    if status == Status.CANCELLED:
        return (Why.DEPENDENCY if job.why[0] == Why.DEPENDENCY else Why.CANCELLED).word
    if status == Status.RUNNING and job.live and all(attempt.paused for attempt in job.live.values()):
        return "paused"
    if status == Status.PENDING and last_eviction(job) is not None:
        return Why.EVICTED.word
    if status != Status.FAILED:
        return ""
    if job.outcome is None:
        return Why(job.why[job.status.index(Status.FAILED)]).word
    # Those that ended because the job did say nothing about its cause, if another one can.
    whys = (why for why, each in zip(job.why, job.status, strict=True) if each == Status.FAILED)
    return Why(next((why for why in whys if why != Why.JOB_FAILED), Why.JOB_FAILED)).word


def job_code(job: JobState, status: Status) -> int | None:
    if status == Status.COMPLETED:
        return 0
    if status != Status.FAILED:
        return None
    if job.first_code is not None or job.outcome is None:
        return job.first_code
    return next((code for code in job.code if code not in (NO_CODE, 0)), None)
