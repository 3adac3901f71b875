"""What the REST app may ask about sweeps and running work again; `commands.py` has the rest."""

from __future__ import annotations

from typing import Protocol

from phalanx.api.schema.jobs import EnvironmentView
from phalanx.api.schema.submission import SubmitReply
from phalanx.api.schema.sweeps import ResubmitRequest, RetryTasksRequest, RowsPiece, RowsTaken


class SweepCommands(Protocol):
    """Rows of sweeps, failed tasks again, a job again with changes, its environment."""

    async def environment(self, id: str) -> EnvironmentView:
        """The variables a job was submitted with. Conflict if they cannot be opened any more."""
        ...

    async def take_rows(self, piece: RowsPiece, user: str) -> RowsTaken:
        """One piece of the rows of a sweep, which are kept until a job is submitted with them."""
        ...

    async def retry(self, id: str, request: RetryTasksRequest, user: str, role: str = "user") -> SubmitReply:
        """The failed tasks of an ended job again, as a job of their own."""
        ...

    async def resubmit(self, id: str, request: ResubmitRequest, user: str, role: str = "user") -> SubmitReply:
        """A job once more, with changes."""
        ...
