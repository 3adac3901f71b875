"""What users see of jobs, their tasks and their gangs, as the words of REST."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import msgspec

from phalanx.api.schema.groupspec import GatherSpec
from phalanx.api.schema.jobs import (
    Counts,
    FormationView,
    GangView,
    GroupView,
    JobView,
    PhaseWord,
    PromiseView,
    RequestView,
    StatusWord,
    TaskView,
)
from phalanx.coordinator.evictions import conditions, last_eviction
from phalanx.coordinator.naming import in_numbers
from phalanx.coordinator.task_endings import job_code, job_reason, last_words, task_code, task_reason
from phalanx.coordinator.views_parameters import params_view
from phalanx.coordinator.views_usage import ended_usage
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.units import Formation, GangState, GroupState, Promise
from phalanx.core.explain.attempts import count_unreachable, is_unreachable
from phalanx.core.explain.gates import comes_first, nominated, task_names
from phalanx.core.model.containers import OF_RUNTIMES
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Status
from phalanx.core.model.reason import held_back
from phalanx.core.model.resources import ISOLATED, Request

LIVE_LOOKED_AT = 10_000  # of a job's attempts, for how many are paused
NODES_LOOKED_AT = 1000  # and for where they are
NODES_SHOWN = 256


def job_view(state: ClusterState, job: JobState) -> JobView:
    """One job."""
    status, spec, live = job.overall_status, job.job, [*islice(job.live.values(), LIVE_LOOKED_AT)]
    return JobView(
        id=spec.id,
        batch_id=spec.batch,
        name=spec.name,
        user=spec.user,
        queue=spec.queue,
        priority=spec.priority,
        status=_word(status),
        reason=job_reason(job, status),
        tasks=spec.tasks,
        counts=Counts(*job.counts),
        command=[] if has_no_members(job) else list(spec.groups[0].command.argv),
        request=_request_view(spec.groups[0].request),
        array=None if spec.array is None else str(spec.array),
        submitted_at=spec.submitted_at,
        started_at=job.first_started_at,
        ended_at=job.ended_at,
        exit_code=job_code(job, status),
        time_limit_s=spec.time_limit_s,
        max_retries=spec.max_retries,
        cwd=spec.groups[0].command.cwd,
        image=spec.groups[0].command.image,
        mounts=[*spec.groups[0].command.mounts],
        split_output=any(group.command.split_output for group in spec.groups),
        env=spec.groups[0].command.env,
        groups=[_group_view(job, group) for group in job.groups],
        gang=gang_view(state, job),
        restarts=job.restarts,
        restart_limit=spec.restart.limit if job.restarts_whole else None,
        setbacks=job.setbacks,
        retry_at=job.hold_until or None,
        finished=len(job.done),
        failures=sum(job.charged.values()),
        held=job.held_because or (spec.draft.lacks if spec.draft is not None and not job.is_over else None),
        unapproved=job.approve_by is not None and not job.is_over,
        object=spec.object_name,
        tags=dict(spec.tags),
        after=[str(each) for each in spec.after],
        after_numbers=[in_numbers(state, str(each)) for each in spec.after],
        workflow=stage_of(state, spec),
        written=written_by(state, spec),
        kind="command" if spec.vps is None else "vps",
        number=job.arrival,
        paused=sum(bool(each.paused) for each in live),
        nodes=_nodes(state, job),
        begin_at=spec.begin_at or None,
        revision=spec.revision,
        evicted="" if (left := last_eviction(job)) is None else left.message,
        evicted_at=None if left is None else left.at,
        params=params_view(spec),
        repeats=spec.repeats,
        retries=list(state.repeated.get(spec.id, ())),
        unreachable=count_unreachable(state, job, live),
    )


def _nodes(state: ClusterState, job: JobState) -> list[str]:
    """Where its tasks are; once it has ended, where they were."""
    if job.is_over and not job.live and job.nodes:
        rows = dict.fromkeys(islice(job.nodes, NODES_LOOKED_AT))
        return [state.known_names[row - 1] for row in rows if row][:NODES_SHOWN]
    return list({each.node: None for each in islice(job.live.values(), NODES_LOOKED_AT)})[:NODES_SHOWN]


def stage_of(state: ClusterState, job: Job) -> str:
    """The stage that a job is of, as ID:STAGE, or ID: if the workflow left the memory; empty: it is of none."""
    if job.workflow is None:
        return ""
    id, number = job.workflow
    flow = state.workflows.get(id)
    return f"{id}:" if flow is None else f"{id}:{flow.workflow.stages[number].name}"


def written_by(state: ClusterState, job: Job) -> list[str]:
    """The command of a stage with its references; empty if it is none, or its workflow left the memory."""
    flow = None if job.workflow is None else state.workflows.get(job.workflow[0])
    if flow is None or job.workflow is None:
        return []
    return list(flow.workflow.stages[job.workflow[1]].job.groups[0].command.argv)


def task_viewer(state: ClusterState, job: JobState) -> Callable[[int], TaskView]:
    """What shows the tasks of a job, each with its newest attempt, one by one."""
    ranked = ranks(job)
    held = {group.number: no.text for group in job.groups for no in list(comes_first(job, group))[:1]}
    if job.held_because:
        held = dict.fromkeys(range(len(job.groups)), held_back(job.held_because).text)
    return lambda position: _task_view(state, job, position, ranked.get(position), held)


def task_view(state: ClusterState, job: JobState, position: int) -> TaskView:
    """One task and its newest attempt."""
    return task_viewer(state, job)(position)


def _task_view(
    state: ClusterState, job: JobState, position: int, rank: int | None, held: dict[int, str]
) -> TaskView:
    spec, attempt = job.job, job.live.get(position)
    group = job.group_of(position)
    target = group.request.target
    message, stderr_tail = last_words(job, position, held)
    status = Status(job.status[position])
    row = job.nodes[position] if job.nodes else 0
    return TaskView(
        id=spec.task_id(position),
        job_id=spec.id,
        batch_id=spec.batch,
        name=spec.name,
        index=None if spec.array is None else spec.array.index(position),
        status=_word(status),
        reason=task_reason(job, position, status),
        message=in_numbers(state, message),
        exit_code=task_code(job, position, status),
        attempt=job.attempts[position],
        node=attempt.node if attempt else state.known_names[row - 1] if row else None,
        devices=list(attempt.grant.devices) if attempt else [],
        target=None if target is None else str(target),
        target_numa_node_id=None if target is None else target.numa,
        paused=bool(attempt and attempt.paused),
        retries_used=max(0, job.charged.get(position, 0) - (status == Status.FAILED)),
        losses=job.losses.get(position, 0),
        retry_at=job.delayed.get(position),
        submitted_at=spec.submitted_at,
        started_at=attempt.started_at if attempt else job.started_at(position),
        ended_at=None
        if attempt
        else job.finished_at(position) or (job.ended_at if status.is_final else None),
        stderr_tail=stderr_tail if status != Status.COMPLETED else "",
        result=raw_json(job.results.get(position)),
        result_bytes=job.kept_results.get(position, (0, ""))[0],
        group=group.group.name,
        rank=rank,
        ready=bool(attempt and attempt.ready and not attempt.released),
        nominated_node=job.promise.members[position][0]
        if job.promise is not None and position in job.promise.members
        else None,
        conditions=conditions(job, position),
        object=spec.object_at(position),
        usage=None if attempt else ended_usage(job, position),
        address=attempt.grant.address or None if attempt else None,
        number=task_number(job, position),
        preparing="its image is got ready" if attempt and attempt.preparing else "",
        params=spec.params_at(position),
        unreachable=attempt is not None and is_unreachable(state, job, attempt),
    )


def task_number(job: JobState, position: int | None) -> str:
    """What people call a job or one of its tasks: 17, 17.3."""
    if not job.arrival:
        return ""
    suffix = "" if position is None else job.job.task_id(position)[len(job.job.id) :]
    return f"{job.arrival}{suffix}"


def _word(status: Status) -> StatusWord:
    word: StatusWord = status.word  # type: ignore[assignment]  # the names are those of the table
    return word


_OF_RUNNERS = (ISOLATED, *OF_RUNTIMES)  # labels that say what other fields say


def _request_view(request: Request) -> RequestView:
    return RequestView(
        cores=request.cores,
        memory_bytes=request.memory_bytes,
        gpus=request.gpus,
        gpu_type=request.gpu_type,
        gpu_memory_bytes=request.gpu_memory_bytes,
        target=None if request.target is None else str(request.target),
        labels={name: value for name, value in request.labels if (name, value) not in _OF_RUNNERS},
        require_isolation=ISOLATED in request.labels,
        nodes=[*request.nodes],
        exclude=[*request.exclude],
        exclusive=request.exclusive,
        spread=request.spread,
    )


def _group_view(job: JobState, state: GroupState) -> GroupView:
    group = state.group
    if len(job.groups) == 1:
        counts = Counts(*job.counts)
    else:
        column = job.status[state.first : state.last]
        counts = Counts(*(column.count(status) for status in Status))
    return GroupView(
        name=group.name,
        tasks=group.tasks,
        needed=group.needed if job.gang is not None and job.job.draft is None else 0,
        replicas=group.replicas,
        at_once=group.at_once,
        counts=counts,
        command=[] if has_no_members(job) else list(group.command.argv),
        request=_request_view(group.request),
        after=[f"{name} {when}" for name, when in group.after],
        finished=job.done_in(state),
        tags=dict(group.tags),
    )


def raw_json(text: str | None) -> msgspec.Raw | None:
    """A result as it is written into an answer, without making objects of it; None if there is none, or it is no JSON.

    A runner that is not ours may have sent anything, and one wrong text would make the whole answer unreadable.
    """
    try:
        return None if text is None else msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return None


def gang_view(state: ClusterState, job: JobState) -> GangView | None:
    """How far a gang has come; None for a job that is none."""
    if job.gang is None:
        return None
    gang = job.gang.gang
    draft = job.job.draft if job.job.draft is not None and job.job.draft.needed else None
    return GangView(
        phase=phase(job, job.gang),
        placed=job.gang.staying().total(),
        needed=sum(group.needed for group in job.job.groups) if draft is None else draft.needed,
        strict=gang.strict,
        match=gang.match,
        wait_s=gang.wait_s,
        gather=[GatherSpec(each.layer, each.must, each.multiple) for each in gang.gather],
        id=gang.id,
        formations=job.formations,
        formation=None if job.forming is None else _formation_view(job.forming, gang.wait_s),
        promise=None if job.promise is None else _promise_view(state, job.promise),
        members=None if draft is None else draft.members,
    )


def has_no_members(job: JobState) -> bool:
    """Whether none of a gang's members have come, so that its only group runs nothing."""
    draft = job.job.draft
    return draft is not None and draft.needed > 0 and draft.members == 0


def phase(job: JobState, gang: GangState) -> PhaseWord:
    """Where a gang stands, in the words of a PodGroup; asked of every group, and all have to be as far.

    Koordinator calls a gang Finished once its minimum has ended well; here it is when nobody of it waits or runs.
    """
    if job.job.draft is not None and not job.is_over:
        return "Pending"
    tally = [_Tally(job, group) for group in job.groups]
    if job.is_over and (job.outcome == Status.COMPLETED or all(each.well >= each.needed for each in tally)):
        return "Finished"
    if job.is_over or (
        any(each.failed for each in tally)
        and all(each.well + each.running + each.failed >= each.needed for each in tally)
    ):
        return "Failed"
    if all(each.well + each.running >= each.needed for each in tally):
        return "Running"
    held = gang.staying()
    if all(each.well + held[number] >= each.needed for number, each in enumerate(tally)):
        return "Scheduled"
    if held.total() or job.promise is not None:
        return "Scheduling"
    return "PreScheduling" if gang.has_ready else "Pending"


def ranks(job: JobState) -> dict[int, int]:
    """The place of each member among those that stand together, by their index in the network.

    Before a gang is placed only the ranks of one that cannot start with fewer are known.
    """
    if job.gang is None:
        return {}
    if not job.live and any(group.needed < group.tasks for group in job.job.groups):
        return {}
    members = job.live or range(job.job.tasks)
    ordered = sorted((_index(job.group_of(position), position), position) for position in members)
    return {position: rank for rank, (_, position) in enumerate(ordered)}


def _formation_view(forming: Formation, wait_s: float) -> FormationView:
    until = forming.formed_at + wait_s
    return FormationView(forming.number, forming.formed_at, until, len(forming.positions), len(forming.ready))


def _promise_view(state: ClusterState, promise: Promise) -> PromiseView:
    victims = task_names(state, promise.victims)
    numbers = [in_numbers(state, name) for name in victims]
    return PromiseView(promise.made_at, promise.until, victims, nominated(promise), numbers)


def _index(group: GroupState, position: int) -> int:
    indexes = group.group.indexes
    return indexes[position - group.first] if indexes else position


class _Tally:
    """The tasks of one group by how they fare."""

    def __init__(self, job: JobState, group: GroupState) -> None:
        status = job.status[group.first : group.last]
        done = job.done_in(group)
        self.needed = group.group.needed
        self.well = status.count(Status.COMPLETED) + done
        self.running = status.count(Status.RUNNING) - done
        self.failed = status.count(Status.FAILED)
