"""What users ask about workflows, carried out: submit, list, show, cancel, retry, wait."""

from __future__ import annotations

import asyncio
import secrets
from bisect import bisect_left
from collections.abc import Mapping

from msgspec import structs

from phalanx.api.schema.exports import check_exported
from phalanx.api.schema.fields import read_deadline
from phalanx.api.schema.jobs import CancelReply, Page
from phalanx.api.schema.submission import check_request_id
from phalanx.api.schema.workflows import (
    RetryReply,
    RetryRequest,
    SubmittedWorkflow,
    TaskProgram,
    WorkflowRequest,
    WorkflowSpec,
    WorkflowView,
    check_limits,
    to_workflow,
)
from phalanx.api.server.limits import TimeSlices
from phalanx.clock import Clock
from phalanx.coordinator import lookup
from phalanx.coordinator.dependencies import find_before
from phalanx.coordinator.environments import SealedJobs
from phalanx.coordinator.feed import Feed
from phalanx.coordinator.naming import number_in
from phalanx.coordinator.refusals import accepted, refusal, reused
from phalanx.coordinator.requests import Requests
from phalanx.coordinator.views_workflows import workflow_row, workflow_view
from phalanx.core.cluster.decision import Refused, Replayed
from phalanx.core.cluster.inputs import CancelWorkflow, RetryWorkflow, SubmitWorkflow
from phalanx.core.explain.estimate import estimate
from phalanx.core.model.job import After, Job, is_job_id
from phalanx.core.model.workflow import Workflow, stage_job_id, workflow_id
from phalanx.errors import BadRequest, NeverFits, NotFound
from phalanx.store.protocol import Store

IN_A_THREAD = 200  # stages from which a workflow is read beside the loop


_HINTS = {
    "never": "ask for less, or submit with --allow-infeasible to wait for a larger node",
    "DeadlineImpossible": "give a later --deadline, or submit with --allow-infeasible to try it",
    "BudgetImpossible": "give a larger --budget, or submit with --allow-infeasible to try it",
}


class WorkflowCommands:
    """The part of the commands that is about workflows."""

    def __init__(
        self,
        loop: Requests,
        store: Store,
        feed: Feed,
        clock: Clock,
        slices: TimeSlices,
        executors: Mapping[str, TaskProgram],
        sealing: SealedJobs,
    ) -> None:
        self._loop = loop
        self._store = store
        self._feed = feed
        self._clock = clock
        self._slices = slices
        self._executors = executors
        self._sealing = sealing

    async def submit_workflow(
        self, request: WorkflowRequest, user: str, role: str = "user"
    ) -> SubmittedWorkflow:
        if request.request_id is not None:
            check_request_id(request.request_id)
        check_exported(request.exported, "exported")
        made = await self.made(request.workflow, user)
        made, sealed = self._sealing.of_stages(made, request.workflow, request.exported)
        given = SubmitWorkflow(
            made, request.request_id or "", request.allow_infeasible, role=role, environments=sealed
        )
        [answer] = await self._loop.ask([given])
        if isinstance(answer, Replayed):
            return await self._replayed(request.request_id or "", made, answer.jobs)
        if isinstance(answer, Refused):
            error = refusal(answer, made.name or "workflow")
            if isinstance(error, NeverFits):
                error.hint = _HINTS.get(answer.reason.code, _HINTS["never"])
            raise error
        number = number_in(self._loop.state, made.id)
        return structs.replace(_submitted(made), warnings=self._warnings(made), number=number)

    def _warnings(self, made: Workflow) -> list[str]:
        """Why it may not keep its limits."""
        if not made.is_limited:
            return []
        return estimate(self._loop.state, made).warnings(made, self._clock.now())

    async def made(self, spec: WorkflowSpec, user: str) -> Workflow:
        """The workflow that a spec means here: with the programs of its task types, and whole ids of jobs elsewhere."""
        return await self._with_jobs_before(await self._read(spec, user))

    async def _read(self, spec: WorkflowSpec, user: str) -> Workflow:
        now = self._clock.now()
        id = workflow_id(int(now * 1000), secrets.randbits(79))

        def made() -> Workflow:
            return to_workflow(
                spec, id=id, now=now, user=user, default_retries=2, command_of=self._executors.get
            )

        try:
            return await asyncio.to_thread(made) if len(spec.stages) > IN_A_THREAD else made()
        except BadRequest as error:
            if error.reason == "UnknownTaskType":
                known = ", ".join(sorted(self._executors)) or "none"
                error.hint = (
                    f"executors are declared for: {known} (coordinator.executors_file); or give a command"
                )
            raise

    async def _with_jobs_before(self, made: Workflow) -> Workflow:
        """The same with the whole ids of the jobs elsewhere that stages come after."""
        if not any(stage.job.after for stage in made.stages):
            return made
        stages = []
        for stage in made.stages:
            job = stage.job
            if job.after:
                job = structs.replace(job, after=await self._before(job))
            stages.append(structs.replace(stage, job=job))
        return structs.replace(made, stages=tuple(stages))

    async def _before(self, job: Job) -> tuple[After, ...]:
        return await find_before(self._loop, self._store, job.after, job.user)

    async def _replayed(self, request_id: str, asked: Workflow, ids: tuple[str, ...]) -> SubmittedWorkflow:
        try:
            first = await lookup.find_workflow(self._loop, self._store, ids[0])
        except NotFound:
            raise reused(request_id, ids[0]) from None
        if not _is_same(first.workflow, asked):
            raise reused(request_id, ids[0])
        return structs.replace(_submitted(first.workflow), replayed=True)

    async def workflows(self, *, cursor: str | None, limit: int) -> Page[WorkflowView]:
        """Those in memory, the newest first."""
        if cursor is not None and not is_job_id(cursor):
            raise BadRequest(f"{cursor[:80]!r} is not a cursor of this list", reason="BadCursor")
        state = self._loop.state
        ids = sorted(state.workflows)
        ids = ids[: len(ids) if cursor is None else bisect_left(ids, cursor)]
        piece = await self._slices.turn()
        found: list[WorkflowView] = []
        for id in reversed(ids):
            if len(found) == limit:
                return Page(found, found[-1].id)
            if piece.is_over:
                piece = await self._slices.turn()
            if (flow := state.workflows.get(id)) is not None:
                found.append(workflow_row(state, flow, self._clock.now()))
        return Page(found, None)

    async def workflow(self, id: str) -> WorkflowView:
        flow = await lookup.find_workflow(self._loop, self._store, id)
        return await workflow_view(self._loop.state, flow, self._clock.now(), self._slices)

    async def wait_workflow(self, id: str, timeout_s: float) -> WorkflowView:
        flow = await lookup.find_workflow(self._loop, self._store, id)
        if not flow.is_over and timeout_s > 0:
            await self._feed.settled(flow.workflow.id, None, timeout_s)
            flow = await lookup.find_workflow(self._loop, self._store, flow.workflow.id)
        return await workflow_view(self._loop.state, flow, self._clock.now(), self._slices)

    async def cancel_workflow(self, id: str, user: str = "") -> CancelReply:
        flow = await lookup.find_workflow(self._loop, self._store, id)
        done = accepted(await self._loop.ask([CancelWorkflow(flow.workflow.id, by=user)]), flow.workflow.id)
        return CancelReply(flow.workflow.id, done.count, done.stopping, str(flow.number or ""))

    async def retry_workflow(self, id: str, request: RetryRequest, role: str = "user") -> RetryReply:
        flow = await lookup.find_workflow(self._loop, self._store, id)
        stage = None if request.from_stage is None else lookup.stage_number(flow, request.from_stage)
        until = request.deadline
        check_limits(until, request.budget)
        asked = RetryWorkflow(
            flow.workflow.id,
            stage,
            deadline_at=None if until is None else read_deadline("deadline", until, self._clock.now()),
            budget=request.budget,
            role=role,
        )
        accepted(await self._loop.ask([asked]), flow.workflow.id)
        again = self._loop.state.workflows[flow.workflow.id]
        unfinished = [number for number in range(len(again.phases)) if not again.phase(number).is_over]
        return RetryReply(
            flow.workflow.id, {again.workflow.stages[each].name: again.job_id(each) for each in unfinished}
        )


def _submitted(made: Workflow) -> SubmittedWorkflow:
    jobs = {stage.name: stage_job_id(made.id, number, 0) for number, stage in enumerate(made.stages)}
    return SubmittedWorkflow(made.id, made.name, jobs)


def _is_same(first: Workflow, again: Workflow) -> bool:
    """Whether two submissions ask for the same; when they came does not matter."""
    stages = zip(first.stages, again.stages, strict=False)
    asked = (first.name, first.budget, len(first.stages)), (again.name, again.budget, len(again.stages))
    return asked[0] == asked[1] and all(
        structs.replace(one, job=structs.replace(one.job, submitted_at=0.0))
        == structs.replace(other, job=structs.replace(other.job, submitted_at=0.0))
        for one, other in stages
    )
