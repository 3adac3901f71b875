"""Submissions: what users submit becomes jobs, and a submission that is sent again is answered as before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from msgspec import structs

from phalanx.api.schema.begin import NOW
from phalanx.api.schema.documents import FailedTarget
from phalanx.api.schema.fields import shown
from phalanx.api.schema.params import check_templates, index_warnings
from phalanx.api.schema.submission import AcceptedTask, SubmitReply, SubmitRequest, to_jobs
from phalanx.api.schema.sweeps import RowsPiece, RowsTaken
from phalanx.api.server.auth import digest
from phalanx.clock import Clock
from phalanx.coordinator.declarations import IN_A_THREAD, is_same_elsewhere
from phalanx.coordinator.dependencies import find_before
from phalanx.coordinator.environments import SealedJobs
from phalanx.coordinator.lookup import first_made
from phalanx.coordinator.naming import number_in
from phalanx.coordinator.refusals import reused, submit_refusal
from phalanx.coordinator.requests import Requests
from phalanx.coordinator.row_uploads import RowUploads
from phalanx.core.cluster.decision import Answer, Refused, Replayed
from phalanx.core.cluster.inputs import Input, Submit
from phalanx.core.model.job import Job, Vps
from phalanx.manifests.layers import fit_request
from phalanx.store.protocol import Store

TARGETS_LONG = 20_000  # characters of targets, which are read beside the loop, too


def _is_long(request: SubmitRequest) -> bool:
    """Whether others would wait for it to be read."""
    return len(request.each) > IN_A_THREAD or sum(map(len, request.targets)) > TARGETS_LONG


class Submissions:
    """What users submit, and the rows of sweeps that come before it."""

    def __init__(
        self,
        loop: Requests,
        store: Store,
        clock: Clock,
        default_retries: int,
        new_id: Callable[[], str],
        sealing: SealedJobs,
    ) -> None:
        self._sealing = sealing
        self._loop = loop
        self._store = store
        self._clock = clock
        self._default_retries = default_retries
        self._new_id = new_id
        self._uploads = RowUploads(clock)

    async def take_rows(self, piece: RowsPiece, user: str) -> RowsTaken:
        """One piece of the rows of a sweep. They are in memory only, until a job is submitted with them."""
        self._loop.require_active()
        return self._uploads.take(user, piece)

    async def submit(
        self,
        request: SubmitRequest,
        user: str,
        role: str = "user",
        vps: Vps | None = None,
    ) -> SubmitReply:
        """Accept a submission, or raise the error that says why not."""
        if (known := await self._committed(request, user)) is not None:
            return known
        warnings: list[str] = []
        if request.gather:
            request, warnings = fit_request(request, self._loop.state.table.topology)
        read = partial(
            to_jobs,
            request,
            new_id=self._new_id,
            now=self._clock.now(),
            user=user,
            default_retries=self._default_retries,
            vps=vps,
            rows=None if request.rows is None else self._uploads.rows(user, request.rows),
        )
        jobs, failed = await asyncio.to_thread(read) if _is_long(request) else read()
        if request.after and jobs:
            after = await find_before(self._loop, self._store, jobs[0][1].after, user)
            jobs = [(target, structs.replace(job, after=after)) for target, job in jobs]
        jobs, environments = self._sealing.of_targets(jobs, request.exported)
        inputs: list[Input] = [
            Submit(
                job,
                request.request_id or "",
                request.allow_infeasible,
                request.no_queue,
                role=role,
                ip_digest=digest(request.ip_token) if request.ip_token else b"",
                environments=environments,
                hold=request.hold,
            )
            for _, job in jobs
        ]
        answers = await self._loop.ask(inputs) if inputs else []
        if answers and isinstance(answers[0], Replayed):
            return await self._replayed(request.request_id or "", jobs[0][1], answers[0].jobs)
        reply = self._reply(jobs, answers, failed)
        if request.rows is not None:
            self._uploads.drop(user, request.rows)
        warnings += check_templates(jobs[0][1].params, jobs[0][1].groups) + index_warnings(jobs[0][1])
        if request.begin not in (None, NOW) and not jobs[0][1].begin_at:
            warnings.append(f"begin: {shown(request.begin)} has passed: it starts as soon as there is room")
        return structs.replace(reply, warnings=warnings)

    async def _committed(self, request: SubmitRequest, user: str) -> SubmitReply | None:
        """The answer to a submission whose rows have become a job: they are not here any more to compare."""
        if request.rows is None or not request.request_id or self._uploads.has(user, request.rows):
            return None
        ids = self._loop.state.requests.get(user, request.request_id)
        if not ids:
            return None
        first = await first_made(self._loop, self._store, request.request_id, ids)
        if first is not None and (first.params is None or first.params.rows is None):
            raise reused(request.request_id, first.id)
        return self._known(ids)

    def _reply(
        self,
        jobs: list[tuple[str | None, Job]],
        answers: list[Answer | None],
        failed: list[FailedTarget],
    ) -> SubmitReply:
        taken: list[AcceptedTask] = []
        refused: list[Refused] = []
        for (target, job), answer in zip(jobs, answers, strict=True):
            if isinstance(answer, Refused):
                refused.append(answer)
                failed.append(FailedTarget(target or "", answer.reason.code, answer.reason.text))
            else:
                taken.append(AcceptedTask(job.id, job.tasks, target, number_in(self._loop.state, job.id)))
        if not taken:
            raise submit_refusal(self._loop.state, jobs, refused, failed)
        ids = [each.id for each in taken]
        wanted = jobs[0][1].groups[0].request.target
        node = wanted.host if len(jobs) == 1 and wanted else None
        return SubmitReply(ids, ids[0], taken, failed, node)

    async def _replayed(self, request_id: str, asked: Job, ids: tuple[str, ...]) -> SubmitReply:
        """The answer of the first time, if this is the same request."""
        first = await first_made(self._loop, self._store, request_id, ids)
        if first is not None and not is_same_elsewhere(first, asked):
            raise reused(request_id, first.id)
        return self._known(ids)

    def _known(self, ids: Sequence[str]) -> SubmitReply:
        known = [AcceptedTask(id, number=number_in(self._loop.state, id)) for id in ids]
        return SubmitReply(list(ids), ids[0], known, replayed=True)
