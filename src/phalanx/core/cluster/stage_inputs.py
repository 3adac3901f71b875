"""What a stage refers to and the log does not hold: results above 4 KiB, and artifacts, both in the place for files.

Nothing is read here. A stage that needs something of the kind is not released at once: the shell is asked to fetch it
(`FetchInputs`), and hands it in as an input (`GiveInputs`). The values are then resolved and written into the event of
the stage's job like all others, so what a stage was given is decided once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct, structs

from phalanx.core.cluster.workflows import StagePhase, WorkflowState
from phalanx.core.model.files import why_bad_path
from phalanx.core.model.job import Job, JobId
from phalanx.core.model.orders import AttemptKey
from phalanx.core.model.program_words import program_places
from phalanx.core.model.references import (
    ARTIFACTS,
    RESULT,
    Reference,
    Unresolved,
    has_references,
    references,
)
from phalanx.core.model.workflow import Stage

INPUT_BYTES_MAX = 64 << 20  # of the results that are fetched for one stage


class NeededResult(Struct, frozen=True):
    """The result of one task, where it is and how it is verified."""

    stage: int
    position: int
    attempt: AttemptKey
    size: int
    sha256: str


class NeededArtifact(Struct, frozen=True):
    """A file of a task, which has to be there; an empty path: whatever it left, or all tasks of its job did."""

    task_id: str
    path: str


class StageNeeds(Struct, frozen=True):
    """All that has to be fetched before a stage can begin."""

    results: tuple[NeededResult, ...] = ()
    artifacts: tuple[NeededArtifact, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.results or self.artifacts)


class FetchInputs(Struct, frozen=True):
    """An order for the shell: fetch these, and give them to the stage that is to become this job."""

    workflow: JobId
    stage: int
    job: JobId
    needs: StageNeeds


def needs_of(flow: WorkflowState, number: int) -> StageNeeds:
    """What the stage refers to and the log does not hold; Unresolved if that can never be had."""
    stage = flow.workflow.stages[number]
    results: dict[tuple[int, int], NeededResult] = {}
    artifacts: dict[NeededArtifact, None] = {}
    if stage.condition is not None and stage.condition.stage in flow.kept:
        results.update(_results(flow, stage.condition.stage, stage.condition.path))
    if stage.refers and (flow.kept or _may_name_artifacts(stage)):
        for text in filter(has_references, texts_of(stage)):
            for reference in references(text, flow.numbers):
                if reference.artifact is not None:
                    artifacts[artifact_of(flow, reference)] = None
                elif not reference.is_id:
                    results.update(_results(flow, flow.numbers[reference.stage], reference.path))
    if (size := sum(each.size for each in results.values())) > INPUT_BYTES_MAX:
        raise Unresolved(
            f"the results that it refers to have {size} bytes, at most {INPUT_BYTES_MAX} are allowed"
        )
    return StageNeeds(tuple(results.values()), tuple(artifacts))


def needs_in_words(flow: WorkflowState, needs: StageNeeds) -> str:
    """What is fetched for a stage, for people."""
    names = list(dict.fromkeys(flow.workflow.stages[each.stage].name for each in needs.results))
    files = [
        f"{each.task_id}:{each.path}" if each.path else f"the artifacts of {each.task_id}"
        for each in needs.artifacts
    ]
    shown = [f"the result of {name}" for name in names] + files
    more = f" and {len(shown) - 5} more" if len(shown) > 5 else ""
    return f"waits for {', '.join(shown[:5])}{more} from the place for files"


def artifact_of(flow: WorkflowState, reference: Reference) -> NeededArtifact:
    """The task and the path that a reference to an artifact means."""
    number = flow.numbers[reference.stage]
    if flow.phase(number) == StagePhase.SKIPPED:
        raise Unresolved(f"${{{reference.stage}.{ARTIFACTS}}}: the stage was skipped")
    return artifact_of_job(
        structs.replace(flow.workflow.stages[number].job, id=flow.job_id(number)), reference
    )


def artifact_of_job(job: Job, reference: Reference) -> NeededArtifact:
    """The same of a stage's job. If it has several tasks, the index of one comes first; Unresolved if it does not."""
    assert reference.artifact is not None
    if not reference.artifact or (job.array is None and job.tasks == 1):
        return NeededArtifact(job.id, reference.artifact)
    index, _, path = reference.artifact.partition(".")
    try:
        position = _position(job, index, f"{ARTIFACTS}.INDEX.PATH")
    except Unresolved as error:
        raise Unresolved(f"${{{reference.stage}.{ARTIFACTS}.{reference.artifact[:80]}}}: {error}") from None
    if path and (wrong := why_bad_path(path)):
        raise Unresolved(f"${{{reference.stage}.{ARTIFACTS}}}: {wrong}")
    return NeededArtifact(job.task_id(position), path)


def path_in_results(job: Job, path: tuple[str, ...]) -> tuple[str, ...]:
    """Where a value stands in what a stage gave. Of several tasks that is a list, and the path names one by its index.

    The index is the one in the id of the task: of an array 1-3, `result.1` is the first. Unresolved if there is none.
    """
    if job.tasks == 1 or not path:
        return path
    return (str(_position(job, path[0], f"{RESULT}.INDEX.KEY")), *path[1:])


def _position(job: Job, index: str, right: str) -> int:
    """Where the task with this index stands; Unresolved if there is none."""
    position = job.position(int(index)) if index.isascii() and index.isdecimal() and len(index) <= 9 else None
    if position is None:
        shown = f", {job.array}" if job.array is not None else ""
        raise Unresolved(
            f"the stage has {job.tasks} tasks{shown}, and {index[:60]!r} is not an index of one: write {right}"
        )
    return position


def _results(flow: WorkflowState, stage: int, path: tuple[str, ...]) -> dict[tuple[int, int], NeededResult]:
    """The kept results of a stage that a path leads into: of one task, or of all."""
    job, spec = flow.job_id(stage), flow.workflow.stages[stage].job
    path = path_in_results(spec, path)
    one = int(path[0]) if path and spec.tasks > 1 else None
    return {
        (stage, each.position): NeededResult(
            stage, each.position, (job, each.position, each.attempt), each.size, each.sha256
        )
        for each in flow.kept.get(stage, ())
        if one is None or one == each.position
    }


def _may_name_artifacts(stage: Stage) -> bool:
    """A quick look, for most stages do not."""
    commands = (group.command for group in stage.job.groups)
    texts = (text for command in commands for text in (*command.argv, *command.env.values()))
    return ARTIFACTS in stage.spec or any(ARTIFACTS in text for text in texts)


def texts_of(stage: Stage) -> Iterator[str]:
    """The texts of a stage in which references are replaced."""
    for group in stage.job.groups:
        argv = group.command.argv
        programs = program_places(argv)
        yield from (word for place, word in enumerate(argv) if place not in programs)
        yield from group.command.env.values()
    if has_references(stage.spec):
        yield from _texts_in(msgspec.json.decode(stage.spec))


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(each)
