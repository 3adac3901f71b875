"""What `flow.submit()` returns: a handle on a workflow that was submitted.

`JobFailed` of a workflow is about the first stage that did not complete by itself; what builds on that one only
follows.
"""

from __future__ import annotations

from typing import Any, Protocol

from phalanx.api.schema.jobs import CancelReply, StatusWord
from phalanx.api.schema.workflows import RetryReply, StageView, SubmittedWorkflow, WorkflowView
from phalanx.client.calls import FINAL
from phalanx.client.ids import AnyId
from phalanx.client.job_handles import JobHandle
from phalanx.errors import JobFailed, NotFound


class WorkflowAnswers(Protocol):
    """What a handle asks of its client."""

    def workflow_view(self, id: AnyId) -> WorkflowView: ...

    def wait_workflow(self, id: AnyId, timeout: float | None = None) -> WorkflowView: ...

    def cancel_workflow(self, id: AnyId) -> CancelReply: ...

    def retry_workflow(
        self,
        id: AnyId,
        from_stage: str | None = None,
        *,
        deadline: float | str | None = None,
        budget: float | None = None,
    ) -> RetryReply: ...

    def handle(self, id: AnyId) -> JobHandle: ...


class WorkflowHandle:
    """A workflow that was submitted."""

    def __init__(self, client: WorkflowAnswers, submitted: SubmittedWorkflow) -> None:
        self._client = client
        self.id = submitted.id
        self.name = submitted.name
        self.number = submitted.number  # as the command line shows it; 0: an older coordinator
        self.jobs = submitted.jobs  # the id of each stage's job
        self.warnings = submitted.warnings  # why it may not keep its deadline or its budget

    def __repr__(self) -> str:
        return f"WorkflowHandle({', '.join(filter(None, (str(self.number or self.id), self.name)))})"

    @property
    def status(self) -> StatusWord:
        """Where it is now: Pending, Assigned, Running, Completed, Failed, Cancelled."""
        return self.view().status

    @property
    def done(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self.status in FINAL

    def view(self) -> WorkflowView:
        """As it stands now."""
        return self._client.workflow_view(self.id)

    def stage(self, name: str) -> JobHandle:
        """The job of a stage, for its log and its tasks; NotFound if it has not begun."""
        if name not in self.jobs:
            raise KeyError(f"{self._called} has no stage {name!r}: it has {', '.join(self.jobs)}")
        try:
            return self._client.handle(self.jobs[name])
        except NotFound:
            raise NotFound(
                f"stage {name!r} of {self._called} has no job: it has not begun",
                reason="StageNotBegun",
                hint=f"phalanx workflow show {self.number or self.id} says what it waits for, or why it never will",
            ) from None

    def wait(self, timeout: float | None = None, *, check: bool = False) -> WorkflowView:
        """As it ended, or as it stands after `timeout` seconds.

        With `check`, JobFailed is raised if it did not complete, with the stage, its exit code and the end of its log,
        and TimeoutError if it has not ended in time.
        """
        view = self._client.wait_workflow(self.id, timeout)
        if check:
            self._check(view)
        return view

    def results(self) -> dict[str, Any]:
        """The results of the stages that gave one, by name."""
        return {stage.name: stage.result for stage in self.view().stages if stage.result is not None}

    def cancel(self) -> CancelReply:
        """Cancel every stage that has not ended."""
        return self._client.cancel_workflow(self.id)

    def retry(
        self,
        from_stage: str | None = None,
        *,
        deadline: float | str | None = None,
        budget: float | None = None,
    ) -> RetryReply:
        """Run stages of an ended workflow again: whatever did not complete, or a stage and all that build on it."""
        return self._client.retry_workflow(self.id, from_stage, deadline=deadline, budget=budget)

    @property
    def _called(self) -> str:
        return " ".join(filter(None, ("workflow", self.name, f"({self.number or self.id})")))

    def _check(self, view: WorkflowView) -> None:
        if view.status not in FINAL:
            raise TimeoutError(f"{self._called} has not ended: it is {view.status}")
        if view.status == "Completed":
            return
        stage = _first_failed(view)
        if stage is not None and stage.number and stage.status == "Failed" and not view.reason:
            try:
                self._client.handle(stage.job_id).wait(0, check=True)
            except JobFailed as error:
                raise JobFailed(
                    f"{self._called} is {view.status}, stage {stage.name!r}: {error.detail}",
                    reason=error.reason,
                    hint=error.hint,
                    job=error.job,
                    task=error.task,
                    code=error.code,
                    log_tail=error.log_tail,
                ) from None
        why = view.reason or (
            "" if stage is None or not stage.reason else f"stage {stage.name!r}: {stage.reason}"
        )
        raise JobFailed(
            f"{self._called} is {view.status}{f': {why}' if why else ''}",
            hint=f"phalanx workflow show {self.number or self.id} shows its stages",
        )


def _first_failed(view: WorkflowView) -> StageView | None:
    """The stage that did not complete by itself: one that failed rather than one that was cancelled."""
    own = [stage for stage in view.stages if stage.parent is None]
    return next((stage for word in ("Failed", "Cancelled") for stage in own if stage.status == word), None)
