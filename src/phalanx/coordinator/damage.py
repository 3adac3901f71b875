"""Damage in the store, as people meet it: a log with a hole while nothing is served, and a record that cannot be read.

The choice what to do is the operator's (`phalanx store repair`); the coordinator only refuses, and goes on when it has
been made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from phalanx.coordinator.restore import NAMED_MAX
from phalanx.core.model.job import is_job_id
from phalanx.errors import Unavailable
from phalanx.store.protocol import Batch, History, LogHole, Store, StoreAround, StoreDamaged, StoreError

RETRY_AFTER_S = 5.0


async def named(hole: LogHole, store: Store) -> LogHole:
    """The same hole with the jobs that the store's index names; every job that has not ended if it names none."""
    try:
        jobs = [name for name in await store.concerned(hole.after, hole.upto) if is_job_id(name)]
    except StoreError:  # the index is damaged as well
        jobs = []
    return LogHole(hole.after, hole.upto, jobs[:NAMED_MAX], len(jobs)) if jobs else hole


class AskedStore(StoreAround):
    """A store as people's questions reach it: what it raises becomes an answer that says what is wrong."""

    async def history(self, job: str) -> bytes | None:
        with _told():
            return await super().history(job)

    async def past(self, before: str | None, limit: int, prefix: str = "") -> list[History]:
        with _told():
            return await super().past(before, limit, prefix)

    async def story(self, subject: str, after: int, limit: int) -> list[Batch]:
        with _told():
            return await super().story(subject, after, limit)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except StoreDamaged as error:
        raise Unavailable(
            f"what was asked for is in a damaged part of the store: {error}",
            reason="StoreDamaged",
            hint=f"`phalanx store check` names what is damaged; {error.hint}".removesuffix("; "),
        ) from error
    except StoreError as error:
        raise Unavailable(
            f"the store cannot be read: {error}",
            reason="StoreUnavailable",
            hint=error.hint,
            retry_after_s=RETRY_AFTER_S,
        ) from error


def damaged(hole: LogHole) -> Unavailable:
    """Why nothing is served. A stranger may ask, so jobs are counted here and named in the log."""
    return Unavailable(
        f"{hole}; {hole.count} jobs may be concerned, and nothing is served until an operator has chosen",
        reason="StoreDamaged",
        hint=hole.hint,
        retry_after_s=RETRY_AFTER_S,
    )
