"""What REST asks of a coordinator about the output of tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from phalanx.api.schema.jobs import LogChunk
from phalanx.api.schema.log_times import LogTimesView
from phalanx.api.schema.queries import Stream


class LogCommands(Protocol):
    """A part of `Commands`."""

    def logs(
        self,
        id: str,
        *,
        stream: Stream,
        attempt: int | None,
        offset: int | None,
        lines: int | None,
        follow: bool,
        hold: bool = False,
    ) -> AsyncIterator[LogChunk]:
        """From `offset`, or the last `lines` lines, or all; with `follow` until its end; `hold`: it waits for us.

        The first chunk comes at once, empty if nothing is written yet, so that a follower learns the attempt.
        """
        ...

    async def log_times(self, id: str, *, attempt: int | None, after: float) -> LogTimesView:
        """When the output of a task was written; without rows if nobody can tell."""
        ...
