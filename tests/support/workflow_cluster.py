"""A cluster that runs workflows from their files, with the test as its only runner."""

from __future__ import annotations

from itertools import count

from phalanx.api.schema.workflows import TaskProgram, to_workflow
from phalanx.core.cluster.decision import Answer
from phalanx.core.cluster.inputs import CancelWorkflow, RetryWorkflow, SubmitWorkflow
from phalanx.core.cluster.workflow_events import StageEnd, StagesEnded
from phalanx.core.cluster.workflows import WorkflowState
from phalanx.core.model.dispatch import MERGED_TYPES
from phalanx.core.model.job import Command, JobId
from phalanx.core.model.orders import Ended, Exit, Started, Status, Why
from phalanx.core.model.workflow import Workflow, workflow_id
from phalanx.manifests.read import read
from tests.support.builders import Cluster

_numbers = count(1)


def a_workflow(text: str, user: str = "ada") -> Workflow:
    """The workflow that a file describes; every task type runs /bin/true."""
    [found] = read([("flow.yaml", text)]).workflows
    return to_workflow(
        found.spec,
        id=workflow_id(1, next(_numbers) << 24),
        now=100.0,
        user=user,
        default_retries=2,
        command_of=lambda task_type: TaskProgram(["/bin/true"], task_type in MERGED_TYPES),
    )


def a_graph(**after: str) -> str:
    """A file with a stage for each name, after the stages that are named, with commas between them."""
    nodes = "\n".join(
        f"    - {{name: {name}, dependsOn: [{others}], spec: {{taskType: echo, max_attempts: 1}}}}"
        for name, others in after.items()
    )
    return f"apiVersion: flowmesh/v1\nspec:\n  graph:\n    nodes:\n{nodes}\n"


class WorkflowCluster(Cluster):
    """One workflow at a time, on one node with many cores."""

    def __init__(self, text: str, cores: int = 64) -> None:
        super().__init__()
        self.add_node("n1", cores=cores)
        self.workflow = a_workflow(text)
        self.answer: Answer | None = self.give(SubmitWorkflow(self.workflow))[0]

    @property
    def flow(self) -> WorkflowState:
        return self.state.workflows[self.workflow.id]

    def job_of(self, stage: str) -> JobId:
        return self.flow.job_id(self.flow.numbers[stage])

    def statuses(self) -> dict[str, str]:
        """How far each stage is: of one that has begun, its job's status."""
        found = {}
        for name, number in self.flow.numbers.items():
            job = self.state.jobs.get(self.flow.job_id(number))
            phase = self.flow.phase(number)
            is_open = phase.name == "RELEASED" and job is not None
            found[name] = job.overall_status.word if is_open and job is not None else phase.name.capitalize()
        return found

    def begun(self) -> set[str]:
        """The stages that have a job."""
        return {name for name in self.flow.numbers if self.job_of(name) in self.state.jobs}

    def command(self, stage: str) -> Command:
        return self.state.jobs[self.job_of(stage)].job.groups[0].command

    def finish(self, stage: str, result: str = "", code: int = 0) -> None:
        """The stage's task runs and ends so, in its newest attempt."""
        key = (self.job_of(stage), 0, self.state.jobs[self.job_of(stage)].attempts[0])
        self.tell("n1", Started(key, self.now))
        why = Why.EXITED if code else Why.NONE
        self.tell("n1", Ended(key, Exit(why, code, self.now, self.now, result=result)))

    def cancel(self) -> Answer | None:
        return self.give(CancelWorkflow(self.workflow.id))[0]

    def retry(self, stage: str | None = None) -> Answer | None:
        number = None if stage is None else self.flow.numbers[stage]
        return self.give(RetryWorkflow(self.workflow.id, number))[0]

    def ends(self) -> dict[str, StageEnd]:
        """How each stage ended, by the events."""
        events = [event for turn in self.turns for event in turn.events if isinstance(event, StagesEnded)]
        return {end.name: end for event in events for end in event.ends}

    def outcome(self) -> Status:
        """Of the workflow as a whole."""
        return self.flow.overall_status
