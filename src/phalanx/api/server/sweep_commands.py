"""What the REST app may ask of a coordinator about sweeps and about running work again; `commands.py` has the rest."""

from __future__ import annotations

from typing import Protocol

from phalanx.api.schema.jobs import EnvironmentView
from phalanx.api.schema.submission import SubmitReply
from phalanx.api.schema.sweeps import ResubmitRequest, RetryTasksRequest, RowsPiece, RowsTaken
from phalanx.api.server.auth import PRIORITY_OF_USERS


class SweepCommands(Protocol):
    """Rows of sweeps, failed tasks again, a job again with changes, and the environment that it runs in."""

    async def environment(self, id: str) -> EnvironmentView:
        """The variables a job was submitted with. Conflict if they cannot be opened any more."""
        ...

    async def take_rows(self, piece: RowsPiece, user: str) -> RowsTaken:
        """One piece of the rows of a sweep, which are kept until a job is submitted with them."""
        ...

    async def retry(
        self, id: str, request: RetryTasksRequest, user: str, priority_max: int = PRIORITY_OF_USERS
    ) -> SubmitReply:
        """The failed tasks of an ended job again, as a job of their own."""
        ...

    async def resubmit(
        self, id: str, request: ResubmitRequest, user: str, priority_max: int = PRIORITY_OF_USERS
    ) -> SubmitReply:
        """A job once more, with changes."""
        ...
