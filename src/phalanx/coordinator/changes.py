"""Holding, releasing and changing jobs after they were submitted."""

from __future__ import annotations

from phalanx.api.schema.changes import HoldRequest, UpdateRequest, check_reason, check_update
from phalanx.api.schema.jobs import JobView
from phalanx.clock import Clock
from phalanx.coordinator import lookup
from phalanx.coordinator.refusals import accepted
from phalanx.coordinator.requests import Requests
from phalanx.coordinator.views import job_view
from phalanx.core.cluster.inputs import Hold, Input, ReleaseJob, Update
from phalanx.core.cluster.jobs import JobState
from phalanx.errors import BadRequest, Conflict
from phalanx.store.protocol import Store


class ChangeCommands:
    """The part of `CoordinatorCommands` that changes what was submitted."""

    def __init__(self, loop: Requests, store: Store, clock: Clock) -> None:
        self._loop = loop
        self._store = store
        self._clock = clock

    async def hold(self, id: str, request: HoldRequest, user: str, *, is_operator: bool = False) -> JobView:
        reason = check_reason(request.reason)
        job = await self._whole(id, "hold")
        return await self._ask(job, Hold(job.job.id, user, reason, is_operator))

    async def release(self, id: str, user: str, *, is_operator: bool) -> JobView:
        job = await lookup.find_job(self._loop, self._store, lookup.job_part(id))
        return await self._ask(job, ReleaseJob(job.job.id, user, is_operator))

    async def update(self, id: str, request: UpdateRequest, user: str, role: str) -> JobView:
        job = await self._whole(id, "update")
        limit_s, begin_at = check_update(request, self._clock.now())
        return await self._ask(
            job,
            Update(
                job.job.id,
                user,
                request.priority,
                limit_s,
                request.queue,
                begin_at,
                role,
                request.if_revision,
                request.at_once,
            ),
        )

    async def _ask(self, job: JobState, given: Input) -> JobView:
        accepted(await self._loop.ask([given]), job.job.id)
        return job_view(self._loop.state, self._loop.state.jobs.get(job.job.id, job))

    async def _whole(self, id: str, verb: str) -> JobState:
        """The job; settings are of all its tasks, so one task of several cannot be named."""
        job, position = await lookup.find_task(self._loop, self._store, id)
        if lookup.job_part(id) != id and position is not None and job.job.tasks > 1:
            raise BadRequest(
                f"{id} is one task of {job.job.id}, and settings are of the whole job",
                reason="WholeJob",
                hint=f"phalanx {verb} {job.job.id}",
            )
        if job.is_over:
            raise Conflict(f"job {job.job.id} has already ended", reason="AlreadyEnded")
        return job
