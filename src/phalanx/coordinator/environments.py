"""The environments of jobs: sealed when they are submitted, opened for a runner and for users who may see them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import cache

from msgspec import structs

from phalanx.api.schema.exports import accepted, inside_image
from phalanx.api.schema.fields import check_env
from phalanx.api.schema.jobs import EnvironmentView, JobView
from phalanx.api.schema.workflows import WorkflowSpec
from phalanx.coordinator import lookup
from phalanx.coordinator.environment_keys import CannotOpen, EnvironmentKeys, TaskEnvironment
from phalanx.coordinator.requests import Requests
from phalanx.core.cluster.environments import Environments, digests_of
from phalanx.core.cluster.history_image import environments_of
from phalanx.core.explain.change import ADMIN, Asker
from phalanx.core.model.job import Group, Job
from phalanx.core.model.orders import Brief
from phalanx.core.model.workflow import Workflow
from phalanx.errors import Conflict
from phalanx.logger import logger
from phalanx.store.protocol import Store

log = logger("coordinator")


class SealedJobs:
    """Seals the environments of submissions. Whatever they are the first to name comes with them."""

    def __init__(self, keys: EnvironmentKeys, never: Sequence[str] = ()) -> None:
        self._keys = keys
        self._never = never  # what the operator does not let users export

    def of_targets(
        self, jobs: list[tuple[str | None, Job]], exported: dict[str, str]
    ) -> tuple[list[tuple[str | None, Job]], dict[str, bytes]]:
        """The jobs of one submission, one for each target, with their environments sealed."""
        closed = [(target, *self.sealed(job, exported)) for target, job in jobs]
        kept = {digest: sealed for _, _, each in closed for digest, sealed in each.items()}
        return [(target, job) for target, job, _ in closed], kept

    def sealed(
        self, job: Job, exported: dict[str, str], *, with_env: bool = True
    ) -> tuple[Job, dict[str, bytes]]:
        """The job with digests in place of its variables, and what they stand for.

        Without `with_env` those that the job itself names stay as they are written: a job file is kept whole anyway.
        Which of its groups have an image no client looked at then.
        """
        kept: dict[str, bytes] = {}
        taken = accepted(exported, self._never)

        def closed(group: Group) -> Group:
            command = group.command
            env = command.env if with_env else {}
            outer = inside_image(taken) if command.image and not with_env else taken
            if not (outer or env):
                return group
            digest, sealed = self._keys.seal(job.user, TaskEnvironment(outer, env))
            kept[digest] = sealed
            left = {} if with_env else command.env
            return structs.replace(group, command=structs.replace(command, env=left, environment=digest))

        groups = tuple(map(closed, job.groups))
        return (structs.replace(job, groups=groups), kept) if kept else (job, kept)

    def of_stages(
        self, made: Workflow, spec: WorkflowSpec, exported: dict[str, str]
    ) -> tuple[Workflow, dict[str, bytes]]:
        """A workflow whose stages name the environment it came with, sealed: all but the programs of task types,
        which the operator declared. What the stages name themselves stays as their file has it.
        """
        taken = accepted(exported, self._never)
        if not taken:
            return made, {}
        kept: dict[str, bytes] = {}

        @cache  # two at the most, for thousands of stages
        def digest_of(in_image: bool) -> str:
            outer = inside_image(taken) if in_image else taken
            if not outer:
                return ""
            digest, sealed = self._keys.seal(made.user, TaskEnvironment(outer, {}))
            kept[digest] = sealed
            return digest

        def closed(group: Group) -> Group:
            digest = digest_of(bool(group.command.image))
            return structs.replace(group, command=structs.replace(group.command, environment=digest))

        stages = []
        for stage, written in zip(made.stages, spec.stages, strict=True):
            job = stage.job
            if any(group.command or group.shell for group in written.job.groups):
                job = structs.replace(job, groups=tuple(map(closed, job.groups)))
            stages.append(structs.replace(stage, job=job))
        return structs.replace(made, stages=tuple(stages)), kept

    def resealed(self, job: Job, kept: dict[str, bytes]) -> tuple[Job, dict[str, bytes]]:
        """A job that was made from another, with its own variables sealed too, beside those that are already.

        Raises BadRequest if they are too many together, and Conflict if nobody can open what they are to be beside.
        """
        kept = dict(kept)

        def closed(group: Group) -> Group:
            command = group.command
            if not command.env or (command.environment and command.environment not in kept):
                return group  # nothing to seal, or the core refuses it: its environment is gone
            before = (
                self._before(job, kept[command.environment]) if command.environment else TaskEnvironment()
            )
            content = TaskEnvironment(before.exported, {**before.env, **command.env})
            check_env(content.env, "set: env")
            digest, sealed = self._keys.seal(job.user, content)
            kept[digest] = sealed
            return structs.replace(group, command=structs.replace(command, env={}, environment=digest))

        return structs.replace(job, groups=tuple(map(closed, job.groups))), kept

    def _before(self, job: Job, sealed: bytes) -> TaskEnvironment:
        try:
            return self._keys.open(job.user, sealed)
        except CannotOpen as error:
            raise _closed("it was submitted with", error) from None


def _closed(of: str, error: CannotOpen) -> Conflict:
    return Conflict(f"the environment {of} cannot be opened: {error}", reason="EnvironmentClosed")


def opened_brief(told: Brief, keys: EnvironmentKeys, kept: Environments) -> Brief:
    """A brief with the environment that its job was submitted with. If that cannot be opened, nothing may start."""
    command = told.command
    if not command.environment:
        return told
    try:
        if (known := kept.get(command.environment)) is None:
            raise CannotOpen("its record in the store was damaged")
        found = keys.open(told.user, known.sealed)
    except CannotOpen as error:
        log.error("environment of a job cannot be opened", job=told.job, why=str(error))
        return structs.replace(told, trouble=f"its environment cannot be opened: {error}")
    env = {**found.env, **command.env}
    return structs.replace(
        told, command=structs.replace(command, env=env, environment=""), exported=found.exported
    )


class EnvironmentReads:
    """The environments of jobs in memory and in the history, opened."""

    def __init__(
        self,
        loop: Requests,
        store: Store,
        keys: EnvironmentKeys,
        view: Callable[[str, Asker], Awaitable[JobView]],
    ) -> None:
        self._loop = loop
        self._store = store
        self._keys = keys
        self._view = view

    async def job(self, id: str, asker: Asker = ADMIN) -> JobView:
        """One job, with the variables that were given to it and the names of those that were exported."""
        view = await self._view(id, asker)
        known = self._loop.state.jobs.get(view.id)
        if known is not None and not any(digests_of(known.job)):
            return view
        try:
            found = await self.environment(view.id)
        except Conflict:  # it cannot be opened any more, and all else of the job can be shown
            return view
        return structs.replace(view, env=found.env, exported=sorted(found.exported))

    async def environment(self, id: str) -> EnvironmentView:
        """All variables that the first group of a job was submitted with; raises Conflict if they cannot be opened."""
        job = (await lookup.find_job(self._loop, self._store, lookup.job_part(id))).job
        command = job.groups[0].command
        if not command.environment:
            return EnvironmentView({}, command.env)
        sealed = (await self.sealed_of(job)).get(command.environment)
        if sealed is None:
            raise Conflict(
                f"the environment of {job.id} is not kept any more: its record went before that of the job",
                reason="EnvironmentGone",
            )
        try:
            opened = self._keys.open(job.user, sealed)
        except CannotOpen as error:
            raise _closed(f"of {job.id}", error) from None
        return EnvironmentView(opened.exported, {**opened.env, **command.env})

    async def sealed_of(self, job: Job) -> dict[str, bytes]:
        """The environments that a job names, as they are kept: what a job made from it is submitted with."""
        found: dict[str, bytes] = {}
        for digest in digests_of(job):
            if (kept := self._loop.state.environments.get(digest)) is not None:
                found[digest] = kept.sealed
        if len(found) == len(list(digests_of(job))) or (body := await self._store.history(job.id)) is None:
            return found
        record = environments_of(body)
        found |= record.sealed
        for digest, other in record.elsewhere.items():
            if digest not in found and (body := await self._store.history(other)) is not None:
                there = environments_of(body).sealed
                found |= {digest: there[digest]} if digest in there else {}
        return found
