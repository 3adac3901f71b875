"""What users see of the state: jobs, tasks and nodes as the words of REST."""

from __future__ import annotations

from typing import Literal

from phalanx.api.schema import (
    Counts,
    DeviceView,
    JobView,
    NodeView,
    NumaView,
    RequestView,
    StatusWord,
    TaskView,
)
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState, NodeState
from phalanx.core.model.resources import Request
from phalanx.core.model.status import Status, Why

TASKS_SHOWN = 1000
StatusOfNode = Literal["Online", "Unreachable", "Offline", "Quarantined"]


def job_status(job: JobState) -> Status:
    """A job as a whole: what is furthest on while it lives, the worst once it is over."""
    counts = job.counts
    for status in (Status.RUNNING, Status.ASSIGNED, Status.PENDING, Status.FAILED, Status.CANCELLED):
        if counts[status]:
            return status
    return Status.COMPLETED


def job_view(job: JobState) -> JobView:
    """One job."""
    status, spec = job_status(job), job.job
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
        command=list(spec.command.argv),
        request=_request_view(spec.request),
        array=None if spec.array is None else str(spec.array),
        submitted_at=spec.submitted_at,
        started_at=job.first_started_at,
        ended_at=job.ended_at,
        exit_code=_job_code(job, status),
        time_limit_s=spec.time_limit_s,
        max_retries=spec.max_retries,
        cwd=spec.command.cwd,
        env=spec.command.env,
    )


def task_view(job: JobState, position: int, node_names: list[str]) -> TaskView:
    """One task and its newest attempt."""
    spec, attempt = job.job, job.live.get(position)
    target = spec.request.target
    message, stderr_tail = job.details.get(position, ("", ""))
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
        numa=[NumaView(numa.id, numa.cores, ledger.numa_free[numa.id]) for numa in ledger.capacity.numa],
        devices=[
            DeviceView(d.index, d.kind, d.memory_bytes, d.numa, d.uuid, holders.get(d.index))
            for d in ledger.capacity.devices
        ],
        labels=ledger.capacity.labels,
        tasks=[_task_id(state, key) for key, _ in zip(node.attempts, range(TASKS_SHOWN), strict=False)],
        task_count=len(node.attempts),
        incarnation=node.incarnation,
        last_seen_at=node.heard_at or None,
    )


def node_status(node: NodeState) -> StatusOfNode:
    if node.lost:
        return "Offline"
    if not node.connected:
        return "Unreachable"
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
    )


def _task_reason(job: JobState, position: int, status: Status) -> str:
    why = Why(job.why[position])
    settled = status in (Status.COMPLETED, Status.RUNNING, Status.ASSIGNED)
    return "" if why == Why.NONE or settled else why.word


def _task_code(job: JobState, position: int, status: Status) -> int | None:
    """How it ended; while it is on a node again, the code of the attempt before says nothing about it."""
    if status == Status.COMPLETED:
        return 0
    return None if status in (Status.ASSIGNED, Status.RUNNING) else job.exit_code(position)


def _job_reason(job: JobState, status: Status) -> str:
    if status == Status.CANCELLED:
        return Why.CANCELLED.word
    if status == Status.RUNNING and all(attempt.paused for attempt in job.live.values()):
        return "paused"
    if status != Status.FAILED:
        return ""
    return Why(job.why[job.status.index(Status.FAILED)]).word


def _job_code(job: JobState, status: Status) -> int | None:
    if status == Status.COMPLETED:
        return 0
    return job.first_code if status == Status.FAILED else None
