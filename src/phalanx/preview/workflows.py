"""Workflows in a plan: the stages that would begin at once are planned as jobs, the whole is estimate by earlier runs.

Where later stages would go is not known before they begin; whether they could run at all is asked as it is at submit.
"""

from __future__ import annotations

from msgspec import Struct, structs

from phalanx.api.schema.apply import PlanReason, WorkflowEstimate
from phalanx.core.cluster.stage_dispatch import dispatch_of_stage
from phalanx.core.cluster.stages import job_of_stage
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.workflows import WorkflowState
from phalanx.core.explain.estimate import estimate
from phalanx.core.model.job import Job
from phalanx.core.model.reason import Reason
from phalanx.core.model.workflow import SPEC_VARIABLE, Workflow


class AskedWorkflow(Struct, frozen=True):
    """One workflow of a question, and why it would be refused at submit, if so."""

    workflow: Workflow
    never: Reason | None = None

    @property
    def name(self) -> str:
        return self.workflow.name or "workflow"

    def first_jobs(self, state: ClusterState, now: float) -> list[tuple[Job, str]]:
        """The jobs of the stages that would begin at once, and what the answer calls them."""
        if self.never is not None:
            return []
        flow, found = WorkflowState(self.workflow), list[tuple[Job, str]]()
        for number in flow.ready:
            job = job_of_stage(flow, number, now)
            assert isinstance(job, Job), "a stage without inputs has no condition"
            spec = job.groups[0].command.env.get(SPEC_VARIABLE, "")
            job = structs.replace(job, dispatch=dispatch_of_stage(state, flow, number, job, spec))
            found.append((job, f"{self.name}:{self.workflow.stages[number].name}"))
        return found

    def reasons(self) -> list[PlanReason]:
        no = self.never
        if no is None:
            return []
        return [PlanReason(self.name, no.code, no.tier.word, no.text, no.numbers, dominant=True)]

    def estimate(self, state: ClusterState, now: float) -> WorkflowEstimate:
        found = estimate(state, self.workflow)
        return WorkflowEstimate(
            name=self.name,
            stages=len(self.workflow.stages),
            begins=len(WorkflowState(self.workflow).ready),
            least_s=round(found.least_s, 3),
            expected_s=round(found.expected_s, 3),
            least_cost=round(found.least_cost, 6),
            expected_cost=round(found.expected_cost, 6),
            unknown=list(found.unknown),
            warnings=found.warnings(self.workflow, now) if self.never is None else [],
        )
