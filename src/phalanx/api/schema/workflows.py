"""Workflows as they travel over REST, and how a `WorkflowSpec` becomes a `Workflow` or a refusal that names the field.

Checked here is all that can be known without the cluster: names, who builds on whom, references, limits. How a file of
stages becomes a spec is `manifests/workflows.py`'s business, which program a task type means is the coordinator's.
"""

from __future__ import annotations

from collections.abc import Callable
from graphlib import CycleError, TopologicalSorter
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from phalanx.api.schema.fields import (
    check_count,
    check_job_name,
    check_number,
    check_text,
    read_deadline,
    read_duration,
    shown,
    too_deep,
)
from phalanx.api.schema.groupspec import GroupSpec
from phalanx.api.schema.jobs import StatusWord
from phalanx.api.schema.jobspec import JobSpec, to_job
from phalanx.api.schema.stage_references import StageReferences, check_indexes
from phalanx.core.model.dispatch import TASK_TYPE_TAG
from phalanx.core.model.job import NAME_MAX, Job, is_job_name
from phalanx.core.model.json_depth import too_deep_at
from phalanx.core.model.references import STAGE_NAME_MAX
from phalanx.core.model.workflow import (
    EDGES_MAX,
    SPEC_BYTES_MAX,
    SPEC_VARIABLE,
    STAGES_MAX,
    Stage,
    StageCondition,
    Workflow,
)
from phalanx.errors import BadRequest, PhalanxError

BUDGET_MIN, BUDGET_MAX = 1e-9, 1e9
STAGE_TASKS_MAX = 1000  # results of several tasks are one list, which others read
_STAGE_SIGNS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")

StageWord = Literal[
    "Waiting", "Pending", "Assigned", "Running", "Completed", "Skipped", "Failed", "Cancelled"
]


class TaskProgram(Struct, frozen=True):
    """What a task type means."""

    argv: list[str]
    merges: bool = False  # it takes several tasks at once
    cwd: str | None = None  # where it runs, unless the stage says so
    env: dict[str, str] = {}  # beneath that of the stage


Commander = Callable[[str], TaskProgram | None]


class ConditionSpec(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The stage runs only if a value of another one's result is this, as a text."""

    node: str  # the stage, one of `after`
    field: str  # where in its result: items.0.output
    equals: str


class StageSpec(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One stage: a job, whose command may be left out if its task type has one."""

    name: str
    job: JobSpec
    after: list[str] = []  # stages of the same workflow that have to complete first
    condition: ConditionSpec | None = None
    task_type: str = ""
    spec: dict[str, Any] = {}  # for the program, as JSON in PHALANX_SPEC


class WorkflowSpec(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A workflow. Texts in commands, environments and specs may refer to results: ${train.result.loss}."""

    stages: list[StageSpec]
    name: str = ""
    deadline: float | str | None = (
        None  # 2h or seconds from now, or a time with its zone: 2027-01-31T08:00:00Z
    )
    budget: float | None = None  # what its attempts may cost, by the prices that nodes have for an hour


class WorkflowRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A workflow to submit: all of it is accepted, or nothing."""

    workflow: WorkflowSpec
    allow_infeasible: bool = False  # wait even if no node of today could ever hold a stage
    request_id: str | None = None  # the same as the Idempotency-Key header
    exported: dict[
        str, str
    ] = {}  # the caller's environment, as of `submit`; programs of task types do not get it


class SubmittedWorkflow(Struct, omit_defaults=True):
    """Durable when you read this. `jobs` holds the id of each stage's job, which begins when its inputs are there."""

    id: str
    name: str
    jobs: dict[str, str]
    replayed: bool = False  # true when the same request_id had been answered before
    warnings: list[str] = []  # why it may not keep its deadline or its budget
    number: int = 0  # by arrival, among all jobs and workflows


class StageView(Struct, omit_defaults=True):
    """One stage as it stands."""

    name: str
    status: StageWord
    job_id: str
    after: list[str] = []
    waits_for: list[str] = []  # of `after`, those that have not completed
    task_type: str = ""
    node: str | None = None  # that ran it last
    attempts: int = 0
    retries: int = 0  # how often the stage was retried as a whole
    started_at: float | None = None
    ended_at: float | None = None
    parent: str | None = None  # the stage whose end is why this one never ran
    reason: str = ""  # why it ended so, or what it waits for
    result: Any = None  # for those who may inspect it
    number: int = 0  # of its job; 0: it has none yet
    reused: int = 0  # how many of its models and datasets its node had loaded already


class WorkflowView(Struct, omit_defaults=True):
    """A workflow and its stages. `counts` has the number of stages by status."""

    id: str
    name: str
    user: str
    status: StatusWord
    submitted_at: float
    counts: dict[str, int]
    ended_at: float | None = None
    stages: list[StageView] = []  # none in lists
    deadline_at: float | None = None
    budget: float | None = None
    cost: float = 0.0  # so far, by the share of each node that its attempts held
    reason: str = ""  # which limit it was stopped at
    number: int = 0  # by arrival, among all jobs and workflows; it names the workflow wherever its id does


class RetryRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Which stages run again: one and all that build on it, or whatever did not complete."""

    from_stage: str | None = None
    deadline: float | str | None = None  # instead of the one before
    budget: float | None = None  # in all, with what earlier attempts have cost


class RetryReply(Struct):
    """Which stages run again, and under which ids."""

    id: str
    jobs: dict[str, str]


def to_workflow(
    spec: WorkflowSpec, *, id: str, now: float, user: str, default_retries: int, command_of: Commander
) -> Workflow:
    """The workflow a spec describes, or a refusal that names the field, its value and what would be right."""
    if spec.name:
        check_job_name("name", spec.name)
    if not spec.stages:
        raise BadRequest("stages: there is none; give at least one")
    check_count("stages", len(spec.stages), STAGES_MAX)
    numbers = _numbered(spec.stages)
    stages: list[Stage] = []
    jobs, referred = _StageJobs(spec.name, now, user, default_retries), StageReferences(numbers)
    for number, stage in enumerate(spec.stages):
        field = f"stages[{number}] ({stage.name})"
        try:
            program = _program(stage, command_of)
            job = jobs.of(stage, program)
        except PhalanxError as error:
            raise type(error)(f"{field}: {error.detail}", reason=error.reason, hint=error.hint) from None
        made = _stage(stage, job, numbers, referred, field)
        stages.append(structs.replace(made, merges=True) if program is not None and program.merges else made)
    _refuse_circles(stages)
    check_indexes(stages, numbers)
    check_limits(spec.deadline, spec.budget)
    until = None if spec.deadline is None else read_deadline("deadline", spec.deadline, now)
    return Workflow(id, tuple(stages), now, spec.name, user, until, spec.budget)


def check_limits(deadline: float | str | None, budget: float | None) -> None:
    """Refuse limits that are no numbers. Clients ask, too: JSON has no NaN, so that none would arrive."""
    if deadline is not None and not isinstance(deadline, str):
        read_duration("deadline", deadline)
    if budget is not None:
        check_number("budget", budget, BUDGET_MIN, BUDGET_MAX)


def _numbered(stages: list[StageSpec]) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for number, stage in enumerate(stages):
        if not (0 < len(stage.name) <= STAGE_NAME_MAX and _STAGE_SIGNS.issuperset(stage.name)):
            raise BadRequest(
                f"stages[{number}].name: {shown(stage.name)} is not the name of a stage: write 1 to {STAGE_NAME_MAX}"
                " letters, digits, '.', '_' or '-'"
            )
        if stage.name in numbers:
            raise BadRequest(
                f"stages[{number}].name: {shown(stage.name)} is already the name of stages[{numbers[stage.name]}]"
            )
        numbers[stage.name] = number
    return numbers


def _program(stage: StageSpec, command_of: Commander) -> TaskProgram | None:
    """What the stage's type means, if the stage does not say itself what to run."""
    groups = stage.job.groups
    if not stage.task_type or len(groups) != 1 or groups[0].command or groups[0].shell is not None:
        return None
    check_text("task_type", stage.task_type, NAME_MAX)
    if (program := command_of(stage.task_type)) is None:
        raise BadRequest(
            f"task_type: no executor is declared for {shown(stage.task_type)}, and the stage has no command",
            reason="UnknownTaskType",
        )
    return program


class _StageJobs:
    """What the stages of one workflow will run; the ids of the jobs are given when they begin.

    Of stages in a row that ask for the same, as thousands of a generated workflow do, the first is read and checked.
    """

    def __init__(self, workflow: str, now: float, user: str, default_retries: int) -> None:
        self._workflow = workflow
        self._now = now
        self._user = user
        self._default_retries = default_retries
        self._last: tuple[JobSpec, Job] | None = None

    def of(self, stage: StageSpec, program: TaskProgram | None) -> Job:
        asked = stage.job
        if stage.task_type:
            check_text("task_type", stage.task_type, NAME_MAX)
            tags = {**asked.tags, TASK_TYPE_TAG: stage.task_type}
            asked = structs.replace(asked, tags=tags)
            if program is not None:
                asked = structs.replace(asked, groups=[_with_program(asked.groups[0], program)])
        job = self._read(asked)
        if any(SPEC_VARIABLE in group.command.env for group in job.groups) and stage.spec:
            raise BadRequest(f"job: {SPEC_VARIABLE} is set for the program by Phalanx, leave it out of env")
        return job if job.name else structs.replace(job, name=_job_name(self._workflow, stage.name))

    def _read(self, asked: JobSpec) -> Job:
        # Equal parameters may be of other types: 1, 1.0 and true.
        if self._last is not None and asked == self._last[0] and not asked.params and not asked.each:
            return self._last[1]
        job = to_job(asked, id="", now=self._now, user=self._user, default_retries=self._default_retries)
        if job.draft is not None or job.applied:
            raise BadRequest("job: members that come later belong to gangs that are applied, not to stages")
        if asked.hold:
            raise BadRequest(
                "job.hold: a stage begins when those before it have completed; hold its job then"
            )
        if job.tasks > STAGE_TASKS_MAX:
            raise BadRequest(f"job: a stage has at most {STAGE_TASKS_MAX} tasks, and this has {job.tasks}")
        self._last = asked, job
        return job


def _with_program(group: GroupSpec, program: TaskProgram) -> GroupSpec:
    """The group runs the program of its task type; what the stage says of folder and environment comes first."""
    cwd = program.cwd if group.cwd is None else group.cwd
    return structs.replace(group, command=program.argv, cwd=cwd, env={**program.env, **group.env})


def _job_name(workflow: str, stage: str) -> str:
    """What `ps` calls the stage's job, if that can be a name."""
    name = f"{workflow or 'workflow'}.{stage}"
    return name if is_job_name(name) else ""


def _stage(
    stage: StageSpec, job: Job, numbers: dict[str, int], referred: StageReferences, field: str
) -> Stage:
    own = numbers[stage.name]
    after: dict[int, None] = {}
    for name in stage.after:
        if name not in numbers:
            raise BadRequest(
                f"{field}.after: there is no stage {shown(name)} in this workflow (a job elsewhere is named by its"
                " whole id)",
                reason="UnknownStage",
            )
        after[numbers[name]] = None
    if own in after:
        raise BadRequest(f"{field}.after: the stage names itself")
    condition = None
    if stage.condition is not None:
        condition = _condition(stage.condition, numbers, after, field)
    text = _spec_text(stage.spec, field)
    used = referred.of(job, text, stage.spec, field)
    refers = used is not None
    for number in used or ():
        if number == own:
            raise BadRequest(f"{field}: the stage refers to its own result")
        after[number] = None
    return Stage(stage.name, job, tuple(after), condition, stage.task_type, text, refers)


def _condition(
    spec: ConditionSpec, numbers: dict[str, int], after: dict[int, None], field: str
) -> StageCondition:
    number = numbers.get(spec.node)
    if number is None or number not in after:
        raise BadRequest(
            f"{field}.condition.node: {shown(spec.node)} is not among the stages in its `after`"
            ", which a condition can ask for the result of: add it there"
        )
    check_text(f"{field}.condition.field", spec.field, STAGE_NAME_MAX * 16)
    path = tuple(part.strip() for part in spec.field.split(".") if part.strip())
    if not path:
        raise BadRequest(f"{field}.condition.field: it is empty, say which value: items.0.output")
    return StageCondition(number, path[1:] if path[0] == "result" and len(path) > 1 else path, spec.equals)


def _spec_text(spec: dict[str, Any], field: str) -> str:
    if not spec:
        return ""
    try:
        text = msgspec.json.encode(spec).decode()
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise BadRequest(f"{field}.spec: it cannot be written as JSON: {error}") from None
    except RecursionError:
        raise too_deep(f"{field}.spec") from None
    if (where := too_deep_at(text)) is not None:
        raise too_deep(f"{field}.spec.{where}")
    if len(text.encode()) > SPEC_BYTES_MAX:
        raise BadRequest(
            f"{field}.spec: {len(text)} bytes of JSON are too many, at most {SPEC_BYTES_MAX} are allowed"
        )
    return text


def _refuse_circles(stages: list[Stage]) -> None:
    edges = sum(len(stage.after) for stage in stages)
    if edges > EDGES_MAX:
        raise BadRequest(f"stages: {edges} dependencies are too many, at most {EDGES_MAX} are allowed")
    if all(other < number for number, stage in enumerate(stages) for other in stage.after):
        return  # each builds on earlier ones alone
    try:
        TopologicalSorter({number: stage.after for number, stage in enumerate(stages)}).prepare()
    except CycleError as error:
        ring = " → ".join(stages[number].name for number in reversed(error.args[1]))
        raise BadRequest(f"stages: they wait for each other in a circle: {ring}", reason="Cycle") from None
