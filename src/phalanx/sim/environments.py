"""Environments under virtual time: jobs that are submitted with one, and whether runners get the right one.

Which jobs have an environment is drawn apart from all else, in some of the runs. Some share one, some have their own.
The checker keeps what users sent and asks every brief whether it says the same. It shares no code with the table of
environments. Only after a repair of a damaged log may one be missing, and then its tasks must not start.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from msgspec import structs

from phalanx.coordinator.environment_keys import TaskEnvironment
from phalanx.coordinator.link_auth import SharedToken
from phalanx.core.cluster import events as e
from phalanx.core.cluster.environment_events import EnvironmentKept
from phalanx.core.cluster.inputs import Input, Submit
from phalanx.core.model.job import Job, JobId
from phalanx.core.model.orders import Brief
from phalanx.sim.violation import Violation

RUNS_SHARE, JOBS_SHARE, SHARED_SHARE = 0.4, 0.5, 0.6
SHARED = 3


class EnvironmentChecker:
    """What users sent, by digest; which job was accepted with which."""

    def __init__(self, count: Callable[[str], None]) -> None:
        self._count = count
        self.sent: dict[str, dict[str, str]] = {}
        self._of: dict[JobId, tuple[str, ...]] = {}
        self._was_repaired = False

    def note(self, event: e.Event) -> None:
        """An event became durable."""
        if isinstance(event, e.JobSubmitted | e.JobAmended):
            self._of[event.job.id] = tuple(group.command.environment for group in event.job.groups)
        elif isinstance(event, EnvironmentKept):
            self._count("environment kept")
        elif isinstance(event, e.LogRepaired):
            self._was_repaired = True

    def told(self, brief: Brief) -> None:
        """A runner is told what the attempts of a group share."""
        digest = self._of[brief.job][brief.group] if brief.job in self._of else ""
        if not digest:
            return
        if brief.trouble and self._was_repaired:
            return
        if brief.trouble or brief.exported != self.sent[digest]:
            said = brief.trouble or brief.exported
            raise Violation(
                "environments", f"{brief.job} came with {self.sent[digest]}, and a runner is told {said}"
            )
        self._count("environment told")


class EnvironmentsOfJobs:
    """Which jobs of one run have environments."""

    def __init__(self, dice: Random, checker: EnvironmentChecker) -> None:
        self._dice = dice
        self._are_there = dice.random() < RUNS_SHARE
        self._keys = SharedToken().environments
        self._checker = checker
        self._sealed: dict[str, bytes] = {}

    def given(self, jobs: list[Job]) -> list[Job]:
        """The same jobs, some of which have one."""
        return [self._with_one(job) for job in jobs] if self._are_there else jobs

    def submits(self, jobs: list[Job], request_id: str, no_queue: bool) -> list[Input]:
        """The submission of jobs, with the environments that they name."""
        return [Submit(job, request_id, no_queue=no_queue, environments=self._of(job)) for job in jobs]

    def _of(self, job: Job) -> dict[str, bytes]:
        names = {group.command.environment for group in job.groups} - {""}
        return {name: self._sealed[name] for name in sorted(names)}

    def _with_one(self, job: Job) -> Job:
        if self._dice.random() >= JOBS_SHARE:
            return job
        is_shared = self._dice.random() < SHARED_SHARE
        content = {"PATH": "/usr/bin", "OF": f"{self._dice.randrange(SHARED)}" if is_shared else job.id}
        digest, sealed = self._keys.seal(job.user, TaskEnvironment(content))
        self._sealed[digest], self._checker.sent[digest] = sealed, content
        groups = tuple(
            structs.replace(group, command=structs.replace(group.command, environment=digest))
            for group in job.groups
        )
        return structs.replace(job, groups=groups)
