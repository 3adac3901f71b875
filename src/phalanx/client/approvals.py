"""Calls about approvals, as values, and as methods of both clients."""

from __future__ import annotations

from msgspec import json

from phalanx.api.schema.approvals import ApprovalReply, ApprovalRequest
from phalanx.client.calls import Call, path_of
from phalanx.client.changes import AsyncChangeCalls, ChangeCalls
from phalanx.client.ids import AnyId


def approve_call(id: AnyId) -> Call[ApprovalReply]:
    return Call(method="POST", path=path_of("jobs", id, "approve"), answer=ApprovalReply)


def deny_call(id: AnyId, reason: str) -> Call[ApprovalReply]:
    body = json.encode(ApprovalRequest(reason))
    return Call(method="POST", path=path_of("jobs", id, "deny"), answer=ApprovalReply, body=body)


class ApprovalCalls(ChangeCalls):
    """What a client has of approvals, beside what changes jobs."""

    def approve(self, id: AnyId) -> ApprovalReply:
        """Let a job or workflow run that waits for an approval."""
        reply: ApprovalReply = self._ask(approve_call(id))
        return reply

    def deny(self, id: AnyId, reason: str) -> ApprovalReply:
        """Cancel a job or workflow that waits for an approval; its user reads the reason."""
        reply: ApprovalReply = self._ask(deny_call(id, reason))
        return reply


class AsyncApprovalCalls(AsyncChangeCalls):
    """The same of the async client."""

    async def approve(self, id: AnyId) -> ApprovalReply:
        """Let a job or workflow run that waits for an approval."""
        reply: ApprovalReply = await self._ask(approve_call(id))
        return reply

    async def deny(self, id: AnyId, reason: str) -> ApprovalReply:
        """Cancel a job or workflow that waits for an approval; its user reads the reason."""
        reply: ApprovalReply = await self._ask(deny_call(id, reason))
        return reply
