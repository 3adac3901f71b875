"""Cancelling and evicting: a job, one of its tasks, or all jobs that a user asks for at once."""

from __future__ import annotations

from phalanx.api.schema.jobs import CancelReply, EvictReply
from phalanx.coordinator import lookup
from phalanx.coordinator.refusals import accepted
from phalanx.coordinator.requests import Requests
from phalanx.coordinator.views import task_number
from phalanx.core.cluster.inputs import Cancel, Evict
from phalanx.core.cluster.jobs import JobState
from phalanx.store.protocol import Store


class Removals:
    """The part of `CoordinatorCommands` that takes work away."""

    def __init__(self, loop: Requests, store: Store) -> None:
        self._loop = loop
        self._store = store

    async def cancel(self, id: str, user: str = "") -> CancelReply:
        job, position = await self._found(id)
        done = accepted(await self._loop.ask([Cancel(job.job.id, position, by=user)]), id)
        return CancelReply(_id(job, position), done.count, done.stopping, task_number(job, position))

    async def evict(self, id: str, user: str) -> EvictReply:
        job, position = await self._found(id)
        done = accepted(await self._loop.ask([Evict(job.job.id, position, f"user {user}")]), id)
        return EvictReply(_id(job, position), done.count, task_number(job, position))

    async def _found(self, id: str) -> tuple[JobState, int | None]:
        """The job, and the position of its task if one was named."""
        job, position = await lookup.find_task(self._loop, self._store, id)
        return job, None if lookup.job_part(id) == id else position


def _id(job: JobState, position: int | None) -> str:
    return job.job.id if position is None else job.job.task_id(position)
