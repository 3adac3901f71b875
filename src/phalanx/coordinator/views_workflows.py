"""What users see of workflows and their stages, as the words of REST."""

from __future__ import annotations

from collections import Counter
from typing import cast

from phalanx.api.schema.jobs import StatusWord
from phalanx.api.schema.workflows import StageView, StageWord, WorkflowView
from phalanx.api.server.limits import TimeSlices
from phalanx.coordinator.views import raw_json
from phalanx.core.cluster.decide.deadlines import cost_so_far
from phalanx.core.cluster.stage_inputs import needs_in_words, needs_of
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.workflows import StagePhase, WorkflowState
from phalanx.core.model.references import Unresolved

_NAMED = 5  # stages that a sentence names


async def workflow_view(
    state: ClusterState, flow: WorkflowState, now: float, slices: TimeSlices
) -> WorkflowView:
    """One workflow with its stages, made in pieces: what it looks at may change in between."""
    view = _view(state, flow, now)
    piece = await slices.turn()
    for number in range(len(flow.phases)):
        if piece.is_over:
            piece = await slices.turn()
        view.stages.append(_stage_view(state, flow, number, stage_word(state, flow, number)))
    view.counts = dict(Counter(stage.status for stage in view.stages))
    return view


def workflow_row(state: ClusterState, flow: WorkflowState, now: float) -> WorkflowView:
    """One workflow without its stages, as in lists."""
    view = _view(state, flow, now)
    view.counts = dict(Counter(stage_word(state, flow, number) for number in range(len(flow.phases))))
    return view


def _view(state: ClusterState, flow: WorkflowState, now: float) -> WorkflowView:
    return WorkflowView(
        id=flow.workflow.id,
        name=flow.workflow.name,
        user=flow.workflow.user,
        status=cast(StatusWord, flow.overall_status.word),
        submitted_at=flow.workflow.submitted_at,
        counts={},
        ended_at=flow.ended_at,
        deadline_at=flow.workflow.deadline_at,
        budget=flow.workflow.budget,
        cost=round(cost_so_far(state, flow, now), 6),
        reason=flow.stopped,
        number=flow.number,
    )


def stage_word(state: ClusterState, flow: WorkflowState, number: int) -> StageWord:
    """How far a stage has come, in one word: that of its job once there is one."""
    phase = flow.phase(number)
    if phase == StagePhase.WAITING:
        return "Waiting"
    if phase == StagePhase.SKIPPED:
        return "Skipped"
    job = state.jobs.get(flow.job_id(number)) if phase == StagePhase.RELEASED else None
    return cast(StageWord, (phase.status if job is None else job.overall_status).word)


def _stage_view(state: ClusterState, flow: WorkflowState, number: int, word: StageWord) -> StageView:
    stage, names = flow.workflow.stages[number], flow.workflow.stages
    job = state.jobs.get(flow.job_id(number))
    started, ended = flow.stage_times[2 * number] or None, flow.stage_times[2 * number + 1] or None
    if job is not None:
        started, ended = job.first_started_at, job.ended_at
    row = job.nodes[0] if job is not None and job.nodes else flow.stage_nodes[number]
    parent = flow.parents.get(number)
    missing = [names[each].name for each in flow.waits_for(number)] if word == "Waiting" else []
    return StageView(
        name=stage.name,
        status=word,
        job_id=flow.job_id(number),
        after=[names[each].name for each in stage.after],
        waits_for=missing,
        task_type=stage.task_type,
        node=state.known_names[row - 1] if row and row <= len(state.known_names) else None,
        attempts=max(job.attempts) if job is not None else 0,
        retries=flow.retries[number],
        started_at=started,
        ended_at=ended,
        parent=None if parent is None else names[parent].name,
        reason=_reason(flow, number, missing, word, "" if job is None else job.details.get(0, ("", ""))[0]),
        result=raw_json(flow.results.get(number)),
        number=0 if job is None else job.arrival,
        reused=flow.reused.get(number, 0),
    )


def _reason(flow: WorkflowState, number: int, missing: list[str], word: StageWord, message: str) -> str:
    """Why it is as it is, where that needs a word."""
    if flow.phase(number) == StagePhase.WAITING and not missing:
        return awaited_text(flow, number)
    if missing:
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        return f"waits for {', '.join(missing[:_NAMED])}{more}"
    if (
        word == "Pending" and not message
    ):  # the whole reason is a plan's work, which a list of stages is not worth
        return f"waits for a place: `phalanx why {flow.job_id(number)}` says why"
    return flow.notes.get(number) or message


def awaited_text(flow: WorkflowState, number: int) -> str:
    """What is fetched for a stage that could begin otherwise, and what went wrong with it so far."""
    try:
        needs = needs_of(flow, number)
    except Unresolved as error:
        return str(error)
    text = needs_in_words(flow, needs) if needs else "begins in a moment"
    trouble = flow.awaited.get(number)
    return f"{text}: {trouble}" if trouble else text
