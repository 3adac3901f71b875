"""Workflow files, as FlowMesh writes them or in the short form: what of a spec becomes which stage of a workflow.

Where the stages are written, and what each inherits, is read by `stage_entries.py`. Fields of
job files (`command`, `env`, `time_limit`, …) may stand in a stage's spec. All other fields are for the program, which
gets the whole spec as JSON; a stage that gives a command and no task type may only use those known here, so that a
misspelt field is an error.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from phalanx.api.schema.documents import complaint
from phalanx.api.schema.fields import shown
from phalanx.api.schema.groupspec import GroupSpec
from phalanx.api.schema.jobspec import JobSpec
from phalanx.api.schema.short_forms import ease_group, ease_job
from phalanx.api.schema.workflows import ConditionSpec, StageSpec, TaskProgram, WorkflowSpec, to_workflow
from phalanx.core.model.job import RETRIES_MAX
from phalanx.core.model.references import as_text
from phalanx.core.model.workflow import WORKFLOW_BYTES_MAX
from phalanx.errors import BadRequest, PhalanxError
from phalanx.manifests.caution import Cautions, ManifestError
from phalanx.manifests.containers import NOTHING_RUNS
from phalanx.manifests.found import ParsedJob, plain_name
from phalanx.manifests.lines import stage_line
from phalanx.manifests.load import Map, place
from phalanx.manifests.short_workflow import FLOWMESH, HEAD, NEEDS, VERSIONS, is_short
from phalanx.manifests.stage_entries import ABOUT_STAGES, AFTER, LIMITS, entries
from phalanx.manifests.stage_resources import cores, hardware, mapping, meant, near, wrong
from phalanx.manifests.view import View

ATTEMPTS = 3  # runs of a stage in all, unless its file says otherwise
_GROUP_FIELDS = frozenset(GroupSpec.__struct_fields__) - {"name", "after", "objects", "optional", "min"}
_JOB_FIELDS = frozenset(JobSpec.__struct_fields__) - {
    "groups",
    "name",
    "object",
    "draft",
    "applied",
    "success",
    "hold",
    "after",
    "params",  # of a stage they are for its program
    "each",
}
_ATTEMPT_FIELDS = ("max_attempts", "maxAttempts", "retries")
# What FlowMesh's task types have in common, and `params` for whatever a program wants to be told.
_FOR_PROGRAMS = (
    "adapters", "agent", "api", "checkpoint", "data", "dataset", "embedding", "evaluation", "inference", "lora",
    "model", "models", "output", "parallel", "params", "prompt", "serve", "shard", "training", "validation",
)  # fmt: skip
_KNOWN = frozenset({*_GROUP_FIELDS, *_JOB_FIELDS, *_FOR_PROGRAMS, "resources", "condition", "taskType"})


class _Limits(Struct, forbid_unknown_fields=True):
    """Of the workflow as a whole; they stand beside its stages."""

    deadline: float | str | None = None
    budget: float | None = None


class WorkflowSize(Struct):
    """How much the workflows of one reading have as JSON, all together."""

    bytes: int = 0


class ParsedWorkflow(Struct, frozen=True):
    """A workflow as read."""

    spec: WorkflowSpec
    where: str
    is_foreign: bool = False  # by its version: a file of FlowMesh, which knows no environment of its user


def first_stages(flow: ParsedWorkflow, cautions: Cautions) -> list[ParsedJob]:
    """The stages that would begin at once, as jobs for a plan; where the others go is not known before they begin."""
    found = []
    for stage in flow.spec.stages:
        if stage.after:
            continue
        groups = [
            group
            if group.command or group.shell
            else msgspec.structs.replace(group, command=list(NOTHING_RUNS))
            for group in stage.job.groups
        ]
        name = f"{flow.spec.name or 'workflow'}:{stage.name}"
        found.append(ParsedJob(msgspec.structs.replace(stage.job, groups=groups), flow.where, name))
    later = len(flow.spec.stages) - len(found)
    if later:
        text = f"{later} of its stages begin when others have completed: where they go is not planned"
        cautions.add(flow.where, flow.spec.name or "workflow", "", "", text)
    return found


def is_workflow_file(document: View) -> bool:
    """Whether a document is a workflow: by its version, or by the fields of its spec."""
    version = document.content.get("apiVersion")
    if isinstance(version, str) and version.startswith(VERSIONS):
        return True
    spec = document.content.get("spec")
    told = isinstance(spec, dict) and any(key in spec for key in ("taskType", "stages", "graph"))
    return version is None and (told or is_short(document.content))


def read_workflow(document: View, size: WorkflowSize) -> ParsedWorkflow:
    """Read one workflow; `size` counts what all of a reading have."""
    spec, name = _short(document) if document.source.is_short else _with_spec(document)
    _refuse_misspelt(spec)
    stages = _stages(spec, size)
    limits = {key: spec.content[key] for key in LIMITS if spec.content.get(key) is not None}
    try:
        limited = msgspec.convert(_plain(limits), _Limits)
    except msgspec.ValidationError as error:
        field, what = complaint(error, _Limits, limits)
        raise spec.error(field, what) from None
    made = WorkflowSpec(stages, name, limited.deadline, limited.budget)
    _validate(made, document)
    version = document.content.get("apiVersion")
    return ParsedWorkflow(made, document.where(), isinstance(version, str) and version.startswith(FLOWMESH))


def _short(document: View) -> tuple[View, str]:
    """Where the spec of a workflow in the short form is, and its name."""
    document.skip(*document.content)
    name = document.text("name")
    return document, plain_name(name, document) if name else ""


def _with_spec(document: View) -> tuple[View, str]:
    """The same of one as FlowMesh writes it."""
    for key in document.content:
        if key not in ("apiVersion", "kind", "metadata", "spec"):
            raise document.error(
                key, "is unknown at the top of a workflow: give apiVersion, kind, metadata, spec"
            )
    document.skip("apiVersion", "kind")
    metadata = document.view("metadata")
    name = metadata.text("name")
    if "owner" in metadata:
        metadata.caution("owner", "is not read: a workflow belongs to the user who submits it")
    if "annotations" in metadata and "schedule_hint" in metadata.view("annotations"):
        metadata.view("annotations").caution(
            "schedule_hint", "is not read: stages begin when their inputs are there"
        )
    metadata.skip("annotations", "labels", "owner")
    spec = document.view("spec")
    if not spec.content:
        raise document.error("spec", "is missing or empty: give taskType or command, stages, or graph")
    spec.skip(*spec.content)
    return spec, plain_name(name, metadata) if name else ""


def _stages(spec: View, size: WorkflowSize) -> list[StageSpec]:
    """All stages. Each has what it inherits, so together they may be far larger than their file."""
    stages: list[StageSpec] = []
    for entry in entries(spec):
        stages.append(_stage(*entry))
        size.bytes += len(msgspec.json.encode(stages[-1]))
        if size.bytes > WORKFLOW_BYTES_MAX:
            raise entry[0].error(
                "spec", f"with what the stages inherit they are over the limit of {WORKFLOW_BYTES_MAX} bytes"
            )
    return stages


def _refuse_misspelt(spec: View) -> None:
    """What looks like a field of the whole workflow would else be given to the programs of its stages, unread."""
    has_stages = "stages" in spec or "graph" in spec
    fields = LIMITS if has_stages else (*LIMITS, "stages", "graph")
    for key in spec.content:
        is_known = key in _KNOWN or key in ABOUT_STAGES or key in _ATTEMPT_FIELDS
        if not is_known and (found := near(key, fields, cutoff=0.8)):
            raise spec.error(key, f"is unknown, did you mean {found!r}?")
        if not is_known and spec.source.is_short and key not in (*HEAD, *NEEDS) and "taskType" not in spec:
            raise spec.error(key, f"is unknown{meant(key, _KNOWN)}")


def _stage(view: View, name: str, spec: dict[str, Any], after: list[str], jobs: list[str]) -> StageSpec:
    """One stage. `spec` is merged already, so errors name its fields and the line of the stage."""
    task_type = spec.get("taskType")
    if task_type is not None and not (isinstance(task_type, str) and task_type.strip()):
        raise wrong(view, "spec.taskType", f"{shown(task_type)} is not a task type, such as inference")
    has_command = "command" in spec or "shell" in spec
    if "after" in spec:
        raise wrong(view, "spec.after", AFTER)
    if task_type is None and not has_command:
        for key in spec:
            if key not in (*_KNOWN, *_ATTEMPT_FIELDS) and near(key, _KNOWN):
                _refuse_unknown(view, key)
        field = "spec.command" if view.source.is_short else "spec.taskType"
        raise wrong(view, field, "is missing: give a task type, or a command")
    plain = {key: value for key, value in spec.items() if key in _GROUP_FIELDS | _JOB_FIELDS}
    told = {key: value for key, value in spec.items() if key not in ABOUT_STAGES}
    if task_type is None:
        told = {key: value for key, value in told.items() if key not in plain}
        for key in (*_ATTEMPT_FIELDS, "resources"):
            told.pop(key, None)
        for key in told:
            _refuse_unknown(view, key)
    job = _job_spec(view, plain, spec, jobs)
    condition = spec.get("condition")
    return StageSpec(
        name,
        job,
        after,
        None if condition is None else _condition(view, condition),
        (task_type or "").strip(),
        _plain(told),
    )


def _refuse_unknown(view: View, key: str) -> None:
    if key in _FOR_PROGRAMS:
        return
    if key == "cpu":
        raise wrong(view, "spec.cpu", "is unknown, write cores: 0.5, or resources: {hardware: {cpu: 500m}}")
    raise wrong(
        view,
        f"spec.{key}",
        f"is unknown{meant(key, _KNOWN)} (what a program is to be told may stand under params)",
    )


def _job_spec(view: View, plain: dict[str, Any], spec: dict[str, Any], jobs: list[str]) -> JobSpec:
    fields: dict[str, Any] = {key: value for key, value in plain.items() if key in _JOB_FIELDS}
    group: dict[str, Any] = {key: value for key, value in plain.items() if key in _GROUP_FIELDS}
    for key, value in hardware(view, spec.get("resources")).items():
        if key in group and group[key] != value:
            raise wrong(
                view, f"spec.{key}", f"{shown(group[key])} contradicts resources.hardware, which says {value}"
            )
        group[key] = value
    if isinstance(group.get("cores"), str):
        group["cores"] = cores(view, "spec.cores", group["cores"])
    for key in ("env", "labels", "tags"):
        if isinstance(group.get(key), dict):
            group[key] = {k: str(v) if type(v) in (int, float) else v for k, v in group[key].items()}
    fields["tags"] = group.pop("tags", {})
    fields["groups"] = [ease_group(group)]
    fields["after"] = jobs
    fields["max_retries"] = _retries(view, spec)
    try:
        return msgspec.convert(_plain(ease_job(fields)), JobSpec)
    except BadRequest as error:
        raise wrong(view, "spec.gather", error.detail) from None
    except msgspec.ValidationError as error:
        field, what = complaint(error, JobSpec, fields)
        raise wrong(view, f"spec.{field.removeprefix('groups[0].')}", what) from None


def _retries(view: View, spec: dict[str, Any]) -> int:
    """Runs after the first. FlowMesh counts runs in all; there a negative number means without end, and 0 means 1."""
    given = [key for key in (*_ATTEMPT_FIELDS, "max_retries") if key in spec]
    if len(given) > 1:
        raise wrong(view, f"spec.{given[0]}", f"and {given[1]} are both given: give one of them")
    if not given:
        return ATTEMPTS - 1
    value = spec[given[0]]
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong(view, f"spec.{given[0]}", f"{shown(value)} is not a whole number")
    if value < 0:
        return RETRIES_MAX
    return value if given[0].endswith("retries") else max(value - 1, 0)


def _condition(view: View, value: Any) -> ConditionSpec:
    found = mapping(view, "spec.condition", value, ("node", "field", "equals"))
    for key in ("node", "field"):
        if not isinstance(found.get(key), str):
            raise wrong(view, f"spec.condition.{key}", f"{shown(found.get(key))} is not text")
    if "equals" not in found:
        raise wrong(view, "spec.condition.equals", "is missing: give the value that the field must have")
    return ConditionSpec(found["node"], found["field"], as_text(_plain(found["equals"])))


def _plain(value: Any) -> Any:
    """Mappings and lists without the lines of their file."""
    if isinstance(value, Map | dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value


def _validate(spec: WorkflowSpec, document: View) -> None:
    """Check what the coordinator will check, so that an error names the file. Any task type is taken here."""
    try:
        to_workflow(
            spec,
            id="0" * 26,
            now=0.0,
            user="",
            default_retries=0,
            command_of=lambda _type: TaskProgram(["/bin/true"]),
        )
    except PhalanxError as error:
        message = ": ".join(filter(None, (document.source.title, error.detail)))
        line = stage_line(document.content, error.detail, [each.name for each in spec.stages])
        raise ManifestError(
            place(document.source.file, line), message, reason=error.reason, hint=error.hint
        ) from None
