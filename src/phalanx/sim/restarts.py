"""Jobs that restart and end as one: the budget of restarts, and which tasks have to run again.

A counted restart uses up one of the job's limit. A job that failed for its limit had used it up. After a restart of
the whole job no task counts as done any more, and a job is Completed only if the tasks it needs have ended with 0
since then. The loss of a needed member always has a consequence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from phalanx.core.cluster import events as e
from phalanx.core.cluster.decide.endings import NO_RESTART_LEFT
from phalanx.core.model.job import JobId
from phalanx.core.model.orders import Status
from phalanx.sim.barrier import Barrier
from phalanx.sim.places import Places, least
from phalanx.sim.violation import Violation


class Restarts:
    """All jobs that may restart."""

    def __init__(self, places: Places, barrier: Barrier, count: Callable[[str], None]) -> None:
        self._places = places
        self._barrier = barrier
        self._count = count
        self._counted: Counter[JobId] = Counter()
        self._short: set[JobId] = (
            set()
        )  # in this batch: jobs that lost a member and have not restarted or ended yet

    def note(self, event: e.Event) -> None:
        match event:
            case e.AttemptEnded():
                self._ended(event)
            case e.JobRestarted():
                self._restarted(event)
            case e.JobSettled():
                self._settled(event)

    def end_of_batch(self) -> None:
        if self._short:
            job = min(self._short)
            raise Violation("restarts", f"{job} lost a member, and neither restarts nor ends")

    def _ended(self, event: e.AttemptEnded) -> None:
        job = self._places.jobs[event.key[0]]
        holder = self._places.holders[event.key]
        restarts_whole = job.restart.whole or any(rule.action != "fail" for rule in job.restart.rules)
        runs = self._barrier.may_go(event.key) if holder.formation else True
        if event.loss and restarts_whole and runs and not holder.is_leaving:
            self._short.add(job.id)

    def _restarted(self, event: e.JobRestarted) -> None:
        limit = self._places.jobs[event.job].restart.limit
        self._short.discard(event.job)
        self._count("whole restart" if event.positions is None else "restart of a replica")
        self._counted[event.job] += event.counted
        if (count := self._counted[event.job]) > limit:
            raise Violation("restarts", f"{event.job} was restarted {count} times, its limit is {limit}")

    def _settled(self, event: e.JobSettled) -> None:
        self._short.discard(event.job)
        count, limit = self._counted[event.job], self._places.jobs[event.job].restart.limit
        if event.status == Status.COMPLETED and (lacking := self._lacking(event.job)):
            raise Violation("restarts", f"{event.job} is Completed, but its {lacking} has not succeeded")
        if event.text.startswith(NO_RESTART_LEFT) and count < limit:
            raise Violation("restarts", f"{event.job} failed for its limit of {limit} restarts after {count}")

    def _lacking(self, id: JobId) -> str:
        """The first group that has not done what the job needs of it, or ""."""
        job = self._places.jobs[id]
        well = self._places.ended_well(id)
        names = job.success.groups or [group.name for group in job.groups]
        asked = [number for number, group in enumerate(job.groups) if group.name in names]
        if job.success.any:
            return "" if any(well[number] for number in asked) else "only chance"
        for number in asked:
            group = job.groups[number]
            if well[number] < (least(group) if job.gang else group.tasks):
                return f"group {group.name!r} ({well[number]} of {group.tasks})"
        return ""
