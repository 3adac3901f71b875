"""Workflows in a plan: the stages that would begin at once are planned as jobs, the whole is estimate by earlier runs.

Where later stages would go is not known before they begin; whether they could run at all is asked as it is at submit.
"""

from __future__ import annotations

from itertools import islice

from msgspec import Struct, structs

from phalanx.api.schema.apply import PlanReason, WorkflowEstimate
from phalanx.core.cluster.stage_dispatch import dispatch_of_stage
from phalanx.core.cluster.stages import job_of_stage
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.workflows import WorkflowState
from phalanx.core.explain.estimate import Estimate
from phalanx.core.model.job import Job
from phalanx.core.model.reason import Reason
from phalanx.core.model.workflow import SPEC_VARIABLE, Workflow

FIRST_MAX = 100  # stages of one workflow that are planned
REFUSED_MAX = 20  # stages that are named


class AskedWorkflow(Struct, frozen=True):
    """One workflow of a question, and why it would be refused at submit: by stage, or as a whole."""

    workflow: Workflow
    expected: Estimate
    refused: tuple[tuple[str, Reason], ...] = ()

    @property
    def name(self) -> str:
        return self.workflow.name or "workflow"

    def first_jobs(self, state: ClusterState, now: float) -> list[tuple[Job, str]]:
        """The jobs of the stages that would begin at once, and what the answer calls them."""
        if self.refused:
            return []
        flow, found = WorkflowState(self.workflow), list[tuple[Job, str]]()
        for number in islice(flow.ready, FIRST_MAX):
            job = job_of_stage(flow, number, now)
            assert isinstance(job, Job), "a stage without inputs has no condition"
            spec = job.groups[0].command.env.get(SPEC_VARIABLE, "")
            job = structs.replace(job, dispatch=dispatch_of_stage(state, flow, number, job, spec))
            found.append((job, self._called(self.workflow.stages[number].name)))
        return found

    def _called(self, stage: str) -> str:
        return f"{self.name}:{stage}" if stage else self.name

    def reasons(self) -> list[PlanReason]:
        return [
            PlanReason(self._called(stage), no.code, "never", no.text, no.numbers, dominant=True)
            for stage, no in self.refused[:REFUSED_MAX]
        ]

    def estimate(self, now: float) -> WorkflowEstimate:
        found = self.expected
        return WorkflowEstimate(
            name=self.name,
            stages=len(self.workflow.stages),
            begins=len(WorkflowState(self.workflow).ready),
            least_s=round(found.least_s, 3),
            expected_s=round(found.expected_s, 3),
            least_cost=round(found.least_cost, 6),
            expected_cost=round(found.expected_cost, 6),
            unknown=list(found.unknown),
            warnings=[] if self.refused else found.warnings(self.workflow, now),
        )
