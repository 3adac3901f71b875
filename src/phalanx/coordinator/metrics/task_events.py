"""The lines of events.log: what became of tasks, in FlowMesh's words, waiting to be written.

They are kept in memory until the writer takes them. If it cannot write, the oldest are dropped and counted, for work
must not stop because a disk is full. A million tasks that end together are one line with their number.
"""

from __future__ import annotations

from collections import deque
from typing import Literal

from msgspec import Struct, json

from phalanx.coordinator.metrics.density import iso
from phalanx.core.cluster.jobs import JobState
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Status, Why

LINES_MAX = 100_000
Word = Literal[
    "TASK_SUBMITTED", "TASK_STARTED", "TASK_SUCCEEDED", "TASK_FAILED", "TASK_REQUEUED", "TASK_CANCELLED"
]
WORDS: dict[Status, Word] = {
    Status.COMPLETED: "TASK_SUCCEEDED",
    Status.FAILED: "TASK_FAILED",
    Status.CANCELLED: "TASK_CANCELLED",
}
_encode = json.Encoder().encode


class TaskEvent(Struct, omit_defaults=True):
    """One line. `tasks` is how many it is about, where that is more than the one named."""

    ts: str
    type: Word
    task_id: str
    job_id: str
    tasks: int = 1
    attempt: int | None = None
    worker_id: str = ""
    reason: str = ""
    error: str = ""
    exit_code: int | None = None
    dependency_failure: str = ""
    parent_task_id: str = ""  # the task that it ran as a part of
    is_child_task: bool = False


class TaskEvents:
    def __init__(self, lines_max: int = LINES_MAX) -> None:
        self._lines: deque[bytes] = deque(maxlen=lines_max)
        self.dropped = 0

    def note(self, at: float, word: Word, job: Job, position: int | None, **more: str | int | None) -> None:
        """`position` None: about the whole job."""
        alone = position is not None or job.tasks == 1
        event = TaskEvent(
            iso(at),
            word,
            job.task_id(position or 0) if alone else job.id,
            job.id,
            **more,  # type: ignore[arg-type]  # the fields of a line
        )
        self.dropped += len(self._lines) == self._lines.maxlen
        self._lines.append(_encode(event) + b"\n")

    def note_end(
        self, at: float, status: Status, job: JobState, position: int, dependency: str, parent: str = ""
    ) -> None:
        """One task has ended for good."""
        error, _ = job.details.get(position, ("", ""))
        self.note(
            at,
            WORDS[status],
            job.job,
            position,
            attempt=job.attempts[position] or None,
            reason="" if status == Status.COMPLETED else Why(job.why[position]).word,
            error=error,
            exit_code=job.exit_code(position),
            dependency_failure=dependency,
            parent_task_id=parent,
            is_child_task=bool(parent),
        )

    def note_rest(self, at: float, ends: tuple[int, int, int], job: JobState, dependency: str) -> None:
        """Tasks that ended because their job did: one line for each way, with their number."""
        for status, count in zip((Status.COMPLETED, Status.FAILED, Status.CANCELLED), ends, strict=True):
            if count and job.job.tasks == 1:
                self.note_end(at, status, job, 0, dependency)
            elif count:
                reason = "dependency" if dependency else "" if status == Status.COMPLETED else "job_ended"
                self.note(
                    at,
                    WORDS[status],
                    job.job,
                    None,
                    tasks=count,
                    reason=reason,
                    dependency_failure=dependency,
                )

    def take(self) -> list[bytes]:
        """The lines that wait; they are the caller's now."""
        lines = list(self._lines)
        self._lines.clear()
        return lines
