"""Which jobs ran failed tasks of which job again, so that the newest outcome of each task can be found.

It is kept beside the jobs, because both may have left memory for the history. Only the newest are kept: of a job that
is no longer among them, the jobs that repeat it still name it, but it does not name them.
"""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.core.model.job import Job, JobId

REPEATED_MAX = 10_000


class RepeatedJobs(dict[JobId, list[JobId]]):
    """The jobs that repeat tasks of a job, oldest first, by the job whose tasks they are."""

    def note(self, job: Job) -> None:
        """A job was submitted, perhaps one that repeats tasks of another."""
        if job.repeats and job.id not in self.get(job.repeats, ()):
            known = self.pop(job.repeats, [])  # at the end: it was asked for last
            self[job.repeats] = [*known, job.id]
            if len(self) > REPEATED_MAX:
                del self[next(iter(self))]

    def restore(self, kept: Iterable[tuple[JobId, list[JobId]]]) -> None:
        self.update(kept)
