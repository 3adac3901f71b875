"""From a stage to the job that it becomes: its condition is asked, its references are resolved, its id is given."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct, structs

from phalanx.core.cluster.stage_inputs import artifact_of, path_in_results
from phalanx.core.cluster.workflows import StagePhase, WorkflowState
from phalanx.core.model.job import Command, Group, Job
from phalanx.core.model.program_words import program_places
from phalanx.core.model.references import (
    RESULT,
    NullValue,
    Reference,
    Unresolved,
    as_text,
    look_up,
    resolve,
    resolve_text,
)
from phalanx.core.model.workflow import SPEC_BYTES_MAX, SPEC_VARIABLE, Stage

INSERTED_BYTES_MAX = 4 << 20  # of all values that the references of one stage stand for
ARG_BYTES_MAX = 128 * 1024 - 1  # the kernel's limit for one string of exec, less its closing NUL


class SkippedStage(Struct, frozen=True):
    """The condition of a stage does not hold, so it does not run."""

    text: str


NO_RESULT = "the stage gave no result: it wrote nothing to the file in PHALANX_RESULT"


def job_of_stage(
    flow: WorkflowState,
    number: int,
    now: float,
    fetched: Mapping[tuple[int, int], str] = MappingProxyType({}),
) -> Job | SkippedStage:
    """The job that a stage becomes now; Unresolved if a value that it refers to is not there.

    `fetched` are the results that are not in the log, by stage and position.
    """
    stage, workflow = flow.workflow.stages[number], flow.workflow
    results = _Results(flow, fetched)
    if stage.condition is not None:
        actual, wanted = _text_at(results, stage), stage.condition.equals
        if actual != (wanted.lower() if actual in ("true", "false") else wanted):  # FlowMesh writes True
            name, field = workflow.stages[stage.condition.stage].name, ".".join(stage.condition.path)
            text = f"{field} of {name} is not {wanted[:200]!r}"
            if actual is None:
                text = f"the result of {name} has no value at {field}"
            return SkippedStage(f"its condition does not hold: {text}")
    groups = stage.job.groups
    if stage.refers or stage.spec:
        try:
            groups = tuple(
                structs.replace(group, command=_command(group, stage, results)) for group in groups
            )
        except RecursionError:
            raise Unresolved("a value is nested too deeply to be written down") from None
    id = flow.job_id(number)
    return structs.replace(
        stage.job, id=id, batch=id, submitted_at=now, groups=groups, workflow=(workflow.id, number)
    )


class _Results:
    """The values that references stand for, each result read once."""

    def __init__(self, flow: WorkflowState, fetched: Mapping[tuple[int, int], str]) -> None:
        self._flow = flow
        self._fetched = fetched
        self.names = flow.numbers
        self._read: dict[int, Any] = {}
        self._sizes: dict[Reference, int] = {}
        self._inserted = 0

    def __call__(self, reference: Reference) -> Any:
        stage = self.names[reference.stage]
        if reference.is_id:
            return self._flow.job_id(stage)
        if reference.artifact is not None:
            found = artifact_of(self._flow, reference)
            return f"{found.task_id}:{found.path}"
        try:
            value = self.at(stage, reference.path)
        except Unresolved as error:
            written = ".".join((reference.stage, RESULT, *reference.path))
            raise Unresolved(f"${{{written[:200]}}}: {error}") from None
        self._count(reference, value)
        return value

    def _count(self, reference: Reference, value: Any) -> None:
        """Refuse what is too much before it is written down: one large value may be named very often."""
        if reference not in self._sizes:
            self._sizes[reference] = len(msgspec.json.encode(value))
        self._inserted += self._sizes[reference]
        if self._inserted > INSERTED_BYTES_MAX:
            raise Unresolved(f"its references stand for over {INSERTED_BYTES_MAX} bytes in all")

    def at(self, stage: int, path: tuple[str, ...]) -> Any:
        """A value in the result of a stage; Unresolved if it is not there."""
        whole = self.of(stage)
        return look_up(whole, path_in_results(self._flow.workflow.stages[stage].job, path))

    def of(self, stage: int) -> Any:
        """The whole result of a stage; Unresolved if it has none."""
        if stage not in self._read:
            try:
                self._read[stage] = self._whole(stage)
            except (msgspec.DecodeError, RecursionError) as error:
                raise Unresolved(f"the result cannot be read: {error}") from None
        return self._read[stage]

    def _whole(self, stage: int) -> Any:
        """A result that the log has, with the parts of it in their places that were fetched."""
        text, kept = self._flow.results.get(stage), self._flow.kept.get(stage, ())
        if text is None and not kept:
            skipped = self._flow.phase(stage) == StagePhase.SKIPPED
            raise Unresolved("the stage was skipped" if skipped else NO_RESULT)
        tasks = self._flow.workflow.stages[stage].job.tasks
        found = [None] * tasks if text is None else msgspec.json.decode(text)
        for each in kept:
            part = self._fetched.get((stage, each.position))
            if part is None:  # of several tasks, no value of this one was asked for
                continue
            if tasks == 1:
                return msgspec.json.decode(part)
            found[each.position] = msgspec.json.decode(part)
        return found


def _text_at(results: _Results, stage: Stage) -> str | None:
    """The value that a condition asks about, as a text; None if nothing is there, which is not what was asked for."""
    assert stage.condition is not None
    try:
        return as_text(results.at(stage.condition.stage, stage.condition.path))
    except NullValue:
        return as_text(None)
    except Unresolved:
        return None


def _command(group: Group, stage: Stage, results: _Results) -> Command:
    """What a task of the stage runs, with every reference replaced."""
    command = group.command
    if stage.refers:
        programs = program_places(command.argv)  # nothing is replaced in these, for it would be run
        command = Command(
            tuple(
                word if place in programs else _fitting(resolve_text(word, results.names, results))
                for place, word in enumerate(command.argv)
            ),
            {
                key: _fitting(resolve_text(value, results.names, results))
                for key, value in command.env.items()
            },
            command.cwd,
        )
    if not stage.spec:
        return command
    spec = stage.spec
    if stage.refers and "${" in spec:
        spec = msgspec.json.encode(resolve(msgspec.json.decode(spec), results.names, results)).decode()
    if len(spec.encode()) > SPEC_BYTES_MAX:
        raise Unresolved(
            f"its spec has {len(spec)} bytes with all values in it, at most {SPEC_BYTES_MAX} are allowed"
        )
    return structs.replace(command, env={**command.env, SPEC_VARIABLE: spec})


def _fitting(value: Any) -> str:
    """A value as one argument or one variable of a program."""
    text = as_text(value)
    if "\0" in text:
        raise Unresolved("a value with a NUL byte cannot be given to a program")
    if len(text.encode()) > ARG_BYTES_MAX:
        raise Unresolved(f"a value of {len(text)} bytes is too long for one argument of a program")
    return text
