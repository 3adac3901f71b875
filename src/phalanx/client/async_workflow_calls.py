"""Calls about workflows, for `AsyncClient`: the same as the methods of `WorkflowCalls`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar, cast

from phalanx.api.schema.jobs import CancelReply, Page
from phalanx.api.schema.workflows import (
    RetryReply,
    RetryRequest,
    SubmittedWorkflow,
    WorkflowRequest,
    WorkflowSpec,
    WorkflowView,
)
from phalanx.client import workflow_calls
from phalanx.client.calls import Call
from phalanx.client.ids import AnyId
from phalanx.client.surroundings import Export
from phalanx.client.workflows import AsyncWorkflowBuilder, AsyncWorkflowCalls

T = TypeVar("T")


class AsyncWorkflowMethods:
    """The methods of `AsyncClient` that are about workflows."""

    async def _ask(self, call: Call[T]) -> T:
        raise NotImplementedError

    async def _waited(
        self, call: Callable[[float], Call[T]], has_ended: Callable[[T], bool], timeout_s: float | None
    ) -> T:
        raise NotImplementedError

    def workflow(
        self,
        name: str = "",
        *,
        deadline: float | str | None = None,
        budget: float | None = None,
        export: Export = None,
    ) -> AsyncWorkflowBuilder:
        """A new workflow, to be built stage by stage; its `submit` is awaited, and gives an `AsyncWorkflowHandle`."""
        client = cast(AsyncWorkflowCalls, self)
        return AsyncWorkflowBuilder(name, client, deadline=deadline, budget=budget, export=export)

    async def submit_workflow(
        self, request: WorkflowRequest | WorkflowSpec, /, *, export: Export = None
    ) -> SubmittedWorkflow:
        return await self._ask(workflow_calls.submit_workflow(request, export))

    async def workflows(self, *, cursor: str | None = None, limit: int = 100) -> Page[WorkflowView]:
        return await self._ask(workflow_calls.workflows(cursor, limit))

    async def workflow_view(self, id: AnyId) -> WorkflowView:
        return await self._ask(workflow_calls.workflow(id))

    async def wait_workflow(
        self,
        id: AnyId,
        timeout: float | None = None,  # noqa: ASYNC109
        *,
        must_end: bool = True,
    ) -> WorkflowView:
        asked = partial(workflow_calls.wait_workflow, id)
        view = await self._waited(asked, workflow_calls.has_ended, timeout)
        if must_end:
            workflow_calls.check_ended(view)
        return view

    async def cancel_workflow(self, id: AnyId) -> CancelReply:
        return await self._ask(workflow_calls.cancel_workflow(id))

    async def retry_workflow(
        self,
        id: AnyId,
        from_stage: str | None = None,
        *,
        deadline: float | str | None = None,
        budget: float | None = None,
    ) -> RetryReply:
        return await self._ask(workflow_calls.retry_workflow(id, RetryRequest(from_stage, deadline, budget)))
