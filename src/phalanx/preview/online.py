"""Plans for jobs that were not submitted: a coordinator reads them as if they had been.

They get ids that no real job has; the answer uses the names of the question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct, structs

from phalanx.api.schema.apply import MUST_WAIT, NEVER, NOW, Called, PlanReply, PlanRequest
from phalanx.api.schema.fields import check_count
from phalanx.api.schema.jobspec import JobSpec, to_job
from phalanx.api.schema.submission import SubmitRequest, to_jobs
from phalanx.core.cluster.state import ClusterState
from phalanx.core.explain.change import ADMIN, Asker
from phalanx.core.explain.trial import QUESTION_MAX
from phalanx.core.model.job import Job, JobId, ulid
from phalanx.core.model.plan import Policy, Snapshot
from phalanx.core.model.workflow import STAGES_MAX
from phalanx.errors import BadRequest, PhalanxError
from phalanx.manifests.layers import fit_layers, fit_request
from phalanx.preview.names import Names, called
from phalanx.preview.plan import preview
from phalanx.preview.submission import Submitter
from phalanx.preview.workflows import AskedWorkflow

SPECS_MAX = 100
WORKFLOWS_MAX = 10


class Question(Struct, frozen=True):
    """What is asked, and by whom. `flows` are the workflows of the request, as read."""

    request: PlanRequest
    user: str
    retries: int  # of tasks that do not say themselves
    flows: Sequence[AskedWorkflow] = ()
    role: str = ""


def plan_online(
    state: ClusterState,
    question: Question,
    policy: Policy,
    snapshot: Snapshot,
    *,
    check: Callable[[Job], None] = lambda _: None,
    asker: Asker = ADMIN,
) -> PlanReply:
    """What would happen to these jobs, with warnings about what was read otherwise than written.

    `check` raises for a job that would not be accepted at all.
    """
    asked, flows = _Asked(state, question, snapshot.now), question.flows
    for number, job in enumerate(asked.jobs):
        try:
            check(job)
        except PhalanxError as error:
            if number < len(question.request.specs):
                error.detail = f"specs[{number}]: {error.detail}"
            raise
    jobs, now = list(asked.jobs), snapshot.now
    for flow in flows:
        for job, name in flow.first_jobs(state, now):
            asked.names.call(job, name)
            jobs.append(job)
    reply = preview(
        state,
        jobs,
        policy,
        snapshot,
        names=asked.names,
        by=Submitter(asker, question.role, frozenset(asked.held)),
        most=QUESTION_MAX,
    )
    refused = [no for flow in flows for no in flow.reasons()]
    submit = question.request.submit
    is_queued = reply.exit != NOW or bool(reply.evictions)
    if submit is not None and submit.no_queue and is_queued and reply.exit != NEVER:
        reply = structs.replace(reply, exit=MUST_WAIT)
        asked.warnings.append("it would be refused: no_queue asks for a start at once")
    return structs.replace(
        reply,
        reasons=[*reply.reasons, *refused],
        exit=NEVER if refused else reply.exit,
        warnings=asked.warnings,
        workflows=[flow.estimate(now) for flow in flows],
    )


class _Asked:
    """The jobs of one question, and their names in the answer."""

    def __init__(self, state: ClusterState, question: Question, now: float) -> None:
        request = question.request
        self.names = Names()
        self.warnings: list[str] = []
        self.held: set[JobId] = set()
        self._topology = state.table.topology
        self._now, self._user, self._retries = now, question.user, question.retries
        self._count = 0
        self.jobs = [self._of_spec(number, spec, request.names) for number, spec in enumerate(request.specs)]
        if request.submit is not None:
            self.jobs += self._of_submit(request.submit)

    def _of_spec(self, number: int, spec: JobSpec, names: list[Called]) -> Job:
        spec, cautions, _ = fit_layers(spec, self._topology, f"specs[{number}]")
        self.warnings += map(str, cautions)
        try:
            job = to_job(
                spec, id=self._new_id(), now=self._now, user=self._user, default_retries=self._retries
            )
        except PhalanxError as error:
            named = f" ({spec.name[:80]})" if spec.name else ""
            error.detail = f"specs[{number}]{named}: {error.detail}"
            raise
        name = names[number] if names else Called(spec.name or f"specs[{number}]")
        if name.tasks and len(name.tasks) != job.tasks:
            raise BadRequest(f"names[{number}].tasks: {len(name.tasks)} names for {job.tasks} tasks")
        self.names.call(job, name.job, name.tasks)
        self._note_hold(job, hold=spec.hold)
        return job

    def _of_submit(self, submit: SubmitRequest) -> Iterator[Job]:
        submit, warnings = fit_request(submit, self._topology)
        jobs, failed = to_jobs(
            submit, new_id=self._new_id, now=self._now, user=self._user, default_retries=self._retries
        )
        if failed:
            raise BadRequest("; ".join(each.detail for each in failed), reason=failed[0].reason)
        self.warnings += warnings
        for target, job in jobs:
            if submit.no_queue and job.tasks > 1:
                raise BadRequest(f"no_queue: it is for one task, and this array has {job.tasks}")
            self.names.call(job, called(submit, target))
            self._note_hold(job, hold=submit.hold)
            yield job

    def _note_hold(self, job: Job, *, hold: bool) -> None:
        if hold:
            self.held.add(job.id)

    def _new_id(self) -> JobId:
        """Ids with a timestamp of zero, which no real job has."""
        self._count += 1
        return ulid(0, self._count)


def check_question(request: PlanRequest) -> None:
    """Refuse a question about nothing, or about too much at once."""
    if not request.specs and request.submit is None and not request.workflows:
        raise BadRequest("specs: there is nothing to plan: give specs, workflows, or a submission in submit")
    check_count("specs", len(request.specs), SPECS_MAX)
    check_count("workflows", len(request.workflows), WORKFLOWS_MAX)
    check_count("stages of workflows", sum(len(flow.stages) for flow in request.workflows), STAGES_MAX)
    if request.names and len(request.names) != len(request.specs):
        raise BadRequest(f"names: {len(request.names)} are given for {len(request.specs)} specs")
