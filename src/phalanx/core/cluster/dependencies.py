"""Jobs that start after others: whether what one waits for has come, and what becomes of it if it never will.

What comes first is a job, a whole workflow, or the job of a stage, which need not exist yet: its id follows from those
of workflow and stage. A stage that ends without a job, because it was skipped or what it builds on did not complete,
counts as a job that ended so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.workflows import WorkflowState
from phalanx.core.model.job import After, Job, JobId, When, is_job_id
from phalanx.core.model.orders import Status
from phalanx.core.model.workflow import stage_of_job, workflow_of_job

WORDS: dict[When, str] = {"ok": "completed", "any": "ended", "failed": "failed", "started": "started"}
_ENDS = {
    Status.COMPLETED: "has completed",
    Status.FAILED: "has failed",
    Status.CANCELLED: "was cancelled",
}


class Predecessor(Protocol):
    """What a job starts after."""

    @property
    def is_over(self) -> bool: ...

    @property
    def has_started(self) -> bool: ...

    @property
    def overall_status(self) -> Status: ...


class StageWithoutJob(Struct, frozen=True):
    """A stage of a workflow that has no job yet, or ended without one, or whose job has left memory."""

    flow: WorkflowState
    stage: int

    @property
    def is_over(self) -> bool:
        return self.flow.phase(self.stage).is_over

    @property
    def has_started(self) -> bool:
        return self.is_over

    @property
    def overall_status(self) -> Status:
        return self.flow.phase(self.stage).status

    @property
    def name(self) -> str:
        """WORKFLOW:STAGE, as it is written after --after."""
        number = self.flow.number or self.flow.workflow.id
        return f"{number}:{self.flow.workflow.stages[self.stage].name}"


def predecessor(state: ClusterState, id: JobId) -> Predecessor | None:
    """What has this id, as far as it is in memory: a job, a workflow, or a stage whose next job will have it."""
    if (found := state.jobs.get(id) or state.workflows.get(id)) is not None:
        return found
    return stage_without_job(state, id)


def stage_without_job(state: ClusterState, id: JobId) -> StageWithoutJob | None:
    """The stage whose job has or will have this id, of a workflow in memory."""
    flow = state.workflows.get(workflow_of_job(id)) if is_job_id(id) else None
    if flow is None:
        return None
    stage = stage_of_job(flow.workflow.id, id)
    is_one = stage < len(flow.workflow.stages) and flow.job_id(stage) == id
    return StageWithoutJob(flow, stage) if is_one else None


def name_of(other: Predecessor, id: JobId) -> str:
    """What a sentence calls it; the ids of jobs are replaced by their numbers where people read it."""
    if isinstance(other, StageWithoutJob):
        return f"stage {other.name}"
    return f"workflow {other.number or id}" if isinstance(other, WorkflowState) else id


def has_come(other: Predecessor, when: When) -> bool | None:
    """Whether the other job has come so far; False: it never will; None: not yet.

    One that ended counts as started: whoever waits for a start would wait for ever otherwise.
    """
    if when == "started" and other.has_started:
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


def not_come(state: ClusterState, job: Job) -> set[JobId]:
    """Of the jobs that come before this one, those that have not come yet, and those that nobody knows."""
    others = [(after, predecessor(state, after.job)) for after in job.after if not after.each]
    return {after.job for after, other in others if other is None or not has_come(other, after.when)}


def why_abandoned(other: Predecessor, after: After) -> str:
    """Why a job can never start, as a sentence about it."""
    return told_abandoned(name_of(other, after.job), what_came(other.overall_status, after.when))


def not_accepted_after(other: Predecessor, after: After) -> str:
    """Why a job is not accepted that could never start, and what would be."""
    name = name_of(other, after.job).rpartition(" ")[2]
    if isinstance(other, JobState):
        name = str(other.arrival or name)
    way_out = f"use {name}:any for any end, or {_again(other, name)}"
    return f"after: {why_abandoned(other, after)}: {way_out}"


def _again(other: Predecessor, name: str) -> str:
    """How to have it run again, so that it may come after all."""
    flow = name.partition(":")[0]
    if isinstance(other, JobState):
        if other.job.workflow is None:
            return f"phalanx retry {name} and its new job"
        flow = other.job.workflow[0]
    return f"phalanx workflow retry {flow} first"


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
