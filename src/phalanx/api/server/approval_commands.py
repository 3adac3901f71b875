"""What the REST app may ask about approvals; `commands.py` has the rest."""

from __future__ import annotations

from typing import Protocol

from phalanx.api.schema.approvals import ApprovalReply


class ApprovalCommands(Protocol):
    """Jobs and workflows that wait for an approval."""

    async def approve(
        self, id: str, user: str, role: str, *, approves: bool = True, text: str = ""
    ) -> ApprovalReply:
        """Approve or deny a job or a workflow. Forbidden unless its queue lets this user."""
        ...
