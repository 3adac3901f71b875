"""The environments that jobs were submitted with: sealed bytes that cannot be read here, each kept once.

A job names its environment by a digest (`Command.environment`). What it stands for came with the submission, sealed by
the coordinator's shell, which opens it again where the order for a runner is built. An environment is kept in memory as
long as a job in memory names it, or a workflow with a stage that does, since that stage may begin later, or again. The
history has it in the record of a job that named it: in every hundredth at the least, and the others name that record,
so that thousands of jobs with one environment are few bytes each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from phalanx.core.model.job import Job, JobId
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.workflow import Workflow

USER_BYTES_MAX = 64 << 20  # sealed, of all different environments of one user
RECORDS_PER_COPY = (
    100  # of the history: after so many that only name the one with the environment, it is kept again
)


class KeptEnvironment(Struct):
    """One environment. `jobs` counts the jobs and the workflows in memory that name it."""

    digest: str
    user: str
    sealed: bytes
    jobs: int = 0
    record: JobId = ""  # the newest record of the history that has it
    named: int = 0  # records since then that name that one


class EnvironmentImage(Struct, array_like=True):
    digest: str
    user: str
    sealed: bytes
    record: JobId
    named: int


class HistoryEnvironments(Struct, frozen=True, array_like=True):
    """What the record of a job has: its environments, and for others the record that has them."""

    sealed: dict[str, bytes] = {}
    elsewhere: dict[str, JobId] = {}


def digests_of(job: Job) -> Iterator[str]:
    """The environments that a job names, each once."""
    groups = job.groups
    if len(groups) == 1:
        if groups[0].command.environment:
            yield groups[0].command.environment
        return
    yield from dict.fromkeys(each.command.environment for each in groups if each.command.environment)


def digests_of_stages(workflow: Workflow) -> tuple[str, ...]:
    """The environments that the stages of a workflow name, each once."""
    return tuple(dict.fromkeys(digest for stage in workflow.stages for digest in digests_of(stage.job)))


class Environments:
    """All environments in memory."""

    def __init__(self) -> None:
        self._kept: dict[str, KeptEnvironment] = {}
        self._bytes_of: dict[str, int] = {}  # by user

    def get(self, digest: str) -> KeptEnvironment | None:
        return self._kept.get(digest)

    def __iter__(self) -> Iterator[KeptEnvironment]:
        return iter(self._kept.values())

    def __len__(self) -> int:
        return len(self._kept)

    def why_not(self, user: str, named: Iterable[str], given: dict[str, bytes]) -> Reason | None:
        """Why a submission that names these cannot be kept with what came with it: one that nobody has, or too much."""
        added = 0
        for digest in named:
            if digest in self._kept:
                continue
            if digest not in given:
                text = "the environment that it was submitted with is not kept any more: submit it anew"
                return Reason("EnvironmentGone", Tier.NEVER, text)
            added += len(given[digest])
        held = self._bytes_of.get(user, 0)
        if added and held + added > USER_BYTES_MAX:
            text = (
                f"the different environments of {user}'s jobs have {held} bytes, and {USER_BYTES_MAX} are the"
                " maximum per user: submit with --export NONE, or wait until jobs have ended"
            )
            return Reason("EnvironmentsFull", Tier.POLICY, text, {"limit": USER_BYTES_MAX})
        return None

    def missing(self, named: Iterable[str]) -> list[str]:
        """Those that a submission names and nobody has named before it."""
        return [digest for digest in named if digest not in self._kept]

    # Only `apply` calls what follows.

    def keep(self, digest: str, user: str, sealed: bytes) -> None:
        if digest not in self._kept:
            self._kept[digest] = KeptEnvironment(digest, user, sealed)
            self._bytes_of[user] = self._bytes_of.get(user, 0) + len(sealed)

    def add_job(self, job: Job) -> None:
        self.add(digests_of(job))

    def drop_job(self, job: Job) -> None:
        """A job has left memory, or another took its place."""
        self.drop(digests_of(job))

    def add(self, named: Iterable[str]) -> None:
        """A job or a workflow names these."""
        for digest in named:
            if (kept := self._kept.get(digest)) is not None:  # None: after a damaged record
                kept.jobs += 1

    def drop(self, named: Iterable[str]) -> None:
        for digest in named:
            if (kept := self._kept.get(digest)) is None:
                continue
            kept.jobs -= 1
            if kept.jobs <= 0:
                del self._kept[digest]
                left = self._bytes_of[kept.user] - len(kept.sealed)
                self._bytes_of[kept.user] = left
                if not left:
                    del self._bytes_of[kept.user]

    def of_record(self, job: Job) -> HistoryEnvironments | None:
        """What the record of a job that leaves memory now has to have; None if it names no environment."""
        found = [kept for digest in digests_of(job) if (kept := self._kept.get(digest)) is not None]
        if not found:
            return None
        return HistoryEnvironments(
            {kept.digest: kept.sealed for kept in found if _is_copied(kept)},
            {kept.digest: kept.record for kept in found if not _is_copied(kept)},
        )

    def note_record(self, job: Job) -> None:
        """The record of a job was written, with what `of_record` said."""
        for digest in digests_of(job):
            if (kept := self._kept.get(digest)) is None:
                continue
            if _is_copied(kept):
                kept.record, kept.named = job.id, 0
            else:
                kept.named += 1

    # Images.

    def image(self) -> list[EnvironmentImage]:
        return [
            EnvironmentImage(each.digest, each.user, each.sealed, each.record, each.named)
            for each in self._kept.values()
            if each.jobs > 0
        ]

    def restore(self, image: list[EnvironmentImage], jobs: Iterator[Job]) -> None:
        for each in image:
            self.keep(each.digest, each.user, each.sealed)
            kept = self._kept[each.digest]
            kept.record, kept.named = each.record, each.named
        for job in jobs:
            self.add_job(job)


def _is_copied(kept: KeptEnvironment) -> bool:
    return not kept.record or kept.named >= RECORDS_PER_COPY
