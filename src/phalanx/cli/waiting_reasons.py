"""Why waiting jobs of a list wait, in a word each: the first reason of `why`, of a few jobs, and kept for a while.

A coordinator finds a reason by looking at its nodes, so a list asks for at most `JOBS_MAX` and stops asking when it
has taken `WITHIN_S`. What the words mean is in docs/operations/reasons.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from phalanx.api.schema.jobs import JobView, TaskView
from phalanx.cli.job_table import job_status
from phalanx.clock import Clock
from phalanx.errors import PhalanxError

if TYPE_CHECKING:
    from phalanx.client.client import Client

JOBS_MAX = 20
WITHIN_S = 0.5
AGE_S = 5.0  # after which a reason is asked for again
Item = TypeVar("Item", JobView, TaskView, JobView | TaskView)


class WaitingReasons:
    """The reasons that were asked for lately."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, tuple[float, str]] = {}  # when it was asked for, and the answer
        self.is_cut = False  # some waiting jobs are without a reason, because they are many

    def told(self, client: Client, items: Sequence[Item]) -> list[Item]:
        """The same items; waiting jobs have their reason."""
        began = self._clock.monotonic()
        waiting = [item.id for item in items if isinstance(item, JobView) and _waits(item)]
        asked = waiting[:JOBS_MAX]
        for id in asked:
            known_at, _ = self._known.get(id, (float("-inf"), ""))
            if began - known_at >= AGE_S and self._clock.monotonic() - began < WITHIN_S:
                self._known[id] = (began, _asked(client, id))
        self.is_cut = any(id not in self._known for id in waiting)
        self._known = {id: self._known[id] for id in asked if id in self._known}
        return [self._with_reason(item) for item in items]

    def _with_reason(self, item: Item) -> Item:
        _, reason = self._known.get(item.id, (0.0, ""))
        return replace(item, reason=reason) if reason else item


def _waits(job: JobView) -> bool:
    """Whether nothing else in the list says what it waits for."""
    return job_status(job) == "Pending" and not job.evicted


def _asked(client: Client, id: str) -> str:
    try:
        return client.why(id).dominant.code
    except PhalanxError:  # it may have ended meanwhile
        return ""
