"""What REST asks of a coordinator about the output of tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from phalanx.api.schema.documents import Stream
from phalanx.api.schema.jobs import LogChunk
from phalanx.api.schema.log_times import LogTimesView


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
    ) -> AsyncIterator[LogChunk]:
        """From `offset`, or the last `lines` lines, or all; with `follow` until the attempt's end.

        The first chunk comes at once, empty if nothing is written yet, so that a follower learns the attempt.
        """
        ...

    async def log_times(self, id: str, *, attempt: int | None, after: float) -> LogTimesView:
        """When the output of a task was written; without rows if nobody can tell."""
        ...
