"""Workflows from Python: a graph built in code, and the clients' methods about workflows.

    flow = client.workflow("fine-tune")
    train = flow.stage("train", ["python", "train.py"], gpus=1)
    flow.stage("judge", ["python", "judge.py", "--model", train.result["model"]])
    print(flow.submit().wait().status)

A stage that uses another one's result depends on it; `after` names further ones. A handle is good for its own workflow
only: names of stages may be the same in another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from typing import Any, Protocol, Self, TypedDict, Unpack

import msgspec

from phalanx.api.schema.groupspec import GroupSpec
from phalanx.api.schema.jobs import CancelReply, Page
from phalanx.api.schema.workflows import (
    ConditionSpec,
    RetryReply,
    RetryRequest,
    StageSpec,
    SubmittedWorkflow,
    WorkflowRequest,
    WorkflowSpec,
    WorkflowView,
)
from phalanx.client import workflow_calls
from phalanx.client.calls import Call
from phalanx.client.ids import AnyId
from phalanx.client.job_handles import JobHandle
from phalanx.client.plain_values import plain_text
from phalanx.client.stage_fields import StageFields, stage_job
from phalanx.client.surroundings import Export
from phalanx.client.workflow_handles import AsyncWorkflowAnswers, AsyncWorkflowHandle, WorkflowHandle
from phalanx.core.model.references import as_text


class ResultReference:
    """A value in the result of a stage that has not run yet; as a text it is `${stage.result.key}`."""

    __slots__ = ("_path", "stage")

    def __init__(self, stage: StageHandle, path: tuple[str, ...] = ()) -> None:
        self.stage = stage
        self._path = path

    def __getitem__(self, key: str | int) -> ResultReference:
        """The value under a key, or at an index of a list."""
        return ResultReference(self.stage, (*self._path, str(key)))

    def __str__(self) -> str:
        return f"${{{'.'.join((self.stage.name, 'result', *self._path))}}}"

    def __repr__(self) -> str:
        return f"ResultReference({str(self)!r})"

    def __iter__(self) -> None:  # what has no end is not looped over by mistake
        raise TypeError("the result of a stage is not known before it has run, so it cannot be looped over")


class StageText(str):
    """A text that stands for something of a stage, such as `${stage.task_id}`, and knows whose it is."""

    __slots__ = ("stage",)
    stage: StageHandle

    def __new__(cls, stage: StageHandle, *path: str) -> Self:
        made = super().__new__(cls, f"${{{'.'.join((stage.name, *path))}}}")
        made.stage = stage
        return made


class StageHandle:
    """A stage of a workflow that is being built."""

    __slots__ = ("flow", "name")

    def __init__(self, name: str, flow: WorkflowBuilder) -> None:
        self.name = name
        self.flow = flow

    def __repr__(self) -> str:
        return f"StageHandle({self.name!r})"

    @property
    def result(self) -> ResultReference:
        """What the stage will give, for commands, environments and specs of other stages."""
        return ResultReference(self)

    def artifact(self, path: str = "", *, task: int | None = None) -> str:
        """A file that the stage will leave, as `phalanx cp` takes it; without a path, all of them.

        Of a stage with several tasks, `task` is the index of one.
        """
        return StageText(self, "artifacts", *([] if task is None else [str(task)]), *([path] if path else []))

    @property
    def job_id(self) -> str:
        """The id of its job, for the same places."""
        return StageText(self, "task_id")


Word = str | int | float | PathLike[str] | ResultReference
CONDITION_PARTS = 3


class WorkflowLimits(TypedDict, total=False):
    """When a workflow is stopped, and which variables of this process its stages get."""

    deadline: float | str | None
    budget: float | None
    export: Export


class AsyncWorkflowCalls(AsyncWorkflowAnswers, Protocol):
    """What an async builder asks of its client, besides its handle."""

    async def submit_workflow(
        self, request: WorkflowRequest | WorkflowSpec, /, *, export: Export = None
    ) -> SubmittedWorkflow: ...


class WorkflowBuilder:
    """A workflow, stage by stage."""

    def __init__(
        self,
        name: str = "",
        client: WorkflowCalls | None = None,
        *,
        deadline: float | str | None = None,
        budget: float | None = None,
        export: Export = None,
    ) -> None:
        self.name = name
        self.export = export
        self._client = client
        self._limits = deadline, budget
        self._stages: list[StageSpec] = []

    def __repr__(self) -> str:
        return f"WorkflowBuilder({', '.join([repr(self.name), *(stage.name for stage in self._stages)])})"

    def stage(
        self,
        name: str,
        command: Sequence[Word] = (),
        *,
        shell: str | None = None,
        after: Sequence[StageHandle | str] = (),
        when: tuple[StageHandle | str, str, Any] | None = None,
        task_type: str = "",
        spec: dict[str, Any] | None = None,
        env: dict[str, Word] | None = None,
        **fields: Unpack[StageFields],
    ) -> StageHandle:
        """Add a stage. `when` is a condition: a stage, where in its result, and the value that must be there."""
        self._check_new(name)
        _check_command(name, command)
        _check_inputs(name, after, when)
        group = GroupSpec(
            command=[self._text(name, "command", word) for word in command],
            shell=None if shell is None else self._text(name, "shell", shell),
            env={key: self._text(name, f"env.{key}", value) for key, value in (env or {}).items()},
        )
        job = stage_job(fields, group)
        names = [self._named(name, "after", each) for each in after]
        condition = None
        if when is not None:
            condition = ConditionSpec(self._named(name, "when", when[0]), when[1], as_text(when[2]))
            names += [condition.node] if condition.node not in names else []
        plain = self._plain(name, "spec", spec or {})
        _check_json(name, plain)
        self._stages.append(StageSpec(name, job, names, condition, task_type, plain))
        return StageHandle(name, self)

    def _check_new(self, name: str) -> None:
        if any(stage.name == name for stage in self._stages):
            raise ValueError(
                f"stage {name!r} is already in this workflow{_called(self.name)}: choose another name"
            )

    def _named(self, stage: str, field: str, other: StageHandle | str) -> str:
        """The name of a stage that another one builds on."""
        if isinstance(other, str):
            return other
        self._check_own(stage, field, other)
        return other.name

    def _text(self, stage: str, field: str, value: Any) -> Any:
        if isinstance(value, StageHandle):
            raise TypeError(
                f"stage {stage!r}: {field} has stage {value.name!r} itself: write what of it is meant, its result,"
                " its artifact() or its job_id"
            )
        if not isinstance(value, ResultReference | StageText):
            return plain_text(value)
        self._check_own(stage, field, value.stage)
        return str(value)

    def _plain(self, stage: str, field: str, value: Any) -> Any:
        """A spec with every reference as its text."""
        if isinstance(value, ResultReference | StageText):
            return self._text(stage, field, value)
        if isinstance(value, dict):
            return {key: self._plain(stage, f"{field}.{key}", each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self._plain(stage, f"{field}.{at}", each) for at, each in enumerate(value)]
        return value

    def _check_own(self, stage: str, field: str, other: StageHandle) -> None:
        """A handle of another workflow would mean whatever has that name here."""
        if other.flow is not self:
            raise ValueError(
                f"stage {stage!r}: {field} uses stage {other.name!r} of another workflow"
                f"{_called(other.flow.name)}: expected a stage of this one{_called(self.name)}; a job elsewhere"
                " is named by its whole id, in after="
            )

    def spec(self) -> WorkflowSpec:
        """The workflow as it can be submitted."""
        return WorkflowSpec(list(self._stages), self.name, *self._limits)

    def submit(self) -> WorkflowHandle:
        """Submit it. It is durable when this returns."""
        if self._client is None:
            raise TypeError(
                "this workflow was built without a client: give its spec() to client.submit_workflow"
            )
        return WorkflowHandle(self._client, self._client.submit_workflow(self.spec(), export=self.export))


class AsyncWorkflowBuilder(WorkflowBuilder):
    """A workflow of an async client, stage by stage; its `submit` is awaited."""

    def __init__(self, name: str, client: AsyncWorkflowCalls, **limits: Unpack[WorkflowLimits]) -> None:
        super().__init__(name, **limits)
        self._async_client = client

    async def submit(self) -> AsyncWorkflowHandle:  # type: ignore[override]  # as all that asks the cluster
        """Submit it. It is durable when this returns."""
        submitted = await self._async_client.submit_workflow(self.spec(), export=self.export)
        return AsyncWorkflowHandle(self._async_client, submitted)


def _check_command(stage: str, command: object) -> None:
    """A text would be taken for a list of letters. A function is no command, and is called by an Executor."""
    if callable(command):
        name = getattr(command, "__name__", repr(command))
        raise TypeError(
            f"stage {stage!r}: command = {name} is a function: expected a list of words;"
            " functions are called by phalanx.Executor, or by the nodes as a task_type"
        )
    if isinstance(command, str | bytes):
        text = command if isinstance(command, str) else command.decode(errors="replace")
        raise TypeError(
            f"stage {stage!r}: command = {text[:80]!r} is a text: expected a list of words, {text.split()[:8]!r}, or"
            f" shell={text[:80]!r}"
        )


def _check_inputs(stage: str, after: object, when: object) -> None:
    """One stage alone would be taken for a list of letters, or fail without saying why."""
    if isinstance(after, str | StageHandle):
        name = after if isinstance(after, str) else after.name
        raise TypeError(
            f"stage {stage!r}: after = {name!r} is one stage: expected a list of stages, [{name!r}]"
        )
    if when is not None and not (isinstance(when, tuple) and len(when) == CONDITION_PARTS):
        raise TypeError(
            f"stage {stage!r}: when = {str(when)[:80]!r}: expected a stage, where in its result, and the value, such"
            " as (judge, 'verdict', 'pass')"
        )


def _check_json(stage: str, spec: object) -> None:
    try:
        msgspec.json.encode(spec)
    except TypeError as error:
        raise TypeError(f"stage {stage!r}: spec has what JSON does not have: {error}") from None
    except (ValueError, RecursionError):
        return  # the coordinator says where


def _called(name: str) -> str:
    return f" ({name!r})" if name else ""


class WorkflowCalls:
    """The methods of `Client` that are about workflows."""

    def _ask(self, call: Call[Any]) -> Any:
        raise NotImplementedError

    def handle(self, id: AnyId) -> JobHandle:
        raise NotImplementedError

    def _waited(
        self, call: Callable[[float], Call[Any]], has_ended: Callable[[Any], bool], timeout_s: float | None
    ) -> Any:
        raise NotImplementedError

    def workflow(
        self,
        name: str = "",
        *,
        deadline: float | str | None = None,
        budget: float | None = None,
        export: Export = None,
    ) -> WorkflowBuilder:
        """A new workflow, to be built stage by stage and submitted. It is stopped at its deadline and its budget.

        Its commands run with the environment of this process, as far as `export` says: ALL, NONE or names.
        """
        return WorkflowBuilder(name, self, deadline=deadline, budget=budget, export=export)

    def submit_workflow(
        self, request: WorkflowRequest | WorkflowSpec, /, *, export: Export = None
    ) -> SubmittedWorkflow:
        """Submit a workflow: all of its stages are accepted, or none. `export` is that of `submit`."""
        found: SubmittedWorkflow = self._ask(workflow_calls.submit_workflow(request, export))
        return found

    def workflows(self, *, cursor: str | None = None, limit: int = 100) -> Page[WorkflowView]:
        """Newest first, without their stages."""
        found: Page[WorkflowView] = self._ask(workflow_calls.workflows(cursor, limit))
        return found

    def workflow_view(self, id: AnyId) -> WorkflowView:
        """One workflow with its stages."""
        found: WorkflowView = self._ask(workflow_calls.workflow(id))
        return found

    def wait_workflow(
        self, id: AnyId, timeout: float | None = None, *, must_end: bool = True
    ) -> WorkflowView:
        """As it ended. TimeoutError if that takes more than `timeout` s, or with `must_end=False` as it then stands."""
        call = partial(workflow_calls.wait_workflow, id)
        found: WorkflowView = self._waited(call, workflow_calls.has_ended, timeout)
        if must_end:
            workflow_calls.check_ended(found)
        return found

    def cancel_workflow(self, id: AnyId) -> CancelReply:
        """Cancel every stage that has not ended."""
        found: CancelReply = self._ask(workflow_calls.cancel_workflow(id))
        return found

    def retry_workflow(
        self,
        id: AnyId,
        from_stage: str | None = None,
        *,
        deadline: float | str | None = None,
        budget: float | None = None,
    ) -> RetryReply:
        """Run stages of an ended workflow again: one and all that build on it, or whatever did not complete."""
        request = RetryRequest(from_stage, deadline, budget)
        found: RetryReply = self._ask(workflow_calls.retry_workflow(id, request))
        return found
