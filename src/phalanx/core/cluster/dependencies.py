"""Jobs that start after others: whether what one waits for has come, and what becomes of it if it never will."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.core.cluster.jobs import JobState
from phalanx.core.model.job import After, Job, JobId, When
from phalanx.core.model.orders import Status

WORDS: dict[When, str] = {"ok": "completed", "any": "ended", "failed": "failed", "started": "started"}
_ENDS = {
    Status.COMPLETED: "has completed",
    Status.FAILED: "has failed",
    Status.CANCELLED: "was cancelled",
}


def has_come(other: JobState, when: When) -> bool | None:
    """Whether the other job has come so far; False: it never will; None: not yet.

    One that ended counts as started: whoever waits for a start would wait for ever otherwise.
    """
    if when == "started" and not (other.counts[Status.PENDING] or other.counts[Status.ASSIGNED]):
        return True
    if not other.is_over:
        return None
    if when in ("started", "any"):
        return True
    return other.overall_status == (Status.COMPLETED if when == "ok" else Status.FAILED)


def not_come(jobs: Mapping[JobId, JobState], job: Job) -> set[JobId]:
    """Of the jobs that come before this one, those that have not come yet, and those that nobody knows."""
    others = [(after, jobs.get(after.job)) for after in job.after]
    return {after.job for after, other in others if other is None or not has_come(other, after.when)}


def why_abandoned(other: JobState, after: After) -> str:
    """Why a job can never start, as a sentence about it."""
    ended = _ENDS[other.overall_status]
    return f"it was to start after {other.job.id} {WORDS[after.when]}, and that {ended}"


def outcome_of_abandoned(other: JobState, after: After) -> Status:
    """What a job becomes that can never start: it fails with what it builds on, and is not needed otherwise."""
    fails = after.when == "ok" and other.overall_status == Status.FAILED
    return Status.FAILED if fails else Status.CANCELLED
