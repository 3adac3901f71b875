"""Who queues in whose lane, by the log: tasks of one job, or stages of one owner that ask for the same.

This model shares no code with `core/model/lanes.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from phalanx.core.cluster import events as e
from phalanx.core.model.job import Job
from phalanx.sim.places import Places
from phalanx.sim.violation import Violation


class LaneChecker:
    """Looks at every placement before `places` notes it."""

    def __init__(self, places: Places, count: Callable[[str], None]) -> None:
        self._places = places
        self._count = count

    def note(self, event: e.Event) -> None:
        if type(event) is e.TaskPlaced:
            self._placed(event)
        elif type(event) is e.AttemptEnded:
            holder = self._places.holders.get(event.key)
            if holder is not None and event.status == 0 and self._jobs_in(holder.lane) > 1:
                self._count("stage that left a shared lane unfinished")

    def _placed(self, event: e.TaskPlaced) -> None:
        lane = (event.node, event.lane)
        others = [each for each in self._places.holders.values() if each.lane == lane]
        if event.opens:
            if others:
                raise Violation("lanes", f"{event.key} opens lane {lane}, which {others[0].key} is in")
            return
        if not others:
            raise Violation("lanes", f"{event.key} is queued in lane {lane}, where nobody is")
        job = self._places.jobs[event.key[0]]
        for each in others:
            if each.grant != event.grant:
                raise Violation("lanes", f"{event.key} has another grant than {each.key} in lane {lane}")
            if why := _why_not(job, self._places.jobs[each.key[0]]):
                raise Violation("lanes", f"{event.key} is queued in lane {lane} with {each.key}: {why}")
        if all(each.is_leaving for each in others):
            raise Violation("lanes", f"{event.key} is queued in lane {lane}, which is being left")
        if any(each.key[0] != job.id for each in others):
            self._count("lane shared by stages")

    def _jobs_in(self, lane: tuple[str, int]) -> int:
        return len({each.key[0] for each in self._places.holders.values() if each.lane == lane})


def _why_not(job: Job, other: Job) -> str:
    """Why two jobs may not share a lane, or ""."""
    if job.id == other.id:
        return ""
    for each in (job, other):
        if each.workflow is None or each.gang is not None or sum(group.tasks for group in each.groups) != 1:
            return f"{each.id} is not a stage of one task"
    for what, mine, theirs in (
        ("owner", job.user, other.user),
        ("queue", job.queue, other.queue),
        ("priority", job.priority, other.priority),
        ("request", job.groups[0].request, other.groups[0].request),
    ):
        if mine != theirs:
            return f"another {what}"
    return ""
