"""What is declared, carried out: job files applied whole, quotas of queues, the layers of the network; and plans.

Several jobs are accepted together or not at all. Each is tried before any is submitted, and all are in one envelope;
if the cluster changed in between and one is refused after all, the others are taken back before any answer is sent.
A plan is made within one step of the loop, on the live columns, and leaves them as they were.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

from msgspec import structs

from phalanx.api.schema.apply import (
    AppliedJob,
    ApplyReply,
    ApplyRequest,
    PlanReply,
    PlanRequest,
    TopologyView,
    check_extent,
)
from phalanx.api.schema.cluster import TopologyReply, TopologySpec, to_topology
from phalanx.api.schema.dependencies import read_after
from phalanx.api.schema.jobspec import JobSpec, to_job
from phalanx.api.schema.queues import QueueView, QuotaSpec, to_quota
from phalanx.api.schema.submission import check_request_id
from phalanx.api.schema.workflows import WorkflowSpec
from phalanx.api.server.limits import TimeSlices
from phalanx.clock import Clock
from phalanx.coordinator.dependencies import find_before
from phalanx.coordinator.environment_keys import is_of_another_key
from phalanx.coordinator.environments import SealedJobs
from phalanx.coordinator.lookup import first_made, new_ids
from phalanx.coordinator.naming import label, number_in
from phalanx.coordinator.refusals import accepted, job_refusal, refusal, reused, unwelcome
from phalanx.coordinator.requests import Requests
from phalanx.coordinator.views_cluster import queue_view
from phalanx.coordinator.waiting_jobs import waiting_by_queue
from phalanx.coordinator.workflows import WorkflowCommands
from phalanx.core.cluster.decide import jobs
from phalanx.core.cluster.decide.applied_objects import applied_before
from phalanx.core.cluster.decide.dependencies import never_after
from phalanx.core.cluster.decide.limits import queue_full, too_many_together
from phalanx.core.cluster.decide.workflows import refused_stages
from phalanx.core.cluster.decision import Accepted, Answer, Refused, Replayed, Unchanged
from phalanx.core.cluster.inputs import Cancel, Input, SetQuota, SetTopology, Submit, SubmitWorkflow
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.transitions import decide
from phalanx.core.explain.change import ADMIN, Asker
from phalanx.core.explain.estimate import estimate
from phalanx.core.explain.shortage import whole_never
from phalanx.core.model.job import Group, Job
from phalanx.core.model.queues import Quota
from phalanx.core.model.reason import Reason
from phalanx.core.model.topology import Topology
from phalanx.core.model.workflow import Workflow
from phalanx.errors import BadRequest, PhalanxError
from phalanx.manifests.layers import fit_layers
from phalanx.preview.online import Question, check_question, plan_online
from phalanx.preview.topology import topology_view
from phalanx.preview.workflows import AskedWorkflow
from phalanx.store.protocol import Store

IN_A_THREAD = 1000  # rows from which sweeps are read beside the loop


class Declarations:
    """What is written down whole before it is handed in, and what would come of it."""

    def __init__(
        self,
        loop: Requests,
        store: Store,
        clock: Clock,
        retries: int,
        slices: TimeSlices,
        flows: WorkflowCommands,
        sealing: SealedJobs,
    ) -> None:
        self._sealing = sealing
        self._loop = loop
        self._flows = flows
        self._store = store
        self._clock = clock
        self._default_retries = retries
        self._slices = slices

    async def apply(self, request: ApplyRequest, user: str, role: str = "user") -> ApplyReply:
        check_extent(request)
        if request.request_id is not None:
            check_request_id(request.request_id)
        declared = Declared(request)
        topology = declared.topology or self._loop.state.table.topology
        specs, warnings = _with_layers(request.specs, topology)
        jobs = [await self._with_whole_ids(job) for job in await self._jobs_of(specs, user)]
        version = None
        if request.amends is not None:
            jobs, version = [structs.replace(jobs[0], id=request.amends.job)], request.amends.version
        if warnings and request.strict:
            raise BadRequest("; ".join(warnings), reason="StrictWarning")
        closed = [self._sealing.sealed(job, request.exported, with_env=False) for job in jobs]
        jobs = [job for job, _ in closed]
        submits = [
            Submit(
                job,
                request.request_id or "",
                request.allow_infeasible,
                role=role,
                amends=version,
                environments=environments,
                hold=spec.hold,
            )
            for (job, environments), spec in zip(closed, specs, strict=True)
        ]
        if jobs and self._loop.state.requests.get(user, request.request_id or ""):
            answers = await self._loop.ask([*submits])
            return await self._replayed(request.request_id or "", jobs, answers)
        self._refuse_infeasible(submits, declared, request.allow_infeasible, version)
        inputs = declared.inputs(user)
        answers = await self._loop.ask([*inputs, *submits])
        if jobs and isinstance(answers[len(inputs)], Replayed):  # the same request was on its way already
            return await self._replayed(request.request_id or "", jobs, answers[len(inputs) :])
        await self._all_or_none(jobs, answers[len(inputs) :])
        return ApplyReply(
            [
                _told(self._loop.state, job, each)
                for job, each in zip(jobs, answers[len(inputs) :], strict=True)
            ],
            topology_changed=declared.topology is not None and accepted(answers, "topology").count > 0,
            quotas=list(declared.quotas),
            warnings=warnings,
        )

    async def set_quota(self, name: str, quota: QuotaSpec | None, user: str) -> QueueView:
        options = SetQuota(name, None if quota is None else to_quota(quota), user)
        accepted(await self._loop.ask([options]), name)
        waiting = await waiting_by_queue(self._loop.state, self._slices)
        return queue_view(self._loop.state, name, waiting[name])

    async def set_topology(self, topology: TopologySpec, user: str) -> TopologyReply:
        options = SetTopology(to_topology(topology), user)
        done = accepted(await self._loop.ask([options]), "topology")
        return TopologyReply(options.topology.names(), done.count > 0)

    async def plan(
        self, request: PlanRequest, user: str, role: str = "user", asker: Asker = ADMIN
    ) -> PlanReply:
        check_question(request)
        request = await self._with_jobs_before(request, user)
        made = await self._workflows_of(request.workflows, user)
        await self._slices.turn()
        engine, now = self._loop.engine, self._clock.now()
        flows = [self._asked(flow, role, now) for flow in made]

        def check(job: Job) -> None:
            """What would be refused at once is refused here, too; a gang with more members is not refused."""
            known = applied_before(engine.state, job)
            if isinstance(known, Unchanged):
                there.append(
                    f"{job.object_name or job.name} is job {label(engine.state, known.job)} already: "
                    "it would not be started again"
                )
            if isinstance(known, Refused) and known.reason.code != "Amended":
                raise refusal(known, job.object_name or job.name)
            if (no := jobs.unwelcome(engine.state, job, role)) is not None:
                raise unwelcome(no)
            if (no := never_after(engine.state, job)) is not None:
                raise unwelcome(no)
            added[job.queue] += job.tasks if known is None else 0
            if (many := self._too_many(job, added)) is not None:
                raise unwelcome(Refused(many, "too_many"))

        question = Question(request, user, self._default_retries, flows, role)
        there: list[str] = []
        added = Counter[str]()  # tasks of the jobs before, by queue
        seen = engine.state.snapshot(now, engine.memory)
        reply = plan_online(engine.state, question, engine.policy, seen, check=check, asker=asker)
        return structs.replace(reply, warnings=[*reply.warnings, *there])

    def _too_many(self, job: Job, added: Counter[str]) -> Reason | None:
        """Why so many tasks may not wait with the others, those of the same question among them."""
        state = self._loop.engine.state
        too_long = queue_full(state, job.user, added.total())
        return too_long or state.queues.too_many(job.queue_user, added[job.queue])

    async def _workflows_of(self, specs: list[WorkflowSpec], user: str) -> list[Workflow]:
        """The workflows of a plan; a refusal names which of them."""
        flows: list[Workflow] = []
        for number, spec in enumerate(specs):
            try:
                flows.append(await self._flows.made(spec, user))
            except PhalanxError as error:
                error.detail = f"workflows[{number}]: {error.detail}"
                raise
        return flows

    def _asked(self, flow: Workflow, role: str, now: float) -> AskedWorkflow:
        """A workflow, with the reasons why it could never run here, if there are any; any other refusal is an error."""
        engine, refused = self._loop.engine, list[tuple[str, Reason]]()
        expected = estimate(engine.state, flow)
        without_limits = structs.replace(flow, deadline_at=None, budget=None)
        given = engine.foreseen(SubmitWorkflow(without_limits, role=role), now)
        for stage, answer in refused_stages(engine.state, given):
            if answer.kind not in ("never", "target"):
                raise refusal(answer, f"{flow.name or 'workflow'}:{stage.name}")
            refused.append((stage.name, answer.reason))
        if (never := expected.never(flow, now) or given.never) is not None:
            refused.append(("", never))
        return AskedWorkflow(flow, expected, tuple(refused))

    async def topology(self) -> TopologyView:
        await self._slices.turn()
        return topology_view(self._loop.state)

    async def _with_whole_ids(self, job: Job) -> Job:
        after = await find_before(self._loop, self._store, job.after, job.user)
        return structs.replace(job, after=after) if job.after else job

    async def _with_jobs_before(self, request: PlanRequest, user: str) -> PlanRequest:
        """The same with the whole ids of the jobs that come first."""

        async def whole(texts: list[str]) -> list[str]:
            found = await find_before(self._loop, self._store, read_after(texts), user)
            return [str(each) for each in found]

        specs = [
            structs.replace(spec, after=await whole(spec.after)) if spec.after else spec
            for spec in request.specs
        ]
        submit = request.submit
        if submit is not None and submit.after:
            submit = structs.replace(submit, after=await whole(submit.after))
        return structs.replace(request, specs=specs, submit=submit)

    async def _jobs_of(self, specs: list[JobSpec], user: str) -> list[Job]:
        """The jobs, as one batch; a refusal names the spec. Many rows are read beside the loop."""
        read = partial(self._read_jobs, specs, user)
        is_long = sum(len(spec.each) for spec in specs) > IN_A_THREAD
        return await asyncio.to_thread(read) if is_long else read()

    def _read_jobs(self, specs: list[JobSpec], user: str) -> list[Job]:
        now, ids = self._clock.now(), new_ids(self._clock, len(specs))
        jobs: list[Job] = []
        for number, (spec, id) in enumerate(zip(specs, ids, strict=True)):
            try:
                job = to_job(spec, id=id, now=now, user=user, default_retries=self._default_retries)
            except PhalanxError as error:
                named = f" ({spec.name[:80]})" if spec.name else ""
                raise type(error)(
                    f"specs[{number}]{named}: {error.detail}", reason=error.reason, hint=error.hint
                ) from None
            jobs.append(structs.replace(job, batch=ids[0]))
        return jobs

    def _refuse_infeasible(
        self, submits: list[Submit], declared: Declared, allowed: bool, version: int | None
    ) -> None:
        """Try every job as if all that is declared with it held already."""
        state, now = self._loop.state, self._clock.now()
        jobs = [each.job for each in submits]
        known = [applied_before(state, job, amends=version is not None) for job in jobs]
        new = [job for job, each in zip(jobs, known, strict=True) if not isinstance(each, Unchanged)]
        for declaration in declared.inputs(""):
            if isinstance(answer := decide(state, declaration, now).answer, Refused):
                raise refusal(answer, "quotas")
        then = state.assuming(declared.topology, declared.quotas)
        for number, each in enumerate(submits):
            no = None if allowed else whole_never(then.table, each.job)
            answer = decide(then, structs.replace(each, request_id="", never=no), now).answer
            if isinstance(answer, Refused):
                raise job_refusal(then, number, each.job, answer)
        if version is None and new and (no := too_many_together(then, new)) is not None:
            raise unwelcome(Refused(no, "too_many"))

    async def _all_or_none(self, jobs: list[Job], answers: list[Answer | None]) -> None:
        refused = [(n, each) for n, each in enumerate(answers) if isinstance(each, Refused)]
        if not refused:
            return
        kept = [job for job, each in zip(jobs, answers, strict=True) if isinstance(each, Accepted)]
        await self._loop.ask(
            [Cancel(job.id, cause="another job of its application was refused") for job in kept]
        )
        number, answer = refused[0]
        raise job_refusal(self._loop.state, number, jobs[number], answer)

    async def _replayed(self, request_id: str, jobs: list[Job], answers: list[Answer | None]) -> ApplyReply:
        """The answer of the first time, if this is the same request."""
        state, first = self._loop.state, answers[0]
        if not isinstance(first, Replayed):  # it was forgotten at this very moment: the jobs are new ones
            return ApplyReply([_told(state, job, each) for job, each in zip(jobs, answers, strict=True)])
        await first_made(self._loop, self._store, request_id, first.jobs)
        ids = list(first.jobs)
        told: list[AppliedJob] = []
        for left, job in zip(range(len(jobs), 0, -1), jobs, strict=True):
            again = applied_before(state, job)
            if isinstance(again, Unchanged) and again.job not in first.jobs and left > len(ids):
                told.append(_told(state, job, again))
                continue
            known = state.jobs.get(ids[0]) if ids else None
            if not ids or (known is not None and not is_same(known.job, job)):
                raise reused(request_id, first.jobs[0])
            told.append(AppliedJob(id := ids.pop(0), job.name, job.tasks, number=number_in(state, id)))
        if ids:
            raise reused(request_id, first.jobs[0])
        return ApplyReply(told, replayed=True)


class Declared:
    """The layers and quotas of one application, read and checked."""

    def __init__(self, request: ApplyRequest) -> None:
        self.topology = None if request.topology is None else to_topology(request.topology, "topology.")
        self.quotas: dict[str, Quota] = {
            queue: to_quota(spec, f"quotas[{queue!r}].") for queue, spec in request.quotas.items()
        }

    def inputs(self, user: str) -> list[Input]:
        """As inputs, the topology first."""
        layers: list[Input] = [] if self.topology is None else [SetTopology(self.topology, user)]
        return [*layers, *(SetQuota(queue, quota, user) for queue, quota in self.quotas.items())]


def _with_layers(specs: list[JobSpec], topology: Topology) -> tuple[list[JobSpec], list[str]]:
    """The specs with the layers that the network has, and what was read otherwise than written."""
    fitted: list[JobSpec] = []
    warnings: list[str] = []
    for number, spec in enumerate(specs):
        fixed, cautions, _ = fit_layers(spec, topology, f"specs[{number}]")
        fitted.append(fixed)
        warnings += map(str, cautions)
    return fitted, warnings


def _told(state: ClusterState, job: Job, answer: Answer | None) -> AppliedJob:
    """What was accepted, or the job that is of the same objects already, which may have more tasks."""
    if not isinstance(answer, Unchanged):
        return AppliedJob(job.id, job.name, job.tasks, number=number_in(state, job.id))
    known = state.jobs.get(answer.job)
    there = job if known is None else known.job
    return AppliedJob(
        answer.job, there.name, there.tasks, unchanged=True, number=number_in(state, answer.job)
    )


def is_same(first: Job, again: Job) -> bool:
    """Whether two jobs ask for the same; when and under which ids they came does not matter."""
    # Of the jobs before it, one that has ended may be named in the first alone.
    known: dict[str, object] = {
        "id": first.id,
        "batch": first.batch,
        "submitted_at": first.submitted_at,
        "draft": first.draft,
        "after": first.after,
        "dispatch": first.dispatch,  # it follows from the queue
        "begin_at": first.begin_at,  # `+2h` counts from when it came, and an instant may have passed since
    }
    if first.revision:  # these were changed since, or may have been
        changed = ("priority", "time_limit_s", "queue", "revision")
        known |= {name: getattr(first, name) for name in changed}
    again = _with_key_of(first, again)
    if first.vps is not None and again.vps is not None and first.vps.ssh == again.vps.ssh == "generate":
        known["vps"] = first.vps  # its keys were made for it
    return structs.replace(again, **known) == first


def _with_key_of(first: Job, again: Job) -> Job:
    """The same, where both were sealed with different keys: then nobody knows whether their environments differ."""
    if len(first.groups) != len(again.groups):
        return again

    def matched(group: Group, known: str) -> Group:
        own = group.command.environment
        if not (own and known and is_of_another_key(own, known)):
            return group
        return structs.replace(group, command=structs.replace(group.command, environment=known))

    pairs = zip(again.groups, first.groups, strict=True)
    return structs.replace(again, groups=tuple(matched(a, b.command.environment) for a, b in pairs))


def is_same_elsewhere(first: Job, again: Job) -> bool:
    """As `is_same`; but targets may differ, because the first of several may have been refused."""
    if first.groups[0].request.target is None or len(again.groups) != 1:
        return is_same(first, again)
    group = structs.replace(again.groups[0], request=first.groups[0].request)
    return is_same(first, structs.replace(again, groups=(group,)))
