"""Decided facts about jobs that people change after they were submitted: held, released, with other settings."""

from __future__ import annotations

from phalanx.core.cluster.event_kinds import JobEvent
from phalanx.core.model.dispatch import Dispatch

NO_LIMIT = 0.0  # as a time limit: none
AT_ONCE = 0.0  # as a begin: it need not wait


class JobHeld(JobEvent, frozen=True, kw_only=True):
    """Somebody holds a job: nothing more of it is placed until it is released. What has a place goes on."""

    because: str  # by whom, and why if that was said
    user: str = ""


class JobReleased(JobEvent, frozen=True):
    """A job that was held, by a person or by a repair of the store, may be placed again."""


class JobUpdated(JobEvent, frozen=True, kw_only=True):
    """Settings of a job are others from now on; None: this one stays as it was."""

    priority: int | None = None
    time_limit_s: float | None = None  # 0: it has no limit any more
    queue: str | None = None
    begin_at: float | None = None  # 0: at once
    dispatch: Dispatch | None = None  # with another queue: how it is given its node from now on
    approve_by: float | None = (
        None  # with another queue: until when it waits for an approval there, as submitted
    )
    at_once: int | None = None  # how many tasks of its array may hold a place at one time; 0: all
