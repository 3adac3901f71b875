"""Why jobs, tasks, stages and workflows are as they are, as REST asks it; found by `why.py`. Nothing is changed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from phalanx.api.schema.apply import PlanReply
from phalanx.api.schema.jobs import JobReason, WhyReply
from phalanx.api.server.limits import TimeSlices
from phalanx.clock import Clock
from phalanx.coordinator import lookup
from phalanx.coordinator.images import ImageProgress
from phalanx.coordinator.naming import is_number
from phalanx.coordinator.requests import Requests
from phalanx.coordinator.waiting_jobs import first_waiting, waiting_tasks
from phalanx.coordinator.why import reasons_of, stage_reply, why_reply, workflow_reply
from phalanx.core.explain.change import ADMIN, Asker
from phalanx.core.explain.trial import QUESTION_MAX
from phalanx.core.model.orders import Status
from phalanx.errors import Conflict, NotFound
from phalanx.preview.plan import preview
from phalanx.preview.submission import Submitter
from phalanx.store.protocol import Store

AT_ONCE = 8  # jobs of one pass: beside 1,000 nodes more would hold up others for over a tenth of a second
PASSES_S = 0.5  # that one question may take of the loop, with as much for others between its passes


class WhyReads:
    """Explanations of the state as this coordinator knows it."""

    def __init__(
        self, loop: Requests, store: Store, clock: Clock, slices: TimeSlices, images: ImageProgress
    ) -> None:
        self.slices, self.images = slices, images
        self._loop, self._store, self._clock = loop, store, clock
        self._passing = asyncio.Lock()

    async def why(self, id: str, asker: Asker = ADMIN, of_waiting: bool = False) -> WhyReply:
        """Of a job, a task, a workflow or a stage; of a job that runs in part, `of_waiting` asks for the rest of it."""
        try:
            job, position = await lookup.find_task(self._loop, self._store, id)
        except NotFound as error:
            return await self._why_without_job(id, asker, error)
        if job.job.draft is not None and job.job.tasks == 1:
            position = None  # its gang waits for others, and has the same id
        if position is None and of_waiting and waiting_tasks(job) and job.overall_status != Status.PENDING:
            position = first_waiting(job)
        await self.slices.turn()
        engine, now = self._loop.engine, self._clock.now()
        reply = why_reply(engine.state, job, position, now, engine.policy, engine.memory, asker)
        return self.images.explained(job, position, reply)

    async def plan_job(self, id: str, asker: Asker = ADMIN) -> PlanReply:
        job = await lookup.find_job(self._loop, self._store, lookup.job_part(id))
        await self.slices.turn()
        engine = self._loop.engine
        job = engine.state.jobs.get(job.job.id, job)
        if not (job.counts[Status.PENDING] and job.job.id in engine.state.jobs):
            raise Conflict(f"{job.arrival or job.job.id} has no task that waits", reason="NothingWaiting")
        seen = engine.state.snapshot(self._clock.now(), engine.memory)
        by = Submitter(asker)
        return preview(engine.state, (), engine.policy, seen, known=[job.job.id], by=by, most=QUESTION_MAX)

    async def reasons(self, ids: Sequence[str]) -> list[JobReason]:
        numbers = self._loop.state.names.numbers
        named = list(dict.fromkeys(numbers.get(int(id), "") if is_number(id) else id for id in ids))
        found: list[JobReason] = []
        left_s = PASSES_S
        async with self._passing:  # one question at a time, however many are asked
            for at in range(0, len(named), AT_ONCE):
                await self.slices.turn()
                engine, now = self._loop.engine, self._clock.now()
                began_at = self._clock.monotonic()
                jobs = filter(None, map(engine.state.jobs.get, named[at : at + AT_ONCE]))
                found += reasons_of(engine.state, jobs, now, engine.policy, engine.memory)
                took_s = self._clock.monotonic() - began_at
                if (left_s := left_s - took_s) <= 0:
                    break
                await asyncio.sleep(took_s)
        return found

    async def _why_without_job(self, id: str, asker: Asker, error: NotFound) -> WhyReply:
        """Of a workflow, or of a stage that has no job; of what is neither, the error that it is unknown."""
        text, _, stage = id.partition(":")
        try:
            flow = await lookup.find_workflow(self._loop, self._store, text)
        except NotFound:
            raise error from None
        await self.slices.turn()
        engine, now = self._loop.engine, self._clock.now()
        if stage:
            return stage_reply(engine.state, flow, lookup.stage_number(flow, stage), now, asker)
        return workflow_reply(engine.state, flow, now, engine.policy, engine.memory, asker)
