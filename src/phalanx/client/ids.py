"""What stands for a job, a task or a workflow in a call: its number, id or name, or something that knows its id.

Handles and views know their ids: `client.logs(job)`, `client.retry(job.wait())`, `client.evict(task)`.
"""

from __future__ import annotations

from typing import Protocol

from phalanx.api.schema.submission import SubmitReply


class HasId(Protocol):
    """A handle or a view of a job, a task or a workflow."""

    @property
    def id(self) -> str: ...


AnyId = str | int | HasId


def id_of(given: AnyId) -> str:
    """Its id, or the number or name that it was given by; TypeError for what is none of it, or several jobs."""
    if isinstance(given, str | int):
        return str(given)
    if isinstance(given, SubmitReply) and len(given.task_ids) > 1:
        raise TypeError(
            f"{given!r} is {len(given.task_ids)} jobs, one for each target: give one of its job_ids"
        )
    id = getattr(given, "id", None)
    if not isinstance(id, str):
        raise TypeError(f"{given!r:.80} is not a job, task or workflow: give its number, id, name or handle")
    return id
