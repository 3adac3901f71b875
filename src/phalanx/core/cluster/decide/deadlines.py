"""Deadlines and budgets of workflows: one that has reached a limit is stopped.

What its attempts cost is added up as they end (`WorkflowState.spent`); what those that still run have cost by now is
worked out when the time has passed, from the nodes they run on.
"""

from __future__ import annotations

from phalanx.core.cluster import events as e
from phalanx.core.cluster import workflow_events as w
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.workflow_events import StageEnd
from phalanx.core.cluster.workflows import StagePhase, WorkflowState
from phalanx.core.model.cost import held_rate
from phalanx.core.model.orders import Status
from phalanx.core.model.reason import Reason, Tier

STOPPED_AT_ONCE = 500  # events, after which no further workflow is stopped in the same turn


def overrun(state: ClusterState, now: float) -> list[e.Event]:
    """Stop the workflows that have reached a limit by now."""
    events: list[e.Event] = []
    for id in state.limited:
        if len(events) >= STOPPED_AT_ONCE:  # the others have their turn a second later
            break
        flow = state.workflows[id]
        if not flow.stopped and (text := _reached(state, flow, now)):
            waiting = [each for each, phase in enumerate(flow.phases) if phase == StagePhase.WAITING]
            names = flow.workflow.stages
            ends = tuple(StageEnd(each, names[each].name, Status.FAILED, text=text) for each in waiting)
            events.append(w.WorkflowStopped(at=now, cause="its limits", workflow=id, text=text))
            if ends:
                events.append(w.StagesEnded(at=now, cause="its limits", workflow=id, ends=ends))
            events += cancelled_jobs(state, flow, text, now)
    return events


def _reached(state: ClusterState, flow: WorkflowState, now: float) -> str:
    """Which limit has been reached, in words; nothing if none has."""
    limits = flow.workflow
    if limits.deadline_at is not None and now >= limits.deadline_at:
        return "the deadline of the workflow has passed"
    if limits.budget is not None and (spent := cost_so_far(state, flow, now)) >= limits.budget:
        return f"the budget of the workflow is used up: {spent:.4g} of {limits.budget:g}"
    return ""


def cost_so_far(state: ClusterState, flow: WorkflowState, now: float) -> float:
    """What a workflow has cost by now, with the attempts that still run, or are being stopped after its end."""
    spent = flow.spent
    for stage in range(len(flow.phases)) if flow.is_over else flow.released():
        job = state.jobs.get(flow.job_id(stage))
        for attempt in () if job is None else job.live.values():
            if attempt.started_at is not None:
                rate = held_rate(state.nodes[attempt.node].capacity, attempt.grant)
                spent += max(0.0, now - attempt.since) * rate
    return spent


def cancelled_jobs(
    state: ClusterState, flow: WorkflowState, cause: str, now: float, by: str = ""
) -> list[e.TasksCancelled]:
    """Cancel the jobs of the stages that have begun."""
    jobs = (state.jobs.get(flow.job_id(stage)) for stage in flow.released())
    return [
        e.TasksCancelled(at=now, cause=cause, job=job.job.id, by=by)
        for job in jobs
        if job is not None and not job.is_over
    ]


def why_stopped_again(
    flow: WorkflowState, deadline_at: float | None, budget: float | None, now: float
) -> Reason | None:
    """Why stages that run again would be stopped at once, with these limits or else with those it has."""
    until = flow.workflow.deadline_at if deadline_at is None else deadline_at
    most = flow.workflow.budget if budget is None else budget
    if until is not None and until <= now:
        text = f"workflow {flow.workflow.id} has passed its deadline: give another with --deadline"
        return Reason("DeadlinePassed", Tier.NEVER, text)
    if most is not None and flow.spent >= most:
        spent = f"{flow.spent:.4g} of its budget of {most:g}"
        text = f"workflow {flow.workflow.id} has cost {spent}: give more with --budget"
        return Reason("BudgetUsedUp", Tier.NEVER, text)
    return None
