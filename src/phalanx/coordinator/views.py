"""What users see of the state: jobs, tasks and nodes as the words of REST."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import structs

from phalanx.api.schema.cluster import DeviceView, NodeView, NumaView, QueueView, QuotaView, UsageView
from phalanx.api.schema.jobs import EXCLUDED, Counts, GroupView, JobView, RequestView, StatusWord, TaskView
from phalanx.coordinator.views_gang import conditions, gang_view, has_no_members, ranks
from phalanx.core.cluster.decide.node_health import holds_for, trouble_of
from phalanx.core.cluster.jobs import NO_CODE, JobState
from phalanx.core.cluster.state import ClusterState, NodeState
from phalanx.core.cluster.units import GroupState
from phalanx.core.explain.gates import comes_first
from phalanx.core.model.quantity import written
from phalanx.core.model.queue import DEFAULT, Usage
from phalanx.core.model.reason import held_back
from phalanx.core.model.resources import Request
from phalanx.core.model.status import Status, Why
from phalanx.core.model.waiting import WaitingClass

TASKS_SHOWN = 1000
DONE = "finished with code 0; Completed once its whole job is"
StatusOfNode = Literal["Online", "Unreachable", "Offline", "Quarantined", "Unhealthy", "Stopping"]


def job_view(state: ClusterState, job: JobState) -> JobView:
    """One job."""
    status, spec = job.overall_status, job.job
    return JobView(
        id=spec.id,
        batch_id=spec.batch,
        name=spec.name,
        user=spec.user,
        queue=spec.queue,
        priority=spec.priority,
        status=_word(status),
        reason=_job_reason(job, status),
        tasks=spec.tasks,
        counts=Counts(*job.counts),
        command=[] if has_no_members(job) else list(spec.groups[0].command.argv),
        request=_request_view(spec.groups[0].request),
        array=None if spec.array is None else str(spec.array),
        submitted_at=spec.submitted_at,
        started_at=job.first_started_at,
        ended_at=job.ended_at,
        exit_code=_job_code(job, status),
        time_limit_s=spec.time_limit_s,
        max_retries=spec.max_retries,
        cwd=spec.groups[0].command.cwd,
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
        object=spec.object_name,
        tags=dict(spec.tags),
    )


def task_viewer(job: JobState, node_names: list[str]) -> Callable[[int], TaskView]:
    """What shows the tasks of a job, each with its newest attempt, one by one."""
    ranked = ranks(job)
    held = {group.number: no.text for group in job.groups for no in list(comes_first(job, group))[:1]}
    if job.held_because:
        held = dict.fromkeys(range(len(job.groups)), held_back(job.held_because).text)
    return lambda position: _task_view(job, position, node_names, ranked.get(position), held)


def task_view(job: JobState, position: int, node_names: list[str]) -> TaskView:
    """One task and its newest attempt."""
    return task_viewer(job, node_names)(position)


def _task_view(
    job: JobState, position: int, node_names: list[str], rank: int | None, held: dict[int, str]
) -> TaskView:
    spec, attempt = job.job, job.live.get(position)
    group = job.group_of(position)
    target = group.request.target
    message, stderr_tail = _last_words(job, position, held)
    status = Status(job.status[position])
    row = job.nodes[position] if job.nodes else 0
    return TaskView(
        id=spec.task_id(position),
        job_id=spec.id,
        batch_id=spec.batch,
        name=spec.name,
        index=None if spec.array is None else spec.array.index(position),
        status=_word(status),
        reason=_task_reason(job, position, status),
        message=message if status != Status.COMPLETED else "",
        exit_code=_task_code(job, position, status),
        attempt=job.attempts[position],
        node=attempt.node if attempt else node_names[row - 1] if row else None,
        devices=list(attempt.grant.devices) if attempt else [],
        target=None if target is None else str(target),
        target_numa_node_id=None if target is None else target.numa,
        paused=bool(attempt and attempt.paused),
        retries_used=max(0, job.charged.get(position, 0) - (status == Status.FAILED)),
        losses=job.losses.get(position, 0),
        retry_at=job.delayed.get(position),
        submitted_at=spec.submitted_at,
        started_at=attempt.started_at if attempt else job.started_at(position),
        ended_at=None if attempt else job.finished_at(position),
        stderr_tail=stderr_tail if status != Status.COMPLETED else "",
        group=group.group.name,
        rank=rank,
        ready=bool(attempt and attempt.ready and not attempt.released),
        nominated_node=job.promise.members[position][0]
        if job.promise is not None and position in job.promise.members
        else None,
        conditions=conditions(job, position),
        object=spec.object_at(position),
    )


def node_view(state: ClusterState, node: NodeState) -> NodeView:
    """One node, and who holds each of its devices."""
    ledger = state.table.ledgers[node.row]
    holders = {
        device: _task_id(state, next(iter(lane.attempts)))
        for lane in node.lanes.values()
        for device in lane.grant.devices
    }
    return NodeView(
        name=node.name,
        status=node_status(node),
        drained=node.drain_reason is not None,
        drain_reason=node.drain_reason or "",
        cores=ledger.capacity.cores,
        cores_free=ledger.cores_free,
        memory_bytes=ledger.capacity.memory_bytes,
        memory_free_bytes=ledger.memory_free,
        numa=[
            NumaView(numa.id, numa.cores, written(ledger.numa_free[numa.id])) for numa in ledger.capacity.numa
        ],
        devices=[
            DeviceView(d.index, d.kind, d.memory_bytes, d.numa, d.uuid, holders.get(d.index))
            for d in ledger.capacity.devices
        ],
        labels=ledger.capacity.labels,
        tasks=[_task_id(state, key) for key, _ in zip(node.attempts, range(TASKS_SHOWN), strict=False)],
        task_count=len(node.attempts),
        incarnation=node.incarnation,
        last_seen_at=node.heard_at or None,
        generation=node.generation,
        failures=node.failures,
        rests_until=node.rests_until,
        note=_note(state, node),
    )


def brake_text(state: ClusterState) -> str:
    """That no node is declared lost for now, and why; empty normally."""
    if state.brake is None:
        return ""
    said = (
        f"{state.brake.silent} of {state.brake.nodes} nodes became unreachable at once: none is declared lost"
    )
    return f"{said}; see whether the coordinator is cut off"


def _note(state: ClusterState, node: NodeState) -> str:
    """What is unusual about a node."""
    if state.brake is not None and holds_for(state, node):
        return "silent; not believed to be lost, for most nodes are silent"
    if not node.lost and (trouble := trouble_of(node)):
        return trouble
    if node.rests_until is None or not node.could_work:
        return ""
    failed = node.rest_text or f"{node.failures} tasks in a row failed here"
    return f"{EXCLUDED}: {failed}" if node.is_kept_away else f"{failed}, but nobody else takes work"


def queue_view(state: ClusterState, name: str) -> QueueView:
    """One queue: its limits, what its tasks hold, and how many jobs wait in it."""
    quota, used = state.queues.quotas.get(name), state.queues.usage.get(name) or Usage()
    units = (kind for kind in state.waiting.classes.values() if _queue_of(kind) == name)
    return QueueView(
        name,
        None if quota is None else QuotaView(*structs.astuple(quota)),
        UsageView(*used.written),
        sum(len(kind.ranks) for kind in units),
    )


def known_queues(state: ClusterState) -> list[str]:
    """Every queue that has a quota, usage, or a waiting job."""
    held = {name for name, used in state.queues.usage.items() if used.held[0]}
    waiting = {_queue_of(kind) for kind in state.waiting.classes.values()}
    return sorted({DEFAULT, *state.queues.quotas, *held, *waiting})


def _queue_of(kind: WaitingClass) -> str:
    return kind.units[kind.ranks[0]].job.queue  # what waits in one class waits in one queue


def node_status(node: NodeState) -> StatusOfNode:
    if node.lost:
        return "Offline"
    if not node.connected:
        return "Unreachable"
    if node.trouble:
        return "Unhealthy"
    if node.leaving:
        return "Stopping"
    return "Quarantined" if node.leftovers else "Online"


def _task_id(state: ClusterState, key: tuple[str, int, int]) -> str:
    return state.jobs[key[0]].job.task_id(key[1])


def _word(status: Status) -> StatusWord:
    word: StatusWord = status.word  # type: ignore[assignment]  # the names are those of the table
    return word


def _request_view(request: Request) -> RequestView:
    return RequestView(
        cores=request.cores,
        memory_bytes=request.memory_bytes,
        gpus=request.gpus,
        gpu_type=request.gpu_type,
        gpu_memory_bytes=request.gpu_memory_bytes,
        target=None if request.target is None else str(request.target),
        labels=dict(request.labels),
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


def _last_words(job: JobState, position: int, held: dict[int, str]) -> tuple[str, str]:
    """What is said of a task, and its last lines on stderr; of one that is on a node again, that it is of before."""
    if position in job.done:
        return DONE, ""
    message, stderr_tail = job.details.get(position, ("", ""))
    attempt = job.live.get(position)
    if attempt is None:
        return message, stderr_tail
    waits = attempt.started_at is None and attempt.released and attempt.ending is None
    if waits and attempt.group in held:
        return held[attempt.group], stderr_tail
    return f"an earlier attempt: {message}" if message else "", stderr_tail


def _task_reason(job: JobState, position: int, status: Status) -> str:
    why = Why(job.why[position])
    settled = status in (Status.COMPLETED, Status.RUNNING, Status.ASSIGNED)
    return "" if why == Why.NONE or settled else why.word


def _task_code(job: JobState, position: int, status: Status) -> int | None:
    """How it ended; while it is on a node again, the code of the attempt before says nothing about it."""
    if status == Status.COMPLETED or position in job.done:
        return 0
    return None if status in (Status.ASSIGNED, Status.RUNNING) else job.exit_code(position)


def _job_reason(job: JobState, status: Status) -> str:
    if status == Status.CANCELLED:
        return Why.CANCELLED.word
    if status == Status.RUNNING and job.live and all(attempt.paused for attempt in job.live.values()):
        return "paused"
    if status != Status.FAILED:
        return ""
    if job.outcome is None:
        return Why(job.why[job.status.index(Status.FAILED)]).word
    # Those that ended because the job did say nothing about its cause, if another one can.
    whys = (why for why, each in zip(job.why, job.status, strict=True) if each == Status.FAILED)
    return Why(next((why for why in whys if why != Why.JOB_FAILED), Why.JOB_FAILED)).word


def _job_code(job: JobState, status: Status) -> int | None:
    if status == Status.COMPLETED:
        return 0
    if status != Status.FAILED:
        return None
    if job.first_code is not None or job.outcome is None:
        return job.first_code
    return next((code for code in job.code if code not in (NO_CODE, 0)), None)
