"""Requests of users for jobs and workflows, each repeated with its request id until it is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phalanx.core.cluster.decision import Accepted, Answer, Replayed
from phalanx.core.cluster.inputs import Input, SubmitWorkflow
from phalanx.core.model.job import Job
from phalanx.core.model.workflow import Workflow

if TYPE_CHECKING:  # users make the requests, and these tell them what came of it
    from phalanx.sim.users import Users


class Submission:
    """One request for jobs, repeated until it is answered."""

    def __init__(self, users: Users, request_id: str, jobs: list[Job], no_queue: bool) -> None:
        self._users = users
        self._request_id = request_id
        self._no_queue = no_queue
        self._tries: list[list[Job]] = []
        self._jobs = jobs
        self._is_over = False

    def send(self) -> None:
        if self._is_over:
            return
        jobs = self._jobs if not self._tries else self._users.renewed(self._jobs)
        self._tries.append(jobs)
        inputs: list[Input] = self._users.environments.submits(jobs, self._request_id, self._no_queue)
        self._users.ask(inputs, lambda answers: self._answered(jobs, answers))
        self._users.try_again(self.send)

    def _answered(self, jobs: list[Job], answers: list[Answer | None]) -> None:
        if not answers:
            return  # the coordinator could not write: ask again soon
        self._end()
        if isinstance(answers[0], Replayed):
            made = {job.id: job for jobs in self._tries for job in jobs}
            self._users.acknowledged(self._request_id, [made[id] for id in answers[0].jobs])
            return
        accepted = [job for job, answer in zip(jobs, answers, strict=True) if isinstance(answer, Accepted)]
        if accepted:
            self._users.acknowledged(self._request_id, accepted)

    def _end(self) -> None:
        if not self._is_over:
            self._users.unanswered -= 1
        self._is_over = True


class WorkflowSubmission:
    """One request for a workflow, repeated until it is answered; every try has an id of its own."""

    def __init__(self, users: Users, request_id: str, flow: Workflow) -> None:
        self._users = users
        self._request_id = request_id
        self._tries: dict[str, Workflow] = {}
        self._flow = flow
        self._is_over = False

    def send(self) -> None:
        if self._is_over:
            return
        flow = self._flow if not self._tries else self._users.renewed_workflow(self._flow)
        self._tries[flow.id] = flow
        self._users.ask(
            [SubmitWorkflow(flow, self._request_id)], lambda answers: self._answered(flow, answers)
        )
        self._users.try_again(self.send)

    def _answered(self, flow: Workflow, answers: list[Answer | None]) -> None:
        if not answers:
            return  # the coordinator could not write: ask again soon
        if not self._is_over:
            self._users.unanswered -= 1
        self._is_over = True
        if isinstance(answers[0], Replayed):
            self._users.acknowledged_workflow(self._request_id, self._tries[answers[0].jobs[0]])
        elif isinstance(answers[0], Accepted):
            self._users.acknowledged_workflow(self._request_id, flow)
