"""Workflow files, as FlowMesh writes them: one task, a chain of `stages`, or the `nodes` of a `graph`.

Every stage inherits the spec at the top, merged deeply: mappings into mappings, everything else is replaced. Fields of
job files (`command`, `env`, `time_limit`, …) may stand in a stage's spec. All other fields are for the program, which
gets the whole spec as JSON; a stage that gives a command and no task type may only use those known here, so that a
misspelt field is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from phalanx.api.schema.documents import complaint
from phalanx.api.schema.fields import shown
from phalanx.api.schema.groupspec import GroupSpec
from phalanx.api.schema.jobspec import JobSpec
from phalanx.api.schema.short_forms import ease_group, ease_job
from phalanx.api.schema.workflows import ConditionSpec, StageSpec, TaskProgram, WorkflowSpec, to_workflow
from phalanx.core.model.job import RETRIES_MAX, is_job_id
from phalanx.core.model.references import as_text
from phalanx.core.model.workflow import STAGES_MAX, WORKFLOW_BYTES_MAX
from phalanx.errors import BadRequest, PhalanxError
from phalanx.manifests.caution import Cautions, ManifestError
from phalanx.manifests.containers import NOTHING_RUNS
from phalanx.manifests.found import ParsedJob, plain_name
from phalanx.manifests.lines import stage_line
from phalanx.manifests.load import DEPTH_MAX, Map, place
from phalanx.manifests.stage_resources import cores, hardware, mapping, meant, near, wrong
from phalanx.manifests.view import View

VERSIONS = ("flowmesh/", "mloc", "phalanx/")
ATTEMPTS = 3  # runs of a stage in all, unless its file says otherwise
_ENTRY_FIELDS = ("name", "id", "spec", "dependsOn")
_LIMITS = ("deadline", "budget")
_ABOUT_STAGES = ("stages", "graph", "dependsOn", "condition", *_LIMITS)
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
_AFTER = "is unknown here: name the stages that come before this one, and jobs by their ids, in dependsOn"


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
    return version is None and told


def read_workflow(document: View, size: WorkflowSize) -> ParsedWorkflow:
    """Read one workflow; `size` counts what all of a reading have."""
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
    _refuse_misspelt(spec)
    stages = _stages(spec, size)
    limits = {key: spec.content[key] for key in _LIMITS if spec.content.get(key) is not None}
    try:
        limited = msgspec.convert(_plain(limits), _Limits)
    except msgspec.ValidationError as error:
        field, what = complaint(error, _Limits, limits)
        raise spec.error(field, what) from None
    made = WorkflowSpec(stages, plain_name(name, metadata) if name else "", limited.deadline, limited.budget)
    _validate(made, document)
    return ParsedWorkflow(made, document.where())


def _stages(spec: View, size: WorkflowSize) -> list[StageSpec]:
    """All stages. Each has what it inherits, so together they may be far larger than their file."""
    stages: list[StageSpec] = []
    for entry in _entries(spec):
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
    fields = _LIMITS if has_stages else (*_LIMITS, "stages", "graph")
    for key in spec.content:
        is_known = key in _KNOWN or key in _ABOUT_STAGES or key in _ATTEMPT_FIELDS
        if not is_known and (found := near(key, fields, cutoff=0.8)):
            raise spec.error(key, f"is unknown, did you mean {found!r}?")


Entry = tuple[
    View, str, dict[str, Any], list[str], list[str]
]  # where, name, merged spec, stages and jobs before it


def _entries(spec: View) -> Iterator[Entry]:
    """The stages, with the spec that each inherits and what it comes after."""
    root = {
        key: value for key, value in spec.content.items() if key not in _ABOUT_STAGES and value is not None
    }
    if "stages" in spec and "graph" in spec:
        raise spec.error("stages", "and graph are both given: a workflow is a chain of stages or a graph")
    if "stages" not in spec and "graph" not in spec:
        _, jobs = _split(spec, "dependsOn", [])
        if (condition := spec.content.get("condition")) is not None:
            raise spec.error("condition", f"{shown(condition)} is given, and there is no other stage to ask")
        yield spec, "task", root, [], jobs
        return
    for key in ("dependsOn", "condition"):
        if key in spec:
            raise spec.error(key, "belongs into a stage, not beside the stages")
    is_chain = "stages" in spec
    views = spec.views("stages") if is_chain else _nodes(spec)
    if len(views) > STAGES_MAX:
        raise spec.error("stages" if is_chain else "graph", f"has {len(views)} stages, at most {STAGES_MAX}")
    names = [
        _name(view, f"{'stage' if is_chain else 'node'}-{number}")
        for number, view in enumerate(views, start=1)
    ]
    for number, (view, name) in enumerate(zip(views, names, strict=True)):
        own = view.view("spec")
        own.skip(*own.content)
        for key in _LIMITS:
            if key in own:
                raise own.error(key, "is of the whole workflow: it belongs beside the stages, not into one")
        after, jobs = _split(view, "dependsOn", names)
        if "dependsOn" in own:
            more, others = _split(own, "dependsOn", names)
            after, jobs = after + more, jobs + others
        if is_chain and number and not (after or jobs):
            after = [names[number - 1]]
        yield view, name, _merged(root, own.content), after, jobs


def _nodes(spec: View) -> list[View]:
    graph = spec.view("graph")
    for key in graph.content:
        if key != "nodes":
            raise graph.error(key, "is unknown: a graph has nodes")
    return graph.views("nodes")


def _name(view: View, default: str) -> str:
    for key in view.content:
        if key not in _ENTRY_FIELDS:
            if key == "after":
                raise view.error(key, _AFTER)
            raise view.error(
                key, f"is unknown here{meant(key, _ENTRY_FIELDS)}; a stage has {', '.join(_ENTRY_FIELDS)}"
            )
    return view.text("name") or view.text("id") or default


def _split(view: View, key: str, names: list[str]) -> tuple[list[str], list[str]]:
    """Stages of this workflow that come first, and jobs elsewhere, which are given by their whole ids."""
    value = view.get(key)
    if value is None:
        return [], []
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise view.error(key, f"{shown(value)} is not a list of names")
    known = set(names)
    jobs = [each for each in value if each not in known and is_job_id(each.partition(":")[0].lower())]
    stages = [each for each in value if each not in jobs]
    for each in stages:
        if each not in known:
            raise view.error(
                key,
                f"there is no stage {shown(each)}{meant(each, names)} (a job elsewhere is named by its whole id)",
            )
    return stages, [each.lower() for each in jobs]


def _merged(root: dict[str, Any], own: dict[str, Any], depth: int = 0) -> dict[str, Any]:
    """The root's fields with those of a stage over them."""
    merged = dict(root)
    for key, value in own.items():
        if value is None:
            continue
        before = merged.get(key)
        if isinstance(before, dict) and isinstance(value, dict) and depth < DEPTH_MAX:
            merged[key] = _merged(before, value, depth + 1)
        else:
            merged[key] = value
    return merged


def _stage(view: View, name: str, spec: dict[str, Any], after: list[str], jobs: list[str]) -> StageSpec:
    """One stage. `spec` is merged already, so errors name its fields and the line of the stage."""
    task_type = spec.get("taskType")
    if task_type is not None and not (isinstance(task_type, str) and task_type.strip()):
        raise wrong(view, "spec.taskType", f"{shown(task_type)} is not a task type, such as inference")
    has_command = "command" in spec or "shell" in spec
    if "after" in spec:
        raise wrong(view, "spec.after", _AFTER)
    if task_type is None and not has_command:
        for key in spec:
            if key not in (*_KNOWN, *_ATTEMPT_FIELDS) and near(key, _KNOWN):
                _refuse_unknown(view, key)
        raise wrong(view, "spec.taskType", "is missing: give a task type, or a command")
    plain = {key: value for key, value in spec.items() if key in _GROUP_FIELDS | _JOB_FIELDS}
    told = {key: value for key, value in spec.items() if key not in _ABOUT_STAGES}
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
