"""`phalanx why`: what is found about one job or task, a stage or a workflow, in the words of REST."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from phalanx.api.schema.jobs import Fix, JobReason, WhyReply
from phalanx.coordinator.naming import in_numbers
from phalanx.coordinator.views import task_number
from phalanx.coordinator.waiting_jobs import waiting_tasks
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.workflows import WorkflowState
from phalanx.core.explain.change import ADMIN, Asker
from phalanx.core.explain.explain import explain, place_in_queue, why_waiting
from phalanx.core.explain.stages import NAMED_MAX, explain_stage, explain_workflow
from phalanx.core.explain.trial import QUESTION_MAX
from phalanx.core.model.orders import Status
from phalanx.core.model.plan import PlanMemory, Policy
from phalanx.core.model.reason import Reason, Tier
from phalanx.preview.reply import domain_slots, node_reasons, reason_view


def why_reply(
    state: ClusterState,
    job: JobState,
    position: int | None,
    now: float,
    policy: Policy | None = None,
    memory: PlanMemory | None = None,
    asker: Asker = ADMIN,
) -> WhyReply:
    """One dominant reason, all others, what the nodes say, and the nearest fix."""
    found = explain(
        state, job, position, policy or Policy(), state.snapshot(now, memory), asker, QUESTION_MAX
    )
    status, waiting = found.status, found.status is Status.PENDING
    return WhyReply(
        id=job.job.id if position is None and job.gang is not None else job.job.task_id(found.position),
        status=status.word,  # type: ignore[arg-type]  # the names are those of the table
        dominant=reason_view(found.dominant),
        others=[reason_view(no) for no in found.reasons[1:]],
        nodes=node_reasons(found.nodes),
        fix=None if found.fix is None else Fix(found.fix.text, found.fix.fields, found.fix.command),
        position=place_in_queue(state, job, found.position, now, memory) if waiting else None,
        waiting=state.counts[Status.PENDING],
        at=now,
        epoch=state.epoch,
        needed=found.needed,
        domains=domain_slots(found.domains),
        object=job.job.object_name if position is None else job.job.object_at(found.position),
        number=task_number(job, None if position is None and job.gang is not None else found.position),
    )


def reasons_of(
    state: ClusterState, jobs: Iterable[JobState], now: float, policy: Policy, memory: PlanMemory | None
) -> list[JobReason]:
    """The first reason of each of these jobs that waits, whole or in part; with numbers for the ids in it."""
    waiting = [job for job in jobs if waiting_tasks(job)]
    said = why_waiting(state, waiting, policy, state.snapshot(now, memory), QUESTION_MAX)
    told = [structs.replace(no, text=in_numbers(state, no.text)) for no in said]
    return [JobReason(job.job.id, reason_view(no)) for job, no in zip(waiting, told, strict=True)]


def stage_reply(state: ClusterState, flow: WorkflowState, number: int, now: float, asker: Asker) -> WhyReply:
    """Of a stage that has no job: what it waits for, or why it never got one."""
    reasons = explain_stage(state, flow, number, with_values=_sees_inside(flow, asker))
    id = f"{flow.workflow.id}:{flow.workflow.stages[number].name}"
    return _plain(state, id, flow.phase(number).status, reasons, now)


def workflow_reply(
    state: ClusterState,
    flow: WorkflowState,
    now: float,
    policy: Policy,
    memory: PlanMemory | None,
    asker: Asker,
) -> WhyReply:
    """Of a workflow as a whole. If nothing of it runs, the first stage that waits for a place says why."""
    reasons, pending = explain_workflow(state, flow)
    first: WhyReply | None = None
    for number in pending[:NAMED_MAX]:
        name = flow.workflow.stages[number].name
        reply = why_reply(state, state.jobs[flow.job_id(number)], None, now, policy, memory, asker)
        first = first or reply
        said = reply.dominant
        no = Reason(said.code, Tier[said.tier.upper()], f"Stage {name}: {said.text}", said.numbers)
        reasons.append(no)
    if first is not None and reasons[0].code != "StagesRunning":
        reasons.insert(0, reasons.pop(len(reasons) - min(len(pending), NAMED_MAX)))
    whole = _plain(state, flow.workflow.id, flow.overall_status, reasons, now)
    return whole if first is None else structs.replace(whole, nodes=first.nodes, fix=first.fix)


def _plain(state: ClusterState, id: str, status: Status, reasons: list[Reason], now: float) -> WhyReply:
    """A reply about what has no place in the queue."""
    return WhyReply(
        id=id,
        status=status.word,  # type: ignore[arg-type]  # the names are those of the table
        dominant=reason_view(reasons[0]),
        others=[reason_view(no) for no in reasons[1:]],
        nodes=[],
        fix=None,
        position=None,
        waiting=state.counts[Status.PENDING],
        at=now,
        epoch=state.epoch,
        number=in_numbers(state, id),
    )


def _sees_inside(flow: WorkflowState, asker: Asker) -> bool:
    return asker.controls_all or (bool(asker.user) and asker.user == flow.workflow.user)
