"""Why waiting jobs of a list wait, in a word each: the first reason of `why`, of a few jobs, and kept for a while.

A coordinator finds the reasons of all that are asked for in one look at its queue and nodes, so a list asks for at most
`JOBS_MAX`. What the words mean is in docs/operations/reasons.md.
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
        now = self._clock.monotonic()
        waiting = [item.id for item in items if isinstance(item, JobView) and _waits(item)]
        asked = waiting[:JOBS_MAX]
        due = [id for id in asked if now - self._known.get(id, (float("-inf"), ""))[0] >= AGE_S]
        if due:
            found = _asked(client, due)
            self._known |= {id: (now, found.get(id, "")) for id in due}
        self.is_cut = any(id not in self._known for id in waiting)
        self._known = {id: self._known[id] for id in asked if id in self._known}
        return [self._with_reason(item) for item in items]

    def _with_reason(self, item: Item) -> Item:
        _, reason = self._known.get(item.id, (0.0, ""))
        return replace(item, reason=reason) if reason else item


def _waits(job: JobView) -> bool:
    """Whether nothing else in the list says what it waits for."""
    return job_status(job) == "Pending" and not job.evicted


def _asked(client: Client, ids: Sequence[str]) -> dict[str, str]:
    try:
        return {each.id: each.reason.code for each in client.reasons(ids)}
    except PhalanxError:  # such as a coordinator of an older version
        return {}
