"""References in the stages of a workflow, checked when it is submitted.

Each can be read, names a stage, and is no part of a program text. What it stands for is only known when its stage
begins (`core/cluster/stages.py`).
"""

from __future__ import annotations

from typing import Any

from phalanx.api.schema.fields import shown
from phalanx.core.cluster.stage_inputs import artifact_of_job, path_in_results, texts_of
from phalanx.core.model.job import Command, Group, Job
from phalanx.core.model.program_words import program_places
from phalanx.core.model.references import (
    Reference,
    Unresolved,
    has_references,
    names_a_stage,
    references,
    why_not_closed,
)
from phalanx.core.model.workflow import Stage
from phalanx.errors import BadRequest


class StageReferences:
    """What the stages of one workflow refer to. Commands without a reference are read once for all that share them."""

    def __init__(self, numbers: dict[str, int]) -> None:
        self._numbers = numbers
        self._plain: tuple[Group, ...] | None = None  # the last groups without any

    def of(self, job: Job, text: str, spec: dict[str, Any], field: str) -> list[int] | None:
        """The stages whose results a stage uses; None if it has no reference at all."""
        if job.groups is self._plain and not has_references(text):
            return None
        found = _referred(job, text, spec, self._numbers, field)
        if found is None:
            self._plain = job.groups
        return found


def _referred(
    job: Job, text: str, spec: dict[str, Any], numbers: dict[str, int], field: str
) -> list[int] | None:
    found: dict[int, None] = {}
    has_any = False
    texts: list[tuple[str, str]] = []
    for group in job.groups:
        texts += _texts_of(group.command, numbers, field)
    if has_references(text):
        texts += [(f"{field}.spec{path}", each) for path, each in _texts_in(spec, "")]
    for where, each in texts:
        if not has_references(each):
            continue
        has_any = True
        if wrong := why_not_closed(each):
            raise BadRequest(f"{where}: {wrong}", reason="BadReference")
        try:
            for known in references(each, numbers):
                found.update({} if known.is_id else {numbers[known.stage]: None})
        except Unresolved as error:
            raise BadRequest(f"{where}: {error}", reason="BadReference") from None
    return list(found) if has_any else None


def check_indexes(stages: list[Stage], numbers: dict[str, int]) -> None:
    """Of a stage with several tasks, a reference to an artifact or into a result has to say of which."""
    for number, stage in enumerate(stages):
        field = f"stages[{number}] ({stage.name})"
        try:
            for text in filter(has_references, texts_of(stage)) if stage.refers else ():
                for reference in references(text, numbers):
                    _check_index(stages[numbers[reference.stage]].job, reference)
            if stage.condition is not None:
                field += ".condition.field"
                path_in_results(stages[stage.condition.stage].job, stage.condition.path)
        except Unresolved as error:
            raise BadRequest(f"{field}: {error}", reason="BadReference") from None


def _check_index(job: Job, reference: Reference) -> None:
    if reference.artifact is not None:
        artifact_of_job(job, reference)
        return
    try:
        path_in_results(job, reference.path)
    except Unresolved as error:
        raise Unresolved(f"${{{'.'.join((reference.stage, *reference.path))[:200]}}}: {error}") from None


def _texts_of(command: Command, stages: dict[str, int], field: str) -> list[tuple[str, str]]:
    """The texts of a command in which references are replaced. What a shell reads as a program is not among them."""
    texts = []
    programs = program_places(command.argv)
    if command.cwd is not None and names_a_stage(command.cwd, stages):
        raise BadRequest(
            f"{field}.cwd: {shown(command.cwd)} holds a reference, and the folder has to be known when the stage is"
            " submitted: give the value in env, or as an argument",
            reason="BadReference",
        )
    for place, word in enumerate(command.argv):
        where = f"{field}.command[{place}]"
        if not place and names_a_stage(word, stages):
            raise BadRequest(
                f"{where}: {shown(word)} is a reference in the place of the program, which everybody may see: write"
                f' command: [env, "{word[:80]}", …]',
                reason="BadReference",
            )
        if place not in programs:
            texts.append((where, word))
        elif names_a_stage(word, stages):
            raise BadRequest(
                f"{where}: a reference inside a program text would be run as part of it: give the value in env, or as"
                " a further argument",
                reason="BadReference",
            )
    return texts + [(f"{field}.env.{key}", value) for key, value in command.env.items()]


def _texts_in(value: Any, path: str) -> list[tuple[str, str]]:
    if isinstance(value, str):
        return [(path, value)]
    if isinstance(value, dict):
        return [found for key, each in value.items() for found in _texts_in(each, f"{path}.{key}")]
    if isinstance(value, list):
        return [found for place, each in enumerate(value) for found in _texts_in(each, f"{path}[{place}]")]
    return []
