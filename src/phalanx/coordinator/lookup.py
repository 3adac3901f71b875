"""Ids of jobs and tasks: new ones, and what people type for one (a number, a whole id, a unique prefix, `job.index`)
looked up.

What a user calls a job, and what Kubernetes does, is read into an id before anything is done with it (`naming.py`).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence

from phalanx.clock import Clock
from phalanx.coordinator.naming import label, of_another
from phalanx.coordinator.refusals import reused
from phalanx.coordinator.requests import Requests
from phalanx.core.cluster.decide.merging import parent_of
from phalanx.core.cluster.image import decode_job
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.workflow_image import decode_workflow, is_workflow
from phalanx.core.cluster.workflows import StagePhase, WorkflowState
from phalanx.core.model.job import Job, JobId, is_job_id, is_job_name, ulid
from phalanx.errors import BadRequest, NotFound
from phalanx.store.protocol import Store

_RANGE = re.compile(r"([0-9]{1,9})(?:-|\.\.)[0-9]{1,9}")
_ALPHABET = frozenset("0123456789abcdefghjkmnpqrstvwxyz")


def new_ids(clock: Clock, count: int) -> list[str]:
    """Ids that sort in the order in which they are given."""
    at_ms, chance = int(clock.now() * 1000), secrets.randbits(79)
    return [ulid(at_ms, chance + number) for number in range(count)]


async def find_job(requests: Requests, store: Store, text: str) -> JobState:
    """The job that an id or a unique prefix names, in memory or in the history.

    A standby that does not know it reads the log to its end before it says so.
    """
    if ":" in text:
        return await _stage_job(requests, store, text)
    return await _job(requests, store, text)


async def _job(requests: Requests, store: Store, text: str) -> JobState:
    try:
        return await _find_job(requests.state, store, text)
    except NotFound:
        if not await requests.catch_up():
            raise
    return await _find_job(requests.state, store, text)


async def _find_job(state: ClusterState, store: Store, text: str) -> JobState:
    prefix = text.lower()
    if job := state.jobs.get(prefix):
        return job
    if prefix in state.workflows:
        raise _is_workflow(prefix)
    if not prefix or len(prefix) > 26 or not _ALPHABET.issuperset(prefix):
        raise _no_job(state, text, ": a job is named by its number, its name, last or its id")
    if not prefix.strip("0"):
        raise _no_job(state, text, ": jobs are numbered from 1")
    if is_job_id(prefix):
        body = await store.history(prefix)
        if body is None:
            raise _no_job(state, text)
        if is_workflow(body):
            raise _is_workflow(prefix)
        return decode_job(body)
    found = state.with_prefix(prefix)
    past = await store.past(None, 2, prefix) if len(found) < 2 else []
    past = [record for record in past if not is_workflow(record.body)]
    names = sorted({*found, *(record.job for record in past)})
    if not names:
        raise _no_job(state, text)
    if len(names) > 1:
        raise BadRequest(
            f"{text!r} begins several ids: {', '.join(names[:3])}, …",
            reason="AmbiguousId",
            hint="give more of the id",
        )
    return state.jobs.get(names[0]) or decode_job(past[0].body)


async def find_workflow(requests: Requests, store: Store, text: str) -> WorkflowState:
    """The workflow that an id or a unique prefix names, in memory or in the history."""
    try:
        return await _find_workflow(requests.state, store, text)
    except NotFound:
        if not await requests.catch_up():
            raise
    return await _find_workflow(requests.state, store, text)


async def _find_workflow(state: ClusterState, store: Store, text: str) -> WorkflowState:
    prefix = text.lower()
    if flow := state.workflows.get(prefix):
        return flow
    if is_job_id(prefix):
        body = await store.history(prefix)
        if body is not None and is_workflow(body):
            return decode_workflow(body)
    found = [id for id in state.workflows if id.startswith(prefix)] if prefix else []
    if len(found) > 1:
        raise BadRequest(
            f"{text[:80]!r} begins several ids: {', '.join(sorted(found)[:3])}, …",
            reason="AmbiguousId",
            hint="give more of the id",
        )
    if not found:
        raise NotFound(
            f"no workflow {text[:80]!r}",
            reason="WorkflowNotFound",
            hint="phalanx workflow list shows them; one that ended long ago is named by its whole id",
        )
    return state.workflows[found[0]]


async def first_made(requests: Requests, store: Store, request_id: str, ids: Sequence[JobId]) -> Job | None:
    """The first job of an earlier submission with this request id; None if it is not kept any more.

    Raises Conflict if that submission was a workflow.
    """
    try:
        return (await find_job(requests, store, ids[0])).job
    except NotFound:
        pass
    try:
        await find_workflow(requests, store, ids[0])
    except NotFound:
        return None
    raise reused(request_id, ids[0])


def stage_number(flow: WorkflowState, name: str) -> int:
    """Which stage of a workflow is called so."""
    number = flow.numbers.get(name)
    if number is None:
        known = ", ".join(list(flow.numbers)[:8])
        raise NotFound(
            f"{flow.workflow.id} has no stage {name[:80]!r} (stages: {known})", reason="StageNotFound"
        )
    return number


async def find_stage(requests: Requests, store: Store, text: str) -> tuple[WorkflowState, int]:
    """The stage that WORKFLOW:STAGE names."""
    flow_text, _, name = text.partition(":")
    try:
        flow = await find_workflow(requests, store, flow_text)
    except NotFound:
        if (job := requests.state.jobs.get(flow_text)) is None:
            raise
        number = job.arrival or job.job.id
        raise NotFound(
            f"{number}:{name[:80]}: {number} is a job, not a workflow: it has no stages",
            reason="WorkflowNotFound",
            hint="phalanx workflow list shows workflows",
        ) from None
    return flow, stage_number(flow, name)


async def _stage_job(requests: Requests, store: Store, text: str) -> JobState:
    """The job of a stage, named WORKFLOW:STAGE."""
    flow, number = await find_stage(requests, store, text)
    if flow.phases[number] == StagePhase.WAITING:
        name = flow.workflow.stages[number].name
        missing = ", ".join(flow.workflow.stages[each].name for each in flow.waits_for(number)[:8])
        text = f"stage {name} has no job yet: it waits for {missing or 'values from the place for files'}"
        raise NotFound(text, reason="StageWaits", hint=f"phalanx why {flow.workflow.id}:{name}")
    try:
        return await _job(requests, store, flow.job_id(number))
    except NotFound:
        if flow.phase(number) not in _ENDED_WITHOUT or flow.stage_times[2 * number]:
            raise  # it had one, which is no longer kept
        raise _ended_without_job(flow, number) from None


_ENDED_WITHOUT = {
    StagePhase.SKIPPED: "was skipped",
    StagePhase.FAILED: "failed before it began",
    StagePhase.CANCELLED: "was cancelled before it began",
}


def _ended_without_job(flow: WorkflowState, number: int) -> NotFound:
    name, parent = flow.workflow.stages[number].name, flow.parents.get(number)
    after = "" if parent is None else f", after stage {flow.workflow.stages[parent].name}"
    return NotFound(
        f"stage {name} has no job: it {_ENDED_WITHOUT[flow.phase(number)]}{after}",
        reason="StageWithoutJob",
        hint=f"phalanx why {flow.workflow.id}:{name}",
    )


def job_part(text: str) -> str:
    """The job's part of what names a task; a stage, WORKFLOW:STAGE, names a job, whatever dots are in it."""
    return text if ":" in text else text.partition(".")[0]


async def find_task(requests: Requests, store: Store, text: str) -> tuple[JobState, int | None]:
    """The job and position that an id names; the position is None for an array named as a whole."""
    job_text = job_part(text)
    dot, index_text = text[len(job_text) :][:1], text[len(job_text) + 1 :]
    job = await find_job(requests, store, job_text)
    if not dot:
        return job, 0 if job.job.array is None and job.job.tasks == 1 else None
    if not (index_text.isascii() and index_text.isdecimal() and len(index_text) <= 9):
        raise NotFound(f"no task {text[:80]!r}", reason="TaskNotFound")
    position = job.job.position(int(index_text))
    if position is None:
        hint = f"its indexes are {job.job.array or f'0-{job.job.tasks - 1}'}"
        if job.job.array is None and job.job.tasks == 1:
            hint = f"it has one task: {job.job.id}"
        if (first := await _in_first(requests, store, job, int(index_text))) is not None:
            hint = f"it repeats tasks of another job, which has that one: {first}"
        raise NotFound(f"job {job.job.id} has no task {index_text}", reason="TaskNotFound", hint=hint)
    return job, position


async def _in_first(requests: Requests, store: Store, job: JobState, index: int) -> str | None:
    """The task of this index in the job that a retry repeats; None if there is none, or it is no longer kept."""
    if not job.job.repeats:
        return None
    try:
        first = await _find_job(requests.state, store, job.job.repeats)
    except NotFound:
        return None
    position = first.job.position(index)
    return None if position is None else first.job.task_id(position)


async def find_one_task(requests: Requests, store: Store, text: str) -> tuple[JobState, int]:
    """As find_task, for what is only done to one task at a time."""
    job, position = await find_task(requests, store, text)
    if position is None:
        first = job.job.task_id(0)
        hint = f"name one of its tasks, such as {first}"
        raise BadRequest(f"{job.job.id} has {job.job.tasks} tasks", reason="IsArray", hint=hint)
    return job, position


def refuse_merged(job: JobState, what: str, command: str) -> None:
    """Of a task that ran as a part of another, logs and artifacts are the other's: say so, and what to run instead."""
    if (parent := parent_of(job)) is not None:
        raise NotFound(
            f"{job.job.id} ran as a part of {parent}, together with others: {what} of all are those of {parent}",
            reason="MergedTask",
            hint=f"{command} {parent}",
        )


def _is_workflow(id: str) -> NotFound:
    return NotFound(
        f"{id} is a workflow, not a job",
        reason="IsWorkflow",
        hint=f"phalanx workflow show {id}, phalanx workflow wait {id}, phalanx workflow cancel {id};"
        f" {id}:STAGE names the job of a stage",
    )


def _no_job(state: ClusterState, text: str, how: str = "") -> NotFound:
    if other := of_another(state, text):
        return NotFound(
            f"you have no job {text[:80]!r}, but {other.job.user} has",
            reason="JobNotFound",
            hint=f"{other.job.user}'s is named by its number: {label(state, other.job.id)}",
        )
    if found := _RANGE.fullmatch(text):
        named = f"jobs are named one by one, such as {found[1]} {int(found[1]) + 1}"
        return NotFound(f"no job {text[:80]!r}", reason="JobNotFound", hint=named)
    hint = f"`phalanx ps --all -n {text}` lists the jobs of that name" if is_job_name(text) else ""
    return NotFound(
        f"no job {text[:80]!r}{how}", reason="JobNotFound", hint=hint or "phalanx ps --all lists them"
    )


def position_in(now: JobState, before: JobState, position: int | None) -> int | None:
    """Where a task stands in a job that may have been amended since: by its name; None if it is not there any more."""
    if position is None or now is before or now.job.groups == before.job.groups:
        return position
    name = before.job.object_at(position)
    return now.job.object_position(name) if name else None
