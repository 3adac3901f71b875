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
from phalanx.client.job_handles import AsyncJobHandle, JobHandle
from phalanx.errors import JobFailed, NotFound


class WorkflowAnswers(Protocol):
    """What a handle asks of its client."""

    def workflow_view(self, id: AnyId) -> WorkflowView: ...

    def wait_workflow(
        self, id: AnyId, timeout: float | None = None, *, must_end: bool = True
    ) -> WorkflowView: ...

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


class AsyncWorkflowAnswers(Protocol):
    """The same of an async client."""

    async def workflow_view(self, id: AnyId) -> WorkflowView: ...

    async def wait_workflow(
        self,
        id: AnyId,
        timeout: float | None = None,  # noqa: ASYNC109
        *,
        must_end: bool = True,
    ) -> WorkflowView: ...

    async def cancel_workflow(self, id: AnyId) -> CancelReply: ...

    async def retry_workflow(
        self,
        id: AnyId,
        from_stage: str | None = None,
        *,
        deadline: float | str | None = None,
        budget: float | None = None,
    ) -> RetryReply: ...

    async def handle(self, id: AnyId) -> AsyncJobHandle: ...


class _SubmittedHandle:
    """What both have in common: what was submitted, and what their errors say."""

    def __init__(self, submitted: SubmittedWorkflow) -> None:
        self.id = submitted.id
        self.name = submitted.name
        self.number = submitted.number  # as the command line shows it; 0: an older coordinator
        self.jobs = submitted.jobs  # the id of each stage's job
        self.warnings = submitted.warnings  # why it may not keep its deadline or its budget

    def __repr__(self) -> str:
        told = filter(None, (str(self.number or self.id), self.name))
        return f"{type(self).__name__}({', '.join(told)})"

    @property
    def _called(self) -> str:
        return " ".join(filter(None, ("workflow", self.name, f"({self.number or self.id})")))

    def _job(self, stage: str) -> str:
        """The id of a stage's job."""
        if stage not in self.jobs:
            raise KeyError(f"{self._called} has no stage {stage!r}: it has {', '.join(self.jobs)}")
        return self.jobs[stage]

    def _not_begun(self, stage: str) -> NotFound:
        return NotFound(
            f"stage {stage!r} of {self._called} has no job: it has not begun",
            reason="StageNotBegun",
            hint=f"phalanx workflow show {self.number or self.id} says what it waits for, or why it never will",
        )

    def _failed_job(self, view: WorkflowView) -> str | None:
        """The job whose failure is that of the workflow; None if it completed, or no job says why it did not."""
        stage = _first_failed(view)
        if view.status == "Completed" or view.reason or stage is None or stage.status != "Failed":
            return None
        return stage.job_id if stage.number else None

    def _failure(self, view: WorkflowView, of_job: JobFailed | None) -> JobFailed:
        """Why it did not complete, with what the job of its first failed stage says."""
        stage, detail = _first_failed(view), f"{self._called} is {view.status}"
        if stage is not None and of_job is not None:
            return JobFailed(
                f"{detail}, stage {stage.name!r}: {of_job.detail}",
                reason=of_job.reason,
                hint=of_job.hint,
                job=of_job.job,
                task=of_job.task,
                code=of_job.code,
                log_tail=of_job.log_tail,
            )
        own = "" if stage is None or not stage.reason else f"stage {stage.name!r}: {stage.reason}"
        why = view.reason or own
        return JobFailed(
            f"{detail}: {why}" if why else detail,
            hint=f"phalanx workflow show {self.number or self.id} shows its stages",
        )


class WorkflowHandle(_SubmittedHandle):
    """A workflow that was submitted: `id`, `number`, `name`, `jobs` (the id of each stage's job) and `warnings`."""

    def __init__(self, client: WorkflowAnswers, submitted: SubmittedWorkflow) -> None:
        super().__init__(submitted)
        self._client = client

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
        id = self._job(name)
        try:
            return self._client.handle(id)
        except NotFound:
            raise self._not_begun(name) from None

    def wait(
        self, timeout: float | None = None, *, check: bool = False, must_end: bool = True
    ) -> WorkflowView:
        """As it ended. TimeoutError if that takes more than `timeout` s, or with `must_end=False` as it then stands.

        With `check`, JobFailed is raised if it did not complete, with the stage, its exit code and the end of its log.
        """
        view = self._client.wait_workflow(self.id, timeout, must_end=must_end)
        if check and view.status in FINAL:
            self._check(view)
        return view

    def results(self) -> dict[str, Any]:
        """The results of the stages that gave one, by name."""
        return _results(self.view())

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

    def _check(self, view: WorkflowView) -> None:
        failed = self._failed_job(view)
        try:
            if failed is not None:
                self._client.handle(failed).wait(0, check=True)
        except JobFailed as error:
            raise self._failure(view, error) from None
        if view.status != "Completed":
            raise self._failure(view, None)


class AsyncWorkflowHandle(_SubmittedHandle):
    """The same of an async client: every method of `WorkflowHandle`, to be awaited."""

    def __init__(self, client: AsyncWorkflowAnswers, submitted: SubmittedWorkflow) -> None:
        super().__init__(submitted)
        self._client = client

    async def status(self) -> StatusWord:
        """Where it is now."""
        return (await self.view()).status

    async def done(self) -> bool:
        """Whether it has ended, in whatever way."""
        return await self.status() in FINAL

    async def view(self) -> WorkflowView:
        """As it stands now."""
        return await self._client.workflow_view(self.id)

    async def stage(self, name: str) -> AsyncJobHandle:
        """The job of a stage, for its log and its tasks; NotFound if it has not begun."""
        id = self._job(name)
        try:
            return await self._client.handle(id)
        except NotFound:
            raise self._not_begun(name) from None

    async def wait(
        self,
        timeout: float | None = None,  # noqa: ASYNC109
        *,
        check: bool = False,
        must_end: bool = True,
    ) -> WorkflowView:
        """As it ended; what is raised, and what is returned without `must_end`, is as in `WorkflowHandle`."""
        view = await self._client.wait_workflow(self.id, timeout, must_end=must_end)
        if check and view.status in FINAL:
            await self._check(view)
        return view

    async def results(self) -> dict[str, Any]:
        """The results of the stages that gave one, by name."""
        return _results(await self.view())

    async def cancel(self) -> CancelReply:
        """Cancel every stage that has not ended."""
        return await self._client.cancel_workflow(self.id)

    async def retry(
        self,
        from_stage: str | None = None,
        *,
        deadline: float | str | None = None,
        budget: float | None = None,
    ) -> RetryReply:
        """Run stages of an ended workflow again: whatever did not complete, or a stage and all that build on it."""
        return await self._client.retry_workflow(self.id, from_stage, deadline=deadline, budget=budget)

    async def _check(self, view: WorkflowView) -> None:
        failed = self._failed_job(view)
        try:
            if failed is not None:
                await (await self._client.handle(failed)).wait(0, check=True)
        except JobFailed as error:
            raise self._failure(view, error) from None
        if view.status != "Completed":
            raise self._failure(view, None)


def _results(view: WorkflowView) -> dict[str, Any]:
    return {stage.name: stage.result for stage in view.stages if stage.result is not None}


def _first_failed(view: WorkflowView) -> StageView | None:
    """The stage that did not complete by itself: one that failed rather than one that was cancelled."""
    own = [stage for stage in view.stages if stage.parent is None]
    return next((stage for word in ("Failed", "Cancelled") for stage in own if stage.status == word), None)
