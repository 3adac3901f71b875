"""Choices about workflows: which are accepted, which stages become jobs, and what the end of a stage means for others.

A stage becomes a job in the turn in which the last stage that it builds on completed. References are resolved then,
and a stage whose references cannot be resolved fails without a try. What builds on a stage that did not complete never
runs: it ends in the same event, each naming the stage right before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from msgspec import structs

from phalanx.core.cluster import events as e
from phalanx.core.cluster import workflow_events as w
from phalanx.core.cluster.apply.workflows import stage_result
from phalanx.core.cluster.decide.approvals import stage_until, workflow_needs
from phalanx.core.cluster.decide.deadlines import cancelled_jobs, why_stopped_again
from phalanx.core.cluster.decide.dependencies import never_after
from phalanx.core.cluster.decide.environments import environments_kept, without_environment
from phalanx.core.cluster.decide.jobs import unwelcome, why_never
from phalanx.core.cluster.decide.limits import too_large, too_many_together
from phalanx.core.cluster.decision import Accepted, Decision, Refused, Replayed, refuse, refuse_because
from phalanx.core.cluster.dependencies import predecessor
from phalanx.core.cluster.environments import digests_of_stages
from phalanx.core.cluster.inputs import Advance, CancelWorkflow, GiveInputs, RetryWorkflow, SubmitWorkflow
from phalanx.core.cluster.stage_dispatch import dispatch_of_stage
from phalanx.core.cluster.stage_inputs import FetchInputs, needs_of
from phalanx.core.cluster.stages import SkippedStage, job_of_stage
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.workflow_events import StageEnd
from phalanx.core.cluster.workflows import WORKFLOW_RESULTS_BYTES_MAX, StagePhase, WorkflowState
from phalanx.core.model.job import After, Job, spec_bytes
from phalanx.core.model.orders import Status
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.references import Unresolved
from phalanx.core.model.workflow import RETRIES_OF_STAGE_MAX, SPEC_VARIABLE, Stage

RELEASED_AT_ONCE = 100  # stages that become jobs in one decision
_ENDED_WITHOUT = {Status.FAILED: "failed", Status.CANCELLED: "was cancelled"}


def submit_workflow(state: ClusterState, given: SubmitWorkflow, now: float) -> Decision:
    """Accept a workflow, or say which of its stages could never run here."""
    flow = given.workflow
    if given.request_id and (known := state.requests.get(flow.user, given.request_id)):
        return Decision([], [], Replayed(tuple(known)))
    jobs = [stage.job for stage in flow.stages]
    no = too_many_together(state, jobs) or too_large(state, flow.user, spec_bytes(flow))
    if no is not None:
        return refuse(no, "too_many")
    exported = digests_of_stages(flow)
    if (refused := without_environment(state, flow.user, exported, given.environments)) is not None:
        return refused
    for stage, answer in refused_stages(state, given):
        named = structs.replace(answer.reason, text=f"stage {stage.name}: {answer.reason.text}")
        return refuse(named, answer.kind)
    if given.never is not None and not given.allow_infeasible:
        return refuse(given.never, "never")
    event = w.WorkflowSubmitted(
        at=now,
        cause=f"user {flow.user}",
        content=flow,
        request_id=given.request_id,
        number=state.next_number(),
        unapproved=workflow_needs(state, flow, given.role),
    )
    kept = environments_kept(state, flow.user, exported, given.environments, now)
    return Decision([*kept, event], [], Accepted(flow.tasks))


def refused_stages(state: ClusterState, given: SubmitWorkflow) -> Iterator[tuple[Stage, Refused]]:
    """The stages whose jobs could not be submitted even now; of those that ask for the same, the first."""
    seen: set[tuple[object, ...]] = set()
    for stage in given.workflow.stages:
        job = stage.job
        key = (job.queue, job.priority, job.after, *((group.request, group.needed) for group in job.groups))
        if key not in seen and (answer := _refused(state, given, job)) is not None:
            yield stage, answer
        seen.add(key)


def _refused(state: ClusterState, given: SubmitWorkflow, job: Job) -> Refused | None:
    """Why the job of a stage could not be submitted even now."""
    if (never := never_after(state, job)) is not None:
        return never
    if given.role and (no_entry := unwelcome(state, job, given.role)) is not None:
        return no_entry
    no = None if given.allow_infeasible else why_never(state, job, is_stage=True)
    return None if no is None else Refused(no, "never")


def advance(state: ClusterState, given: Advance, now: float) -> Decision:
    """Record what has ended; once that is done, let begin what may."""
    flow = state.workflows[given.workflow]
    if flow.over:
        ends = [_judged(state, flow, stage) for stage in flow.over]
        return _with_followers(flow, ends, [], now)
    ends = []
    begun: list[e.Event] = []
    fetches: list[FetchInputs] = []
    for number in islice(flow.ready, RELEASED_AT_ONCE):
        found = _begin(state, flow, number, now, before=len(begun))
        if isinstance(found, FetchInputs):
            fetches.append(found)
        elif isinstance(found, StageEnd):
            ends.append(found)
        else:
            begun.append(found)
    decision = _with_followers(flow, ends, begun, now)
    if fetches:
        waiting = tuple(each.stage for each in fetches)
        decision.events.append(w.InputsAwaited(at=now, workflow=flow.workflow.id, stages=waiting))
        decision.effects += fetches
    return decision


def _begin(
    state: ClusterState,
    flow: WorkflowState,
    number: int,
    now: float,
    fetched: dict[tuple[int, int], str] | None = None,
    before: int = 0,
) -> e.JobSubmitted | StageEnd | FetchInputs:
    """What becomes of a stage that may begin: a job, an end, or first a search for values that are not in the log.

    Each job of one decision has a number of its own; so many were made `before`.
    """
    name = flow.workflow.stages[number].name
    try:
        if fetched is None and (needs := needs_of(flow, number)):
            return FetchInputs(flow.workflow.id, number, flow.job_id(number), needs)
        made = job_of_stage(flow, number, now, fetched or {})
        if isinstance(made, Job):
            spec = made.groups[0].command.env.get(SPEC_VARIABLE, "")
            made = structs.replace(
                made,
                after=_still_awaited(state, made) if made.after else (),
                dispatch=dispatch_of_stage(state, flow, number, made, spec),
            )
    except Unresolved as error:
        return StageEnd(number, name, Status.FAILED, text=str(error))
    if isinstance(made, SkippedStage):
        return StageEnd(number, name, Status.COMPLETED, text=made.text, skipped=True)
    cause = f"workflow {flow.workflow.id}"
    until = stage_until(state, flow, made, now)
    number_of_job = state.next_number() + before
    return e.JobSubmitted(at=now, cause=cause, job=made, number=number_of_job, approve_by=until)


def give_inputs(state: ClusterState, given: GiveInputs, now: float) -> Decision:
    """A stage begins with what was fetched for it, fails because that is gone, or waits on."""
    flow = state.workflows.get(given.workflow)
    if flow is None or given.stage not in flow.awaited or flow.job_id(given.stage) != given.job:
        return refuse_because(
            "NotAwaited", f"stage {given.stage} of {given.workflow} waits for nothing", "stale"
        )
    if given.trouble and not given.is_final:
        waits = w.InputsAwaited(at=now, workflow=given.workflow, stages=(given.stage,), trouble=given.trouble)
        return Decision([waits], [], Accepted())
    if given.trouble:
        name = flow.workflow.stages[given.stage].name
        return _with_followers(
            flow, [StageEnd(given.stage, name, Status.FAILED, text=given.trouble)], [], now
        )
    found = _begin(state, flow, given.stage, now, given.results)
    if isinstance(found, StageEnd):
        return _with_followers(flow, [found], [], now)
    assert isinstance(found, e.JobSubmitted)
    return _with_followers(flow, [], [found], now)


def _still_awaited(state: ClusterState, job: Job) -> tuple[After, ...]:
    """Of the jobs elsewhere that come first, those in memory: one that left it has ended, and how is not known here."""
    gone = [each for each in job.after if predecessor(state, each.job) is None]
    for each in gone:
        if each.when in ("ok", "failed"):
            raise Unresolved(
                f"it was to start after {each.job}, which ended so long ago that its outcome is not in memory"
            )
    return tuple(each for each in job.after if each not in gone)


def _judged(state: ClusterState, flow: WorkflowState, stage: int) -> StageEnd:
    """How a stage ended whose job has."""
    job, name = state.jobs[flow.job_id(stage)], flow.workflow.stages[stage].name
    status = job.overall_status
    if flow.stopped and status == Status.CANCELLED:
        return StageEnd(stage, name, Status.FAILED, text=flow.stopped)
    size = len(stage_result(job) or "")
    if status == Status.COMPLETED and flow.result_bytes + size > WORKFLOW_RESULTS_BYTES_MAX:
        text = (
            f"its result was not kept: those of this workflow are over {WORKFLOW_RESULTS_BYTES_MAX >> 20} MiB"
        )
        return StageEnd(stage, name, Status.FAILED, text=text)
    return StageEnd(stage, name, status)


def _with_followers(flow: WorkflowState, ends: list[StageEnd], begun: list[e.Event], now: float) -> Decision:
    """The events, with all stages that never run because of these ends: each names the one right before it."""
    ended = {end.stage for end in ends}
    for end in ends:  # it grows while it is read
        if end.status == Status.COMPLETED:
            continue
        for dependent in flow.dependents[end.stage]:
            if dependent not in ended and flow.phases[dependent] == StagePhase.WAITING:
                ended.add(dependent)
                ends.append(_follower(flow, dependent, end))
    events: list[e.Event] = list(begun)
    if ends:
        events.append(w.StagesEnded(at=now, cause="its stages", workflow=flow.workflow.id, ends=tuple(ends)))
    return Decision(events, [], Accepted(len(begun)))


def _follower(flow: WorkflowState, stage: int, parent: StageEnd) -> StageEnd:
    text = f"it depends on stage {parent.name}, which {_ENDED_WITHOUT[parent.status]}"
    return StageEnd(stage, flow.workflow.stages[stage].name, parent.status, parent.stage, text)


def cancel_workflow(state: ClusterState, given: CancelWorkflow, now: float) -> Decision:
    """Cancel what has not ended: stages without a job at once, the jobs of the others as any job."""
    flow = state.workflows.get(given.workflow)
    if flow is None:
        return refuse_because("NotFound", f"no workflow {given.workflow}", "not_found")
    if flow.is_over:
        return refuse_because("AlreadyEnded", f"workflow {given.workflow} has already ended")
    jobs = cancelled_jobs(state, flow, given.cause, now, given.by)
    stopping = sum(len(state.jobs[each.job].live) for each in jobs)
    cancelled = w.WorkflowCancelled(at=now, cause=given.cause, workflow=given.workflow, by=given.by)
    return Decision([cancelled, *jobs], [], Accepted(flow.unfinished, stopping))


def retry_workflow(state: ClusterState, given: RetryWorkflow, now: float) -> Decision:
    """Run again what did not complete, or one stage and all that build on it. Finished results are kept."""
    flow = state.workflows.get(given.workflow)
    if flow is None:
        return refuse_because("NotFound", f"no workflow {given.workflow}", "not_found")
    if not flow.is_over:
        text = f"workflow {given.workflow} has not ended: {flow.unfinished} stages are left"
        return refuse_because("NotEnded", text)
    if given.stage is None:
        stages = [
            number
            for number, phase in enumerate(flow.phases)
            if phase in (StagePhase.FAILED, StagePhase.CANCELLED)
        ]
    else:
        stages = sorted(flow.builds_on(given.stage))
    no = _why_not_again(flow, stages) or why_stopped_again(flow, given.deadline_at, given.budget, now)
    if no is not None:
        return refuse(no)
    again = [flow.workflow.stages[number].job for number in stages]
    if (no := too_many_together(state, again)) is not None:
        return refuse(no, "too_many")
    for job in again if given.role else ():
        if (no_entry := unwelcome(state, job, given.role)) is not None:
            return Decision([], [], no_entry)
    event = w.WorkflowRetried(
        at=now,
        cause=given.cause,
        workflow=given.workflow,
        stages=tuple(stages),
        deadline_at=given.deadline_at,
        budget=given.budget,
    )
    return Decision([event], [], Accepted(len(stages)))


def _why_not_again(flow: WorkflowState, stages: list[int]) -> Reason | None:
    """Why these stages cannot run again."""
    if not stages:
        text = "every stage has completed: name the stage to begin with, --from-stage"
        return Reason("NothingToRetry", Tier.NEVER, text)
    names, chosen = [stage.name for stage in flow.workflow.stages], set(stages)
    for stage in stages:
        if flow.retries[stage] >= RETRIES_OF_STAGE_MAX:
            text = f"stage {names[stage]} was retried {RETRIES_OF_STAGE_MAX} times, which is the most"
            return Reason("RetriedTooOften", Tier.NEVER, text)
        missing = [other for other in flow.waits_for(stage) if other not in chosen]
        if missing:
            text = (
                f"stage {names[stage]} builds on {names[missing[0]]}, which did not complete: begin with"
                f" {names[missing[0]]}, or retry all that did not complete"
            )
            return Reason("DependencyNever", Tier.NEVER, text)
    return None
