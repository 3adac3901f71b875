"""A plan without a server: real events make a state of what files describe, and the scheduler plans on it.

Jobs that the files ask about are planned behind all that waits in the cluster already. If the files ask about none,
the waiting jobs of the cluster are the question.
"""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.api.schema.apply import PlanReply
from phalanx.api.schema.jobspec import to_job
from phalanx.api.schema.submission import SubmitRequest, to_jobs
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.job import Job, JobId, ulid
from phalanx.core.model.plan import Policy
from phalanx.errors import BadRequest
from phalanx.manifests.cluster import ClusterSpec
from phalanx.manifests.found import Incomplete, ParsedJob
from phalanx.manifests.layers import fit_request
from phalanx.manifests.read import Manifests
from phalanx.preview.described_state import DescribedState
from phalanx.preview.incomplete import with_incomplete
from phalanx.preview.names import Names, called
from phalanx.preview.plan import preview
from phalanx.preview.submission import Submitter
from phalanx.preview.taints import Tolerance

RETRIES = 3


class Offline:
    """The cluster of some files, and the jobs they ask about."""

    def __init__(self, made: Manifests, now: float, submit: SubmitRequest | None = None) -> None:
        spec = made.cluster or ClusterSpec([], [])
        self.now = now if spec.now is None else spec.now
        self.names = Names()
        self._count = 0
        tolerated = [each.tolerations for each in (*spec.jobs, *made.found)]
        self._tolerance = Tolerance(spec.nodes, tolerated if submit is None else [*tolerated, ()])
        self._described = DescribedState(spec, self._tolerance, self.names, self.now)
        self._everybody = submit is None and not _asks(made)
        self._incomplete: list[Incomplete] = [
            each for each in made.incomplete if each.asked or self._everybody
        ]
        self._new: list[Job] = []
        self._known: list[JobId] = []
        self._held: set[JobId] = set()
        entered = [(self._take_in(found), found) for found in (*spec.jobs, *made.found)]
        for job, found in entered:  # only now all jobs are there that make way for others
            if found.nominated:
                self._described.promise(job, found)
        if submit is not None:
            self._new += self._submitted(submit)

    @property
    def state(self) -> ClusterState:
        return self._described.state

    @property
    def warnings(self) -> list[str]:
        """What does not fit in the files."""
        return self._described.warnings

    def plan(self, policy: Policy | None = None) -> PlanReply:
        """What the scheduler would do with the jobs in question."""
        seen = self.state.snapshot(self.now)
        reply = preview(
            self.state,
            self._new,
            policy or Policy(),
            seen,
            known=self._known,
            names=self.names,
            by=Submitter(held=frozenset(self._held)),
        )
        return with_incomplete(self._tolerance.plain(reply), self._incomplete)

    def _take_in(self, found: ParsedJob) -> Job:
        job = self._job(found)
        asked = found.asked or self._everybody
        if asked and not (found.placed or found.nominated or found.done):
            self._new.append(job)
            return job
        self._described.enter(job, found)
        if asked and len(found.placed) + len(found.done) < job.tasks:
            self._known.append(job.id)
        return job

    def _job(self, found: ParsedJob) -> Job:
        job = to_job(found.spec, id=self._new_id(), now=self.now, user="", default_retries=RETRIES)
        job = self._tolerance.aimed(job, found.tolerations)
        self.names.call(job, found.id, found.names)
        if found.spec.hold:
            self._held.add(job.id)
        return job

    def _submitted(self, submit: SubmitRequest) -> Iterator[Job]:
        submit, warnings = fit_request(submit, self.state.table.topology)
        jobs, failed = to_jobs(submit, new_id=self._new_id, now=self.now, user="", default_retries=RETRIES)
        if failed:
            raise BadRequest("; ".join(each.detail for each in failed), reason=failed[0].reason)
        self.warnings.extend(warnings)
        for target, job in jobs:
            self.names.call(job, called(submit, target))
            yield self._tolerance.aimed(job, ())

    def _new_id(self) -> JobId:
        self._count += 1
        return ulid(0, self._count)


def _asks(made: Manifests) -> bool:
    """Whether the files ask about any job, rather than only describe a cluster."""
    there = () if made.cluster is None else made.cluster.jobs
    return bool(made.found) or any(job.asked for job in there) or any(gang.asked for gang in made.incomplete)
