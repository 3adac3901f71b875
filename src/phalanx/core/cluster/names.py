"""By what people name jobs and workflows in memory: their numbers, their names, and what Kubernetes calls them.

Numbers are of the whole cluster. Names are each user's own, and several of a user's jobs may have the same one. The
job of a stage has a number and no name here: it is named by its workflow and its stage. What is in the history is found
by the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from phalanx.core.cluster.jobs import JobState
from phalanx.core.model.job import Job, JobId

NAMESAKES_MAX = 1000  # of a user's jobs with the same name in Kubernetes, so many are looked at, the newest


class JobNames:
    """Indexes over the jobs in memory."""

    def __init__(self) -> None:
        self.numbers: dict[int, JobId] = {}  # of jobs and workflows
        self.jobs: dict[str, dict[str, dict[JobId, None]]] = {}  # by user, then by name
        # By what Kubernetes calls them or their tasks, then by user.
        self.objects: dict[str, dict[str, dict[JobId, None]]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobNames) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def add(self, job: JobState) -> None:
        spec = job.job
        self.numbers[job.arrival] = spec.id
        if spec.workflow is None:
            self.jobs.setdefault(spec.user, {}).setdefault(spec.name, {})[spec.id] = None
        for name in _objects(spec):
            self.objects.setdefault(name, {}).setdefault(spec.user, {})[spec.id] = None

    def remove(self, job: JobState) -> None:
        spec = job.job
        self.drop_number(job.arrival, spec.id)
        if spec.workflow is None:
            _drop(self.jobs, spec.user, spec.name, spec.id)
        for name in _objects(spec):
            _drop(self.objects, name, spec.user, spec.id)

    def drop_number(self, number: int, id: JobId) -> None:
        if self.numbers.get(number) == id:
            del self.numbers[number]

    def of_user(self, user: str, name: str) -> Iterator[JobId]:
        """The user's jobs of this name."""
        return iter(self.jobs.get(user, {}).get(name, {}))

    def all_of_user(self, user: str) -> Iterator[JobId]:
        return (id for ids in self.jobs.get(user, {}).values() for id in ids)

    def users_of(self, name: str) -> Iterator[str]:
        """Who has a job of this name."""
        return (user for user, names in self.jobs.items() if name in names)

    def called(self, jobs: dict[JobId, JobState], name: str, user: str) -> tuple[JobState, int | None] | None:
        """The job, and the position of its task, that Kubernetes calls so; rather not over, whole, and the newest."""
        own = self.objects.get(name, {}).get(user, {})
        found = [jobs[id] for id in islice(reversed(own), NAMESAKES_MAX)]
        if not found:
            return None
        job = max(found, key=lambda each: (not each.is_over, name in each.job.whole_objects, each.job.id))
        return job, None if name in job.job.whole_objects else job.job.object_position(name)


def _drop(index: dict[str, dict[str, dict[JobId, None]]], first: str, second: str, id: JobId) -> None:
    """Take one out, and what is empty then."""
    inner = index[first]
    del inner[second][id]
    if not inner[second]:
        del inner[second]
    if not inner:
        del index[first]


def _objects(job: Job) -> set[str]:
    """Every name by which Kubernetes knows a job or one of its tasks; of most jobs there is none."""
    return {name for group in job.groups for name in group.objects} | job.whole_objects
