"""The attempts of one task, as REST carries them."""

from __future__ import annotations

from msgspec import Struct

from phalanx.api.schema.jobs import StatusWord


class AttemptView(Struct):
    """One try at a task: where it was, from when to when, and how it ended."""

    attempt: int
    node: str
    devices: list[int]
    placed_at: float
    started_at: float | None
    ended_at: float | None  # None: it goes on, or its end is not known
    exit_code: int | None  # −N for signal N
    status: StatusWord  # its own: of a task that is tried again, the attempts before have failed
    reason: str  # why it ended: exited, oom, lost, evicted, timeout, …; empty if it ended well or goes on
    message: str
    charged: bool  # its end counted against the retries of the task
