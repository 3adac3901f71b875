"""Jobs that start after others: whether what one waits for has come, and what becomes of it if it never will."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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


def task_has_come(other: JobState, position: int, when: When) -> bool | None:
    """The same of one task, for the task of the same index."""
    status = Status(other.status[position])
    if when == "started" and status not in (Status.PENDING, Status.ASSIGNED):
        return True
    if not status.is_final:
        return None
    return when == "any" or status == (Status.COMPLETED if when == "ok" else Status.FAILED)


def not_come(jobs: Mapping[JobId, JobState], job: Job) -> set[JobId]:
    """Of the jobs that come before this one, those that have not come yet, and those that nobody knows."""
    others = [(after, jobs.get(after.job)) for after in job.after if not after.each]
    return {after.job for after, other in others if other is None or not has_come(other, after.when)}


def why_abandoned(other: JobState, after: After) -> str:
    """Why a job can never start, as a sentence about it."""
    return told_abandoned(other.job.id, what_came(other.overall_status, after.when))


def not_accepted_after(other: JobState, after: After) -> str:
    """Why a job is not accepted that could never start, and what would be."""
    number = other.arrival or other.job.id
    way_out = f"use {number}:any for any end, or phalanx retry {number} and its new job"
    return f"after: {why_abandoned(other, after)}: {way_out}"


def told_abandoned(other: str, what: str) -> str:
    """The same of a job or a task, with what came of the other in words."""
    return f"it starts only after {other} {what}"


def what_came(status: Status, when: When) -> str:
    """What another was to do, and did."""
    return f"has {WORDS[when]}, but that {_ENDS[status]}"


def outcome_of_abandoned(status: Status, when: When) -> Status:
    """What becomes of what can never start: it fails with what it builds on, and is not needed otherwise."""
    return Status.FAILED if when == "ok" and status == Status.FAILED else Status.CANCELLED


def runs_of(positions: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Sorted positions as runs, each its first and its last."""
    runs: list[tuple[int, int]] = []
    for position in positions:
        if runs and runs[-1][1] == position - 1:
            runs[-1] = runs[-1][0], position
        else:
            runs.append((position, position))
    return tuple(runs)
