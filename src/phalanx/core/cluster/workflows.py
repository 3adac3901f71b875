"""What has happened to one workflow: a few numbers per stage, the results of its stages, and who may begin.

`missing` counts, for each stage, the stages that it builds on and that have not completed. A stage with none missing is
in `ready` until its job is submitted; one whose job has ended is in `over` until that is recorded. Both are empty
between turns, unless a turn was long enough without them; they follow from the rest. A stage whose values have to be
fetched first is in `awaited` meanwhile; that is not written down, so a coordinator that takes over finds it in `ready`
and has them fetched again.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from enum import IntEnum

from msgspec import Struct

from phalanx.core.model.job import JobId, spec_bytes
from phalanx.core.model.orders import Status
from phalanx.core.model.workflow import Workflow, stage_job_id

WORKFLOW_RESULTS_BYTES_MAX = 64 << 20


class StagePhase(IntEnum):
    """How far a stage has come."""

    WAITING = 0  # for stages that it builds on
    RELEASED = 1  # its job is there
    COMPLETED = 2
    SKIPPED = 3  # its condition did not hold; what builds on it runs all the same
    FAILED = 4
    CANCELLED = 5

    @property
    def is_over(self) -> bool:
        return self >= StagePhase.COMPLETED

    @property
    def status(self) -> Status:
        """Of a stage without a job, or whose job has ended."""
        return _STATUSES[self]


_STATUSES = {
    StagePhase.WAITING: Status.PENDING,
    StagePhase.RELEASED: Status.PENDING,
    StagePhase.COMPLETED: Status.COMPLETED,
    StagePhase.SKIPPED: Status.COMPLETED,
    StagePhase.FAILED: Status.FAILED,
    StagePhase.CANCELLED: Status.CANCELLED,
}
_WELL = (StagePhase.COMPLETED, StagePhase.SKIPPED)
_PHASES = tuple(StagePhase)  # by number


class KeptResult(Struct, frozen=True, array_like=True):
    """A result of one task that is in the place for files: of which attempt, and how it is verified."""

    position: int
    attempt: int
    size: int
    sha256: str


class WorkflowState:
    """A workflow and its stages' columns, by number."""

    __slots__ = (
        "awaited", "dependents", "ended_at", "kept", "missing", "notes", "number", "numbers", "over", "parents",
        "phases", "ready", "result_bytes", "results", "retries", "reused", "size_bytes", "spent", "stage_nodes",
        "stage_times", "stopped", "unapproved", "unfinished", "workflow",
    )  # fmt: skip

    def __init__(self, workflow: Workflow, arrival: int = 0) -> None:
        size = len(workflow.stages)
        self.workflow = workflow
        self.size_bytes = spec_bytes(workflow)  # as it was submitted
        self.number = arrival  # by arrival, among jobs and workflows; 0: it is of an older version
        self.numbers = {stage.name: number for number, stage in enumerate(workflow.stages)}
        self.dependents: list[list[int]] = [[] for _ in range(size)]
        for number, stage in enumerate(workflow.stages):
            for other in stage.after:
                self.dependents[other].append(number)
        self.phases = bytearray(size)
        self.missing = [len(stage.after) for stage in workflow.stages]
        self.retries = array("H", bytes(2 * size))
        self.parents: dict[int, int] = {}  # of a stage that ended because another did: which
        self.notes: dict[int, str] = {}  # why it ended so, where its job does not say
        self.results: dict[int, str] = {}  # as JSON
        self.kept: dict[int, tuple[KeptResult, ...]] = {}  # results that are too large for the log
        self.result_bytes = 0
        self.stage_times = array("d", bytes(16 * size))  # started and ended, two numbers per stage; 0: not
        self.stage_nodes = array("I", bytes(4 * size))  # number of the node that ran it last, plus 1
        self.reused: dict[int, int] = {}  # how many of its models and datasets its node had loaded already
        self.spent = 0.0  # what its attempts that have ended cost, those of earlier retries too
        self.unapproved = False  # stages in queues that ask for an approval wait for it
        self.stopped = ""  # why it was stopped before its end, if a limit of it was reached
        self.unfinished = size
        self.ended_at: float | None = None
        self.ready = {number: None for number, count in enumerate(self.missing) if not count}
        self.over: dict[int, None] = {}
        self.awaited: dict[int, str] = {}  # whose values are fetched, and what went wrong with that so far

    @property
    def is_over(self) -> bool:
        return not self.unfinished

    @property
    def has_started(self) -> bool:
        """A job that starts after it waits for its end; of one stage, it may wait for the start."""
        return self.is_over

    @property
    def is_due(self) -> bool:
        """Whether there is something to decide about it."""
        return bool(self.ready or self.over)

    @property
    def overall_status(self) -> Status:
        """Running until every stage has ended; then the worst of them."""
        if not self.is_over:
            begun = any(self.phases)
            return Status.RUNNING if begun else Status.PENDING
        if StagePhase.FAILED in self.phases:
            return Status.FAILED
        return Status.CANCELLED if StagePhase.CANCELLED in self.phases else Status.COMPLETED

    def phase(self, stage: int) -> StagePhase:
        return _PHASES[self.phases[stage]]

    def job_id(self, stage: int) -> JobId:
        """The id of a stage's job, which there may not be yet."""
        return stage_job_id(self.workflow.id, stage, self.retries[stage])

    def waits_for(self, stage: int) -> list[int]:
        """The stages that a stage builds on and that have not completed."""
        return [each for each in self.workflow.stages[stage].after if self.phases[each] not in _WELL]

    def builds_on(self, first: int) -> list[int]:
        """A stage and all stages that build on it, directly or not."""
        found, seen = [first], {first}
        for stage in found:  # it grows while it is read
            fresh = [each for each in self.dependents[stage] if each not in seen]
            seen.update(fresh)
            found += fresh
        return found

    def released(self) -> Iterator[int]:
        """The stages whose jobs are there and have not ended."""
        stage = self.phases.find(StagePhase.RELEASED)
        while stage >= 0:
            yield stage
            stage = self.phases.find(StagePhase.RELEASED, stage + 1)

    def release(self, stage: int) -> None:
        """Its job was submitted."""
        self.ready.pop(stage, None)
        self.awaited.pop(stage, None)
        self.phases[stage] = StagePhase.RELEASED

    def end(self, stage: int, phase: StagePhase, at: float) -> None:
        """A stage has ended, and those that build on it lack one less if it did well."""
        self.ready.pop(stage, None)
        self.awaited.pop(stage, None)
        self.over.pop(stage, None)
        if self.phase(stage).is_over:
            return
        self.phases[stage] = phase
        self.unfinished -= 1
        if phase in _WELL:
            for dependent in self.dependents[stage]:
                self.missing[dependent] -= 1
                if not self.missing[dependent] and self.phases[dependent] == StagePhase.WAITING:
                    self.ready[dependent] = None
        if not self.unfinished:
            self.ended_at = at

    def keep_result(self, stage: int, result: str) -> None:
        self.result_bytes += len(result) - len(self.results.get(stage, ""))
        self.results[stage] = result

    def wait_for_inputs(self, stage: int, trouble: str) -> None:
        """It cannot begin before values were fetched for it."""
        self.ready.pop(stage, None)
        self.awaited[stage] = trouble

    def begin_again(self, stages: tuple[int, ...]) -> None:
        """These stages run once more, under new ids; all that build on them are among them."""
        for stage in stages:
            self.unfinished += self.phase(stage).is_over
            self.phases[stage] = StagePhase.WAITING
            self.retries[stage] += 1
            self.result_bytes -= len(self.results.pop(stage, ""))
            self.kept.pop(stage, None)
            self.parents.pop(stage, None)
            self.notes.pop(stage, None)
            self.reused.pop(stage, None)
            self.stage_times[2 * stage] = self.stage_times[2 * stage + 1] = 0.0
        self.ended_at, self.stopped = None, ""
        self.count_missing()

    def count_missing(self) -> None:
        """Count anew what each stage lacks, and find out who may begin."""
        for number in range(len(self.phases)):
            self.missing[number] = len(self.waits_for(number))
        self.ready = {
            number: None
            for number, count in enumerate(self.missing)
            if not count and self.phases[number] == StagePhase.WAITING
        }
