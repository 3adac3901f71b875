"""Calls about workflows, as values: those of `calls.py` for the noun `workflows`."""

from __future__ import annotations

import msgspec

from phalanx.api.schema.jobs import CancelReply, Page
from phalanx.api.schema.workflows import (
    RetryReply,
    RetryRequest,
    SubmittedWorkflow,
    WorkflowRequest,
    WorkflowSpec,
    WorkflowView,
    check_limits,
)
from phalanx.client.calls import FINAL, TIMEOUT_S, Call, get, new_request_id, path_of, query_of
from phalanx.client.ids import AnyId
from phalanx.client.surroundings import Export, workflow_with_surroundings

WORKFLOWS = "/v1/workflows"


def submit_workflow(
    request: WorkflowRequest | WorkflowSpec, export: Export = None
) -> Call[SubmittedWorkflow]:
    """A workflow, alone or with how it is submitted. Its commands run in the caller's folder unless they name one,
    with the caller's environment as far as `export` says.
    """
    whole = request if isinstance(request, WorkflowRequest) else WorkflowRequest(request)
    whole = workflow_with_surroundings(whole, export)
    check_limits(whole.workflow.deadline, whole.workflow.budget)
    if whole.request_id is None:
        whole = msgspec.structs.replace(whole, request_id=new_request_id())
    return Call(
        method="POST",
        path=WORKFLOWS,
        answer=SubmittedWorkflow,
        body=msgspec.json.encode(whole),
        repeatable=True,
        request_id=whole.request_id or "",
    )


def workflows(cursor: str | None, limit: int) -> Call[Page[WorkflowView]]:
    return get(WORKFLOWS, Page[WorkflowView], query_of(cursor=cursor, limit=limit))


def workflow(id: AnyId) -> Call[WorkflowView]:
    return get(path_of("workflows", id), WorkflowView)


def wait_workflow(id: AnyId, timeout_s: float) -> Call[WorkflowView]:
    return Call(
        method="GET",
        path=path_of("workflows", id, "wait"),
        answer=WorkflowView,
        query=query_of(timeout_s=timeout_s),
        repeatable=True,
        timeout_s=timeout_s + TIMEOUT_S,
    )


def cancel_workflow(id: AnyId) -> Call[CancelReply]:
    return Call(method="POST", path=path_of("workflows", id, "cancel"), answer=CancelReply)


def retry_workflow(id: AnyId, request: RetryRequest) -> Call[RetryReply]:
    check_limits(request.deadline, request.budget)
    body = msgspec.json.encode(request)
    return Call(method="POST", path=path_of("workflows", id, "retry"), answer=RetryReply, body=body)


def has_ended(view: WorkflowView) -> bool:
    return view.status in FINAL


def check_ended(view: WorkflowView) -> None:
    """Raise TimeoutError for one that has not."""
    if not has_ended(view):
        called = " ".join(filter(None, ("workflow", view.name, f"({view.number or view.id})")))
        raise TimeoutError(
            f"{called} has not ended: it is {view.status} (wait(…, must_end=False) returns it so)"
        )
