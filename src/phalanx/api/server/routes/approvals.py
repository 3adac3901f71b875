"""The routes of approvals. The queue of a job names who may give one; the coordinator asks it."""

from __future__ import annotations

from phalanx.api.schema.approvals import ApprovalReply, ApprovalRequest, check_denial
from phalanx.api.schema.documents import Nothing
from phalanx.api.server.messages import HttpRequest, Response, json_reply
from phalanx.api.server.route import Route, Service


async def approve(service: Service, http_request: HttpRequest) -> Response:
    user, role = http_request.user, http_request.identity.role
    return json_reply(await service.commands.approve(http_request.id, user, role))


async def deny(service: Service, http_request: HttpRequest) -> Response:
    user, role = http_request.user, http_request.identity.role
    text = check_denial(http_request.document)
    return json_reply(await service.commands.approve(http_request.id, user, role, approves=False, text=text))


ROUTES = tuple(
    Route(
        method="POST",
        path=f"/v1/{noun}/{{id}}/{verb}",
        permission="approve",
        handler=handler,
        summary=summary.format(noun[:-1]),
        answer=ApprovalReply,
        body=body,
        is_about_a_job=True,
    )
    for noun in ("jobs", "workflows")
    for verb, handler, body, summary in (
        ("approve", approve, Nothing, "Let a {} run that waits for an approval."),
        ("deny", deny, ApprovalRequest, "Cancel a {} that waits for an approval, with a reason."),
    )
)
