"""Failed tasks again, and jobs again with changes: both are new jobs, for what has ended never changes.

A retry names the job whose tasks it repeats, and keeps their indexes and parameters, so that the newest outcome of
each task can be found: that of the last retry that has it. A retry of a retry is one of the same job. What was asked
before under the same request id is answered as before. See docs/decisions/0097.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from msgspec import structs

from phalanx.api.schema.resubmission import changed
from phalanx.api.schema.submission import AcceptedTask, SubmitReply, check_request_id
from phalanx.api.schema.sweeps import ResubmitRequest, RetryTasksRequest
from phalanx.clock import Clock
from phalanx.coordinator import lookup
from phalanx.coordinator.declarations import IN_A_THREAD, is_same
from phalanx.coordinator.environments import EnvironmentReads, SealedJobs
from phalanx.coordinator.naming import number_in
from phalanx.coordinator.refusals import reused, submit_refusal
from phalanx.coordinator.requests import Requests
from phalanx.core.cluster.decision import Refused, Replayed
from phalanx.core.cluster.inputs import Submit
from phalanx.core.cluster.jobs import JobState
from phalanx.core.model.array import Array
from phalanx.core.model.job import NAME_MAX, Group, Job
from phalanx.core.model.orders import Status
from phalanx.errors import Conflict, Forbidden, NotFound
from phalanx.store.protocol import Store

TRIES = 5  # others may retry the same job meanwhile
RUNS_MAX = 10_000  # of indexes without a gap; each is a range of the new array


class Repeats:
    """What runs again."""

    def __init__(
        self,
        loop: Requests,
        store: Store,
        clock: Clock,
        new_id: Callable[[], str],
        environments: EnvironmentReads,
        sealing: SealedJobs,
    ) -> None:
        self._environments = environments
        self._sealing = sealing
        self._loop = loop
        self._store = store
        self._clock = clock
        self._new_id = new_id

    async def retry(self, id: str, request: RetryTasksRequest, user: str, role: str = "user") -> SubmitReply:
        """The failed tasks of an ended job, as a job of their own; of `job.index`, that task alone."""
        only = await self._only(id, "retry")
        if ids := self._asked_before(request.request_id, user):
            first = await self._first(id)
            return await self._replayed(request.request_id, ids, _repeats(first, only))
        wanted = {Status.FAILED, Status.CANCELLED} if request.cancelled else {Status.FAILED}
        for _ in range(TRIES):
            first = await self._first(id)
            _check(first, user, "retried")
            retries = list(self._loop.state.repeated.get(first.job.id, ()))
            job = await self._repeated(first, retries, wanted, only)
            given = Submit(
                job,
                request.request_id or "",
                role=role,
                retries=len(retries),
                environments=await self._environments.sealed_of(first.job),
            )
            answer = (await self._loop.ask([given]))[0]
            if isinstance(answer, Replayed):
                return await self._replayed(request.request_id, answer.jobs, _repeats(first, only))
            if not (isinstance(answer, Refused) and answer.reason.code == "RetriedMeanwhile"):
                return self._reply(job, answer)
        raise Conflict(f"{id}: others retry it at the same time", reason="RetriedMeanwhile")

    async def resubmit(self, id: str, request: ResubmitRequest, user: str, role: str = "user") -> SubmitReply:
        """A job once more, with changes; of `job.index`, that task alone."""
        only = await self._only(id, "resubmit")
        before = self._asked_before(request.request_id, user)
        found = await lookup.find_job(self._loop, self._store, lookup.job_part(id))
        _check(found, user, "resubmitted", must_have_ended=False)
        anew = self._anew(found.job)
        anew = anew if only is None else _of_one_task(anew, found.job, only)
        job = changed(anew, request.set, found.job.repeats)
        job, kept = self._sealing.resealed(job, await self._environments.sealed_of(found.job))
        if not before:
            given = Submit(job, request.request_id or "", role=role, environments=kept)
            answer = (await self._loop.ask([given]))[0]
            if not isinstance(answer, Replayed):
                return self._reply(job, answer)
            before = answer.jobs
        return await self._replayed(request.request_id, before, lambda known: is_same(known, job))

    async def _first(self, id: str) -> JobState:
        """The job whose tasks are to be repeated: of one that repeats others', the job that those are of."""
        found = await lookup.find_job(self._loop, self._store, lookup.job_part(id))
        if not found.job.repeats:
            return found
        try:
            return await lookup.find_job(self._loop, self._store, found.job.repeats)
        except NotFound:
            raise Conflict(
                f"{id} repeats tasks of a job that is no longer kept",
                reason="NotKept",
                hint=f"phalanx resubmit {id}",
            ) from None

    async def _only(self, id: str, verb: str) -> int | None:
        """The index of the only task that is named; None if a whole job is, or its one task."""
        job, position = await lookup.find_task(self._loop, self._store, id)
        if lookup.job_part(id) == id or position is None:
            return None
        if not _is_divisible(job.job):
            number = job.arrival or job.job.id
            raise Conflict(
                f"{number} runs again as a whole: its tasks do not run without each other",
                reason="NotDivisible",
                hint=f"phalanx {verb} {number}",
            )
        return int(id.rpartition(".")[2])

    async def _repeated(
        self, first: JobState, retries: Sequence[str], wanted: set[Status], only: int | None
    ) -> Job:
        """The job that repeats those tasks of `first` whose newest outcome is one of `wanted`."""
        anew = structs.replace(self._anew(first.job), repeats=first.job.id)
        newest = [first, *[await self._kept(first, id) for id in retries]]
        if not _is_divisible(first.job):
            if newest[-1].overall_status not in wanted:
                raise _nothing(newest)
            return anew
        find = partial(failed_again, anew, newest, wanted, only)
        is_long = sum(each.job.tasks for each in newest) > IN_A_THREAD
        job = await asyncio.to_thread(find) if is_long else find()
        if job is None:
            raise _nothing(newest, only)
        assert job.array is not None
        if len(job.array.ranges) > RUNS_MAX:
            raise Conflict(
                f"{job.tasks} failed tasks are in {len(job.array.ranges)} separate runs of indexes,"
                f" at most {RUNS_MAX} can be retried at once",
                reason="TooScattered",
            )
        return job

    async def _kept(self, first: JobState, id: str) -> JobState:
        try:
            return await lookup.find_job(self._loop, self._store, id)
        except NotFound:
            raise Conflict(
                f"{first.job.id} was retried as {id}, which is no longer kept: which of its tasks failed is not known",
                reason="NotKept",
            ) from None

    def _anew(self, job: Job) -> Job:
        """The same under an id of its own. What it waited for has come; its address, what Kubernetes calls it, and the
        client that showed its output were that job's.
        """
        id = self._new_id()
        groups = tuple(
            structs.replace(
                group,
                command=structs.replace(group.command, attached=False),
                request=structs.replace(group.request, address=""),
                objects=(),
            )
            for group in job.groups
        )
        return structs.replace(
            job,
            id=id,
            batch=id,
            submitted_at=self._clock.now(),
            groups=groups,
            after=(),
            applied=(),
            object="",
            repeats="",
            begin_at=0.0,
            revision=0,
        )

    def _asked_before(self, request_id: str | None, user: str) -> Sequence[str]:
        """What came of an earlier request with this id."""
        if request_id is None:
            return ()
        check_request_id(request_id)
        return self._loop.state.requests.get(user, request_id)

    async def _replayed(
        self, request_id: str | None, ids: Sequence[str], is_of_it: Callable[[Job], bool]
    ) -> SubmitReply:
        """The answer of the first time, if this is the same request."""
        first = await lookup.first_made(self._loop, self._store, request_id or "", ids)
        if first is not None and not is_of_it(first):
            raise reused(request_id or "", ids[0])
        return SubmitReply(list(ids), ids[0], [self._accepted(id) for id in ids], replayed=True)

    def _accepted(self, id: str) -> AcceptedTask:
        job = self._loop.state.jobs.get(id)
        return AcceptedTask(id, 1 if job is None else job.job.tasks, number=number_in(self._loop.state, id))

    def _reply(self, job: Job, answer: object) -> SubmitReply:
        if isinstance(answer, Refused):
            raise submit_refusal(self._loop.state, [(None, job)], [answer], [])
        return SubmitReply([job.id], job.id, [self._accepted(job.id)])


def repeatable(job: JobState) -> list[str]:
    """What its user may have repeated of a job as it is: `retry`, `resubmit`, both or nothing."""
    try:
        _check_kind(job, "repeated")
    except Conflict:
        return []
    has_failed = job.is_over and job.counts[Status.FAILED] + job.counts[Status.CANCELLED] > 0
    return ["retry", "resubmit"] if has_failed else ["resubmit"]


def _check(job: JobState, user: str, what: str, *, must_have_ended: bool = True) -> None:
    spec, number = job.job, job.arrival or job.job.id
    if spec.user != user:
        raise Forbidden(f"{number} is a job of {spec.user}, and only {spec.user} can have it {what}")
    _check_kind(job, what)
    if must_have_ended and not job.is_over:
        left = sum(job.counts[:3])
        raise Conflict(
            f"{number} has not ended: {left} of {spec.tasks} tasks are left",
            reason="NotEnded",
            hint=f"phalanx wait {number}, or phalanx cancel {number}",
        )


def _check_kind(job: JobState, what: str) -> None:
    """Refuse a job that is never repeated, whoever asks."""
    spec, number = job.job, job.arrival or job.job.id
    if spec.workflow is not None:
        raise Conflict(
            f"{number} is a stage of a workflow",
            reason="IsStage",
            hint=f"phalanx workflow retry {spec.workflow[0]} runs what failed again",
        )
    if spec.vps is not None or spec.draft is not None:
        kind = "a VPS" if spec.vps is not None else "a gang that waits for members"
        raise Conflict(f"{number} is {kind} and cannot be {what}", reason="NotRepeatable")
    if any(group.command.stdin for group in spec.groups):  # an empty input must not pass for the whole
        raise Conflict(
            f"{number} had standard input of its `phalanx run`, which is not kept: it cannot be {what}",
            reason="InputNotKept",
            hint="use `phalanx run` again; with --no-stdin it can be retried and resubmitted later",
        )


def _repeats(first: JobState, only: int | None) -> Callable[[Job], bool]:
    """Whether a job repeats tasks of this one, or the only one that was asked for."""
    return lambda job: (
        job.repeats == first.job.id
        and (only is None or (job.array is not None and [*job.array.indexes()] == [only]))
    )


def _is_divisible(job: Job) -> bool:
    """Whether some of its tasks can run without the others: they are of an array, and start one by one."""
    return job.array is not None and job.gang is None and len(job.groups) == 1 and job.groups[0].replicas == 1


def failed_again(
    anew: Job, jobs: Sequence[JobState], wanted: set[Status], only: int | None = None
) -> Job | None:
    """The job with those tasks alone whose newest outcome in `jobs` is one of `wanted`; None if there is none.

    `only` is the index of the one task that is asked for.
    """
    if not any(job.counts[status] for job in jobs for status in wanted):
        return None
    indexes = [index for index in _indexes(jobs, wanted) if only in (None, index)]
    return _of_indexes(anew, jobs[0].job, indexes) if indexes else None


def _of_indexes(anew: Job, first: Job, indexes: Sequence[int]) -> Job:
    """The job with only these tasks of `first`, under the same indexes and with the same parameters."""
    assert first.array is not None
    group = anew.groups[0]
    positions = [first.array.position(index) or 0 for index in indexes] if group.indexes else []
    return structs.replace(
        anew,
        groups=(_some_of(group, len(indexes), positions),),
        array=Array.of(indexes, first.array.at_once),
        params=anew.params and anew.params.only(indexes),
    )


def _of_one_task(anew: Job, first: Job, index: int) -> Job:
    """The job with this task of `first` alone; the name goes on meaning the whole array."""
    job = _of_indexes(anew, first, [index])
    if first.tasks == 1 or not job.name:
        return job
    end = f"-{index}"
    return structs.replace(job, name=job.name[: NAME_MAX - len(end)] + end)


def _indexes(jobs: Sequence[JobState], wanted: set[Status]) -> list[int]:
    """Of which tasks the newest outcome is one of `wanted`, in the order of their positions in the first job."""
    found: dict[int, None] = {}
    for job in jobs:
        assert job.job.array is not None
        for index, status in zip(job.job.array.indexes(), job.status, strict=True):
            if status in wanted:
                found[index] = None
            else:
                found.pop(index, None)
    return sorted(found)


def _some_of(group: Group, tasks: int, positions: Sequence[int]) -> Group:
    at_once = 0 if group.at_once >= tasks else group.at_once
    indexes = tuple(group.indexes[position] for position in positions)
    return structs.replace(group, tasks=tasks, at_once=at_once, indexes=indexes)


def _nothing(jobs: Sequence[JobState], only: int | None = None) -> Conflict:
    """Why nothing is repeated of the first of `jobs`, of which the others repeated tasks."""
    first = jobs[0]
    newest = next(job for job in reversed(jobs) if only is None or _has(job, only))
    number, last = first.arrival or first.job.id, newest.arrival or newest.job.id
    what = f"{number} has no failed task" if only is None else f"task {only} of {number} has not failed"
    later = "" if newest is first else f", as last retried in {last}"
    return Conflict(
        f"{what}{later}",
        reason="NothingFailed",
        hint="" if newest.is_over else f"that retry has not ended: phalanx wait {last}",
    )


def _has(job: JobState, index: int) -> bool:
    return job.job.array is not None and job.job.array.position(index) is not None
