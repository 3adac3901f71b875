"""What the REST app may ask about plans, and about files given as text; `commands.py` has the rest."""

from __future__ import annotations

from typing import Protocol

from phalanx.api.schema.apply import PlanFilesRequest, PlanReply, PlanRequest
from phalanx.api.schema.workflow_files import WorkflowFilesRequest
from phalanx.api.schema.workflows import SubmittedWorkflow
from phalanx.core.explain.change import ADMIN, Asker


class FileCommands(Protocol):
    """What plans jobs, and reads job files, manifests and workflow files."""

    async def plan(
        self, request: PlanRequest, user: str, role: str = "user", asker: Asker = ADMIN
    ) -> PlanReply:
        """What the scheduler would do with these jobs; nothing is submitted."""
        ...

    async def plan_files(
        self, request: PlanFilesRequest, user: str, role: str = "user", asker: Asker = ADMIN
    ) -> PlanReply:
        """What the scheduler would do with the jobs of files, given as text; nothing is submitted."""
        ...

    async def submit_workflow_files(
        self, request: WorkflowFilesRequest, user: str, role: str = "user"
    ) -> SubmittedWorkflow:
        """The one workflow of these files, all stages of it, or nothing."""
        ...
