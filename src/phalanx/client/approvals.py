"""Calls about approvals, as values, and as methods of both clients."""

from __future__ import annotations

from msgspec import json

from phalanx.api.schema.approvals import ApprovalReply, ApprovalRequest
from phalanx.client.calls import Call, path_of
from phalanx.client.changes import AsyncChangeCalls, ChangeCalls


def approve_call(id: str | int) -> Call[ApprovalReply]:
    return Call(method="POST", path=path_of("jobs", id, "approve"), answer=ApprovalReply)


def deny_call(id: str | int, reason: str) -> Call[ApprovalReply]:
    body = json.encode(ApprovalRequest(reason))
    return Call(method="POST", path=path_of("jobs", id, "deny"), answer=ApprovalReply, body=body)


class ApprovalCalls(ChangeCalls):
    """What a client has of approvals, beside what changes jobs."""

    def approve(self, id: str | int) -> ApprovalReply:
        """Let a job or workflow run that waits for an approval."""
        reply: ApprovalReply = self._ask(approve_call(id))
        return reply

    def deny(self, id: str | int, reason: str) -> ApprovalReply:
        """Cancel a job or workflow that waits for an approval; its user reads the reason."""
        reply: ApprovalReply = self._ask(deny_call(id, reason))
        return reply


class AsyncApprovalCalls(AsyncChangeCalls):
    """The same of the async client."""

    async def approve(self, id: str | int) -> ApprovalReply:
        """Let a job or workflow run that waits for an approval."""
        reply: ApprovalReply = await self._ask(approve_call(id))
        return reply

    async def deny(self, id: str | int, reason: str) -> ApprovalReply:
        """Cancel a job or workflow that waits for an approval; its user reads the reason."""
        reply: ApprovalReply = await self._ask(deny_call(id, reason))
        return reply
