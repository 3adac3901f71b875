"""Workflows from Python: a graph built in code, and the clients' methods about workflows.

    flow = client.workflow("fine-tune")
    train = flow.stage("train", ["python", "train.py"], gpus=1)
    flow.stage("judge", ["python", "judge.py", "--model", train.result["model"]])
    print(flow.submit().wait().status)

A stage that uses another one's result depends on it; `after` names further ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypedDict, Unpack

from phalanx.api.schema.groupspec import GroupSpec
from phalanx.api.schema.jobs import CancelReply, Page
from phalanx.api.schema.jobspec import JobSpec
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
from phalanx.core.model.references import as_text
from phalanx.core.model.resources import Cores


class ResultReference:
    """A value in the result of a stage that has not run yet; as a text it is `${stage.result.key}`."""

    __slots__ = ("_path", "_stage")

    def __init__(self, stage: str, path: tuple[str, ...] = ()) -> None:
        self._stage = stage
        self._path = path

    def __getitem__(self, key: str | int) -> ResultReference:
        """The value under a key, or at an index of a list."""
        return ResultReference(self._stage, (*self._path, str(key)))

    def __str__(self) -> str:
        return f"${{{'.'.join((self._stage, 'result', *self._path))}}}"

    def __iter__(self) -> None:  # what has no end is not looped over by mistake
        raise TypeError("the result of a stage is not known before it has run, so it cannot be looped over")


class StageHandle:
    """A stage of a workflow that is being built."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def result(self) -> ResultReference:
        """What the stage will give, for commands, environments and specs of other stages."""
        return ResultReference(self.name)

    def artifact(self, path: str = "", *, task: int | None = None) -> str:
        """A file that the stage will leave, as `phalanx cp` takes it; without a path, all of them.

        Of a stage with several tasks, `task` is the index of one.
        """
        parts = [self.name, "artifacts", *([] if task is None else [str(task)]), *([path] if path else [])]
        return f"${{{'.'.join(parts)}}}"

    @property
    def job_id(self) -> str:
        """The id of its job, for the same places."""
        return f"${{{self.name}.task_id}}"


class StageFields(TypedDict, total=False):
    """The fields of a stage that a job has, too."""

    cores: Cores
    memory: int | str
    gpus: int
    gpu_type: str | None
    gpu_memory: int | str
    labels: dict[str, str]
    target: str | None
    cwd: str | None
    queue: str
    priority: int
    max_retries: int
    time_limit: float | str
    grace: float | str
    tags: dict[str, str]


Word = str | ResultReference
_OF_GROUP = ("cores", "memory", "gpus", "gpu_type", "gpu_memory", "labels", "target", "cwd")


class WorkflowBuilder:
    """A workflow, stage by stage."""

    def __init__(
        self,
        name: str = "",
        client: WorkflowCalls | None = None,
        *,
        deadline: float | str | None = None,
        budget: float | None = None,
    ) -> None:
        self._name = name
        self._client = client
        self._limits = deadline, budget
        self._stages: list[StageSpec] = []

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
        given: dict[str, Any] = dict(fields)
        group = GroupSpec(
            command=[str(word) for word in command],
            shell=shell,
            env={key: str(value) for key, value in (env or {}).items()},
            **{key: given.pop(key) for key in _OF_GROUP if key in given},
        )
        names = [_name(each) for each in after]
        condition = None
        if when is not None:
            condition = ConditionSpec(_name(when[0]), when[1], as_text(when[2]))
            names += [condition.node] if condition.node not in names else []
        job = JobSpec([group], **given)
        self._stages.append(StageSpec(name, job, names, condition, task_type, _plain(spec or {})))
        return StageHandle(name)

    def spec(self) -> WorkflowSpec:
        """The workflow as it can be submitted."""
        return WorkflowSpec(list(self._stages), self._name, *self._limits)

    def submit(self) -> WorkflowHandle:
        """Submit it. It is durable when this returns."""
        if self._client is None:
            raise TypeError(
                "this workflow was built without a client: give its spec() to client.submit_workflow"
            )
        return WorkflowHandle(self._client, self._client.submit_workflow(self.spec()))


class WorkflowHandle:
    """A workflow that was submitted."""

    def __init__(self, client: WorkflowCalls, submitted: SubmittedWorkflow) -> None:
        self._client = client
        self.id = submitted.id
        self.jobs = submitted.jobs  # the id of each stage's job
        self.warnings = submitted.warnings  # why it may not keep its deadline or its budget

    def view(self) -> WorkflowView:
        """As it stands now."""
        return self._client.workflow_view(self.id)

    def wait(self, timeout: float | None = None) -> WorkflowView:
        """As it ended, or as it stands after `timeout` seconds."""
        return self._client.wait_workflow(self.id, timeout)

    def results(self) -> dict[str, Any]:
        """The results of the stages that gave one, by name."""
        return {stage.name: stage.result for stage in self.view().stages if stage.result is not None}

    def cancel(self) -> CancelReply:
        return self._client.cancel_workflow(self.id)

    def retry(
        self,
        from_stage: str | None = None,
        *,
        deadline: float | str | None = None,
        budget: float | None = None,
    ) -> RetryReply:
        return self._client.retry_workflow(self.id, from_stage, deadline=deadline, budget=budget)


def _name(stage: StageHandle | str) -> str:
    return stage if isinstance(stage, str) else stage.name


def _plain(value: Any) -> Any:
    """A spec with every reference as its text."""
    if isinstance(value, ResultReference):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


class WorkflowCalls:
    """The methods of `Client` that are about workflows."""

    def _ask(self, call: Call[Any]) -> Any:
        raise NotImplementedError

    def _waited(
        self, call: Callable[[float], Call[Any]], has_ended: Callable[[Any], bool], timeout_s: float | None
    ) -> Any:
        raise NotImplementedError

    def workflow(
        self, name: str = "", *, deadline: float | str | None = None, budget: float | None = None
    ) -> WorkflowBuilder:
        """A new workflow, to be built stage by stage and submitted. It is stopped at its deadline and its budget."""
        return WorkflowBuilder(name, self, deadline=deadline, budget=budget)

    def submit_workflow(self, request: WorkflowRequest | WorkflowSpec, /) -> SubmittedWorkflow:
        """Submit a workflow: all of its stages are accepted, or none."""
        found: SubmittedWorkflow = self._ask(workflow_calls.submit_workflow(request))
        return found

    def workflows(self, *, cursor: str | None = None, limit: int = 100) -> Page[WorkflowView]:
        """Newest first, without their stages."""
        found: Page[WorkflowView] = self._ask(workflow_calls.workflows(cursor, limit))
        return found

    def workflow_view(self, id: str) -> WorkflowView:
        """One workflow with its stages."""
        found: WorkflowView = self._ask(workflow_calls.workflow(id))
        return found

    def wait_workflow(self, id: str, timeout: float | None = None) -> WorkflowView:
        """Return when it has ended, or after `timeout` seconds as it then stands: look at its status."""
        call = partial(workflow_calls.wait_workflow, id)
        found: WorkflowView = self._waited(call, workflow_calls.has_ended, timeout)
        return found

    def cancel_workflow(self, id: str) -> CancelReply:
        """Cancel every stage that has not ended."""
        found: CancelReply = self._ask(workflow_calls.cancel_workflow(id))
        return found

    def retry_workflow(
        self,
        id: str,
        from_stage: str | None = None,
        *,
        deadline: float | str | None = None,
        budget: float | None = None,
    ) -> RetryReply:
        """Run stages of an ended workflow again: one and all that build on it, or whatever did not complete."""
        request = RetryRequest(from_stage, deadline, budget)
        found: RetryReply = self._ask(workflow_calls.retry_workflow(id, request))
        return found
