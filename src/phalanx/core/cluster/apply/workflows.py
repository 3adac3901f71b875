"""What events do to workflows: from the submission, stage by stage, to the history."""

from __future__ import annotations

from collections import Counter

from msgspec import structs

from phalanx.core.cluster import workflow_events as w
from phalanx.core.cluster.apply.bindings import unbind
from phalanx.core.cluster.apply.dependencies import tell_of_end
from phalanx.core.cluster.decision import Effect, Settle
from phalanx.core.cluster.environments import digests_of_stages
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.nodes import Unfit
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.units import Attempt
from phalanx.core.cluster.workflows import KeptResult, StagePhase, WorkflowState
from phalanx.core.model.cost import held_rate
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Exit, Status
from phalanx.core.model.queues import add_to

_PHASES = {
    Status.COMPLETED: StagePhase.COMPLETED,
    Status.FAILED: StagePhase.FAILED,
    Status.CANCELLED: StagePhase.CANCELLED,
}


def workflow_submitted(state: ClusterState, event: w.WorkflowSubmitted) -> None:
    number = state.take_number(event.number) if event.number else 0
    flow = add_workflow(state, WorkflowState(event.content, number))
    flow.unapproved = event.unapproved
    state.note_due(flow)
    if event.request_id:
        most = state.rules.request_ids_max
        state.requests.add(event.content.user, event.request_id, event.content.id, most)


def add_workflow(state: ClusterState, flow: WorkflowState) -> WorkflowState:
    """Put a workflow into the tables."""
    state.workflows[flow.workflow.id] = flow
    if flow.number:
        state.names.numbers[flow.number] = flow.workflow.id
    note_limits(state, flow)
    _count_waiting(state, flow, 1)
    if flow.is_over:
        state.ended_workflows[flow.workflow.id] = None
    add_to(state.bytes_of, flow.workflow.user, flow.size_bytes)
    state.environments.add(digests_of_stages(flow.workflow))
    return flow


def note_limits(state: ClusterState, flow: WorkflowState) -> None:
    """Its limits are looked at while it goes on."""
    if flow.workflow.is_limited and not flow.is_over:
        state.limited[flow.workflow.id] = None
    else:
        state.limited.pop(flow.workflow.id, None)


def note_cost(state: ClusterState, job: Job, attempt: Attempt, exit: Exit, at: float) -> None:
    """An attempt has ended: its workflow, if it has one, is charged for it.

    What the runner measured counts; an end that nobody saw came when it was told.
    """
    flow = None if job.workflow is None else state.workflows.get(job.workflow[0])
    if flow is None:
        return
    if exit.started_at is not None and exit.ended_at is not None:
        seconds = exit.ended_at - exit.started_at
    else:
        seconds = 0.0 if attempt.started_at is None else at - attempt.since
    flow.spent += max(0.0, seconds) * held_rate(state.nodes[attempt.node].capacity, attempt.grant)


def release_stage(state: ClusterState, job: Job) -> None:
    """A stage became this job."""
    found = _stage_of(state, job)
    if found is None:
        return
    flow, stage = found
    state.count_stages(job.queue_user, -job.tasks)
    flow.release(stage)
    state.note_due(flow)


def note_over(state: ClusterState, job: JobState) -> None:
    """The job of a stage has ended. How, is read when all events of the same decision are applied."""
    found = _stage_of(state, job.job)
    if found is not None and found[0].phase(found[1]) == StagePhase.RELEASED:
        flow, stage = found
        flow.over[stage] = None
        state.note_due(flow)


def note_reuse(state: ClusterState, job: Job, reused: int) -> None:
    """An attempt of a job was given a node that has loaded so much of what it needs; noted if it is a stage."""
    if (found := _stage_of(state, job)) is None:
        return
    flow, stage = found
    if reused:
        flow.reused[stage] = reused
    else:
        flow.reused.pop(stage, None)


def stages_ended(state: ClusterState, event: w.StagesEnded) -> list[Effect]:
    flow = _flow(state, event.workflow)
    without_job = [end.stage for end in event.ends if flow.phase(end.stage) == StagePhase.WAITING]
    for end in event.ends:
        phase = flow.phase(end.stage)
        if phase == StagePhase.RELEASED and (job := state.jobs.get(flow.job_id(end.stage))) is not None:
            _keep(flow, end.stage, job)
        elif phase == StagePhase.WAITING:
            _count_stage(state, flow, end.stage, -1)
        if end.parent is not None:
            flow.parents[end.stage] = end.parent
        if end.text:
            flow.notes[end.stage] = end.text
        flow.end(end.stage, StagePhase.SKIPPED if end.skipped else _PHASES[end.status], event.at)
    return _moved(state, flow, without_job)


def _keep(flow: WorkflowState, stage: int, job: JobState) -> None:
    """What a stage's job leaves behind for those that build on it, and for people: it may be forgotten before them."""
    flow.stage_times[2 * stage] = job.first_started_at or 0.0
    flow.stage_times[2 * stage + 1] = job.ended_at or 0.0
    flow.stage_nodes[stage] = job.nodes[0] if job.nodes else 0
    if (result := stage_result(job)) is not None:
        flow.keep_result(stage, result)
    if job.kept_results:
        flow.kept[stage] = tuple(
            KeptResult(position, job.attempts[position], *found)
            for position, found in sorted(job.kept_results.items())
        )
        size = max(size for size, _ in job.kept_results.values())
        flow.notes[stage] = f"its result of {size} bytes is in the place for files"


def stage_result(job: JobState) -> str | None:
    """What a stage gave, as JSON: of one task its result, of several a list of theirs, null where there is none."""
    if job.job.tasks == 1:
        return job.results.get(0)
    if not job.results:
        return None
    return f"[{','.join(job.results.get(position, 'null') for position in range(job.job.tasks))}]"


def inputs_awaited(state: ClusterState, event: w.InputsAwaited) -> None:
    flow = _flow(state, event.workflow)
    for stage in event.stages:
        flow.wait_for_inputs(stage, event.trouble)
    state.note_due(flow)


def workflow_cancelled(state: ClusterState, event: w.WorkflowCancelled) -> list[Effect]:
    flow = _flow(state, event.workflow)
    without_job = [stage for stage, phase in enumerate(flow.phases) if phase == StagePhase.WAITING]
    for stage in without_job:
        _count_stage(state, flow, stage, -1)
        flow.end(stage, StagePhase.CANCELLED, event.at)
    return _moved(state, flow, without_job)


def workflow_stopped(state: ClusterState, event: w.WorkflowStopped) -> None:
    _flow(state, event.workflow).stopped = event.text


def workflow_retried(state: ClusterState, event: w.WorkflowRetried) -> None:
    flow = _flow(state, event.workflow)
    limits = {"deadline_at": event.deadline_at, "budget": event.budget}
    given = {name: value for name, value in limits.items() if value is not None}
    flow.workflow = structs.replace(flow.workflow, **given) if given else flow.workflow
    flow.begin_again(event.stages)
    note_limits(state, flow)
    for stage in event.stages:
        _count_stage(state, flow, stage, 1)
    state.ended_workflows.pop(event.workflow, None)
    state.note_due(flow)


def workflow_forgotten(state: ClusterState, event: w.WorkflowForgotten) -> None:
    flow = _flow(state, event.workflow)
    _count_waiting(state, flow, -1)
    del state.workflows[event.workflow]
    add_to(state.bytes_of, flow.workflow.user, -flow.size_bytes)
    state.environments.drop(digests_of_stages(flow.workflow))
    state.names.drop_number(flow.number, event.workflow)
    state.limited.pop(event.workflow, None)
    state.ended_workflows.pop(event.workflow, None)
    state.due.pop(event.workflow, None)


def restore_workflows(state: ClusterState, flows: list[WorkflowState]) -> None:
    """The workflows of an image, and what is to be decided about them."""
    for flow in flows:
        flow.count_missing()
        add_workflow(state, flow)
        for stage, phase in enumerate(flow.phases):
            job = state.jobs.get(flow.job_id(stage)) if phase == StagePhase.RELEASED else None
            if job is not None and job.is_over:
                flow.over[stage] = None
        state.note_due(flow)


def _moved(state: ClusterState, flow: WorkflowState, without_job: list[int]) -> list[Effect]:
    """Whoever waits for its end is told, and jobs that start after stages that ended without a job."""
    state.note_due(flow)
    for stage in without_job:
        tell_of_end(state, flow.job_id(stage))
    if not flow.is_over:
        return []
    tell_of_end(state, flow.workflow.id)
    state.ended_workflows[flow.workflow.id] = None
    note_limits(state, flow)
    unbind(state, flow.workflow.id)
    return [Settle(flow.workflow.id, None)]


def _flow(state: ClusterState, id: str) -> WorkflowState:
    flow = state.workflows.get(id)
    if flow is None:
        raise Unfit(f"no workflow {id}")
    return flow


def _stage_of(state: ClusterState, job: Job) -> tuple[WorkflowState, int] | None:
    """The stage that a job is, unless its workflow is gone or has begun that stage again."""
    if job.workflow is None or (flow := state.workflows.get(job.workflow[0])) is None:
        return None
    stage = job.workflow[1]
    return (flow, stage) if flow.job_id(stage) == job.id else None


def _count_waiting(state: ClusterState, flow: WorkflowState, sign: int) -> None:
    """Count the tasks of the stages that have no job yet, or no longer; most workflows have one queue."""
    tasks = Counter[str]()
    for number, phase in enumerate(flow.phases):
        if phase == StagePhase.WAITING:
            job = flow.workflow.stages[number].job
            tasks[job.queue] += job.tasks
    for queue, count in tasks.items():
        state.count_stages((queue, flow.workflow.user), sign * count)


def _count_stage(state: ClusterState, flow: WorkflowState, stage: int, sign: int) -> None:
    job = flow.workflow.stages[stage].job
    state.count_stages((job.queue, flow.workflow.user), sign * job.tasks)
