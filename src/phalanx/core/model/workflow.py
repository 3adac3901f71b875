"""Workflows: stages, each of which becomes a job once the stages that it builds on have completed.

A `Workflow` is immutable; what has happened to it is kept in `core/cluster/workflows.py`. The id of a stage's job
follows from those of the workflow and the stage, and from how often the stage was retried: the last five letters of a
workflow's id are kept free for that.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from phalanx.core.model.job import Job, JobId, ulid

SPEC_VARIABLE = "PHALANX_SPEC"
STAGES_MAX = 10_000
EDGES_MAX = 100_000
WORKFLOW_BYTES_MAX = 16 * 1024 * 1024  # as JSON, with what its stages inherit
SPEC_BYTES_MAX = 96 * 1024  # it travels in one variable of the environment, of which the kernel takes 128 KiB
RETRIES_OF_STAGE_MAX = 1000
_STAGE_BITS, _FREE_BITS = 14, 24
_KEPT_SIGNS = 21  # of 26; the other five hold 25 bits
_SIGNS = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [first + second for first in _SIGNS for second in _SIGNS]


class StageCondition(Struct, frozen=True, omit_defaults=True):
    """The stage runs only if a value in the result of another one, as a text, is this."""

    stage: int
    path: tuple[str, ...]
    equals: str


class Stage(Struct, frozen=True, omit_defaults=True):
    """One stage. Its job lacks an id, and its command and `spec` may hold references, until it is released."""

    name: str
    job: Job
    after: tuple[int, ...] = ()  # the stages that it builds on: those named, and those that it refers to
    condition: StageCondition | None = None
    task_type: str = ""
    spec: str = ""  # JSON for the program, given to it as PHALANX_SPEC
    refers: bool = False  # there are references in its command or in `spec`
    merges: bool = False  # its program takes several tasks at once


class Workflow(Struct, frozen=True, omit_defaults=True):
    """A workflow as accepted."""

    id: JobId
    stages: tuple[Stage, ...]
    submitted_at: float
    name: str = ""
    user: str = ""
    deadline_at: float | None = None  # what has not ended by then is stopped
    budget: float | None = None  # so is everything once its attempts have cost so much

    @property
    def is_limited(self) -> bool:
        return self.deadline_at is not None or self.budget is not None

    @property
    def tasks(self) -> int:
        return sum(stage.job.tasks for stage in self.stages)


def workflow_id(at_ms: int, chance: int) -> JobId:
    """A new id, with room for the ids of its stages' jobs right after it."""
    return ulid(at_ms, chance >> _FREE_BITS << _FREE_BITS)


@lru_cache(16_384)
def stage_job_id(workflow: JobId, stage: int, retries: int) -> JobId:
    """The id of the job that a stage becomes when it has been retried so often."""
    number = (_first_of(workflow[_KEPT_SIGNS:]) + (retries << _STAGE_BITS | stage)) + 1
    return workflow[:_KEPT_SIGNS] + _SIGNS[number >> 20] + _PAIRS[number >> 10 & 1023] + _PAIRS[number & 1023]


def workflow_of_job(job: JobId) -> JobId:
    """The id of the workflow of which this is a stage's job, if it is one of any; the state knows whether there is."""
    first = _SIGNS.index(job[_KEPT_SIGNS]) & 16  # of its five bits the first is the workflow's own
    return job[:_KEPT_SIGNS] + _SIGNS[first] + "0000"


def stage_of_job(workflow: JobId, job: JobId) -> int:
    """The number of the stage of this workflow of which this is a job's id, whatever its retry."""
    number = _first_of(job[_KEPT_SIGNS:]) - _first_of(workflow[_KEPT_SIGNS:]) - 1
    return number & (1 << _STAGE_BITS) - 1


@lru_cache(1024)
def _first_of(end: str) -> int:
    """What the last signs of a workflow's id stand for."""
    number = 0
    for sign in end:
        number = number << 5 | _SIGNS.index(sign)
    return number
