"""The names of jobs and tasks in answers.

A coordinator's jobs are known by their numbers. In files they have their own names: a pod is `default/pod-1`, a job
file's task `train.3`. A plan uses the names of the question, so the ids in the core's sentences are replaced.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from phalanx.api.schema.submission import SubmitRequest
from phalanx.core.cluster.jobs import JobState
from phalanx.core.model.job import Job, JobId

_ID = re.compile(r"\b([0-9a-hjkmnp-tv-z]{26})(?:\.([0-9]{1,9}))?\b")


class Names:
    """Names by job id; a job without one is called by its name in Kubernetes, its number, or its id."""

    def __init__(self) -> None:
        self._jobs: dict[JobId, tuple[Job, str]] = {}
        self._tasks: dict[JobId, Sequence[str]] = {}
        self.live: Mapping[JobId, JobState] = {}  # jobs of the cluster, which may have names from Kubernetes

    def call(self, job: Job, name: str, tasks: Sequence[str] = ()) -> None:
        """Set the name of a job, and those of its tasks by position if they have any."""
        self._jobs[job.id] = job, name
        if tasks:
            self._tasks[job.id] = tasks

    def job(self, job: Job) -> str:
        return self._jobs[job.id][1] if job.id in self._jobs else job.object_name or self._label(job.id)

    def _label(self, id: JobId) -> str:
        return str(self.live[id].arrival or id) if id in self.live else id

    def task(self, job: Job, position: int) -> str:
        if job.id in self._tasks:
            return self._tasks[job.id][position]
        if job.id not in self._jobs:
            return job.object_at(position) or self._label(job.id) + job.task_id(position)[len(job.id) :]
        return self.job(job) + job.task_id(position)[len(job.id) :]

    def plain(self, text: str) -> str:
        """A sentence of the core with names instead of ids."""
        return _ID.sub(self._named, text)

    def plain_values(self, numbers: dict[str, Any]) -> dict[str, Any]:
        """The numbers of a reason, with names instead of ids in text values."""
        return {key: self._plain_value(value) for key, value in numbers.items()}

    def _plain_value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.plain(value)
        return [self._plain_value(each) for each in value] if isinstance(value, list) else value

    def _named(self, found: re.Match[str]) -> str:
        id, index = found.groups()
        if id in self._jobs:
            job = self._jobs[id][0]
        elif id in self.live:
            job = self.live[id].job
        else:
            return found.group()
        if index is None:
            return self.task(job, 0) if job.tasks == 1 else self.job(job)
        position = job.position(int(index))
        return found.group() if position is None else self.task(job, position)


def called(submit: SubmitRequest, target: str | None) -> str:
    """The name of a job that has none: its program, and its target if it has one."""
    words = submit.shell.split() if submit.shell else submit.command
    name = submit.name or words[0].rpartition("/")[2]
    return f"{name}@{target}" if target else name
