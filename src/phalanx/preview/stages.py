"""Workflows in a plan: what would begin at once is planned as jobs, and every stage is checked as at submit.

Where later stages go is not known before they begin. Whether they could ever run here is, and is told stage by stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import structs

from phalanx.api.schema.apply import NEVER, Called, PlanReason, PlanReply, PlanRequest
from phalanx.core.cluster.decide.workflows import refused_stage
from phalanx.core.cluster.inputs import SubmitWorkflow
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.workflow import Workflow
from phalanx.manifests.containers import NOTHING_RUNS
from phalanx.preview.online import SPECS_MAX


def with_first_stages(request: PlanRequest, flows: Sequence[Workflow]) -> PlanRequest:
    """The request with the stages among its specs that wait for no other, as many as one plan may have."""
    names = request.names or [
        Called(spec.name or f"specs[{number}]") for number, spec in enumerate(request.specs)
    ]
    specs, names = list(request.specs), list(names)
    for flow, made in zip(request.workflows, flows, strict=True):
        for stage, known in zip(flow.stages, made.stages, strict=True):
            if known.after or len(specs) >= SPECS_MAX:
                continue
            groups = [
                group if group.command or group.shell else structs.replace(group, command=list(NOTHING_RUNS))
                for group in stage.job.groups
            ]
            specs.append(structs.replace(stage.job, groups=groups))
            names.append(Called(stage_name(made, stage.name)))
    return structs.replace(request, specs=specs, names=names) if request.workflows else request


def with_stages(
    reply: PlanReply, state: ClusterState, flows: Sequence[Workflow], priority_max: int
) -> PlanReply:
    """The plan with a reason for every stage that would not be accepted and is not in it anyway."""
    told = {each.job for each in reply.reasons}
    found = [
        reason for flow in flows for reason in _refused(state, flow, priority_max) if reason.job not in told
    ]
    if not found:
        return reply
    return structs.replace(reply, reasons=[*reply.reasons, *found], exit=NEVER)


def stage_name(flow: Workflow, stage: str) -> str:
    """What the answer calls a stage."""
    return f"{flow.name or 'workflow'}:{stage}"


def _refused(state: ClusterState, flow: Workflow, priority_max: int) -> Iterator[PlanReason]:
    given = SubmitWorkflow(flow, priority_max=priority_max)
    for stage in flow.stages:
        if (answer := refused_stage(state, given, stage.job)) is not None:
            no = answer.reason
            yield PlanReason(
                job=stage_name(flow, stage.name),
                code=no.code,
                tier="never",
                text=no.text,
                numbers=no.numbers,
                dominant=True,
                tasks=stage.job.tasks,
            )
