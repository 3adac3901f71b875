"""A log with a hole: which jobs are concerned, and what is said to those who ask while nothing is served.

The choice what to do is the operator's (`phalanx store repair`); the coordinator only refuses, and goes on when it has
been made.
"""

from __future__ import annotations

from phalanx.coordinator.heart import NAMED_MAX
from phalanx.core.model.ids import is_job_id
from phalanx.errors import Unavailable
from phalanx.store.protocol import LogHole, Store, StoreError

RETRY_AFTER_S = 5.0


async def named(hole: LogHole, store: Store) -> LogHole:
    """The same hole with the jobs that the store's index names; every job that has not ended if it names none."""
    try:
        jobs = [name for name in await store.concerned(hole.after, hole.upto) if is_job_id(name)]
    except StoreError:  # the index is damaged as well
        jobs = []
    return LogHole(hole.after, hole.upto, jobs[:NAMED_MAX], len(jobs)) if jobs else hole


def damaged(hole: LogHole) -> Unavailable:
    """Why nothing is served. A stranger may ask, so jobs are counted here and named in the log."""
    return Unavailable(
        f"{hole}; {hole.count} jobs may be concerned, and nothing is served until an operator has chosen",
        reason="StoreDamaged",
        hint=hole.hint,
        retry_after_s=RETRY_AFTER_S,
    )
