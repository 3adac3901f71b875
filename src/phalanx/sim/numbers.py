"""Numbers of jobs and workflows, as the log has them: each is given once, higher than all before, and never changes.

It shares no code with `apply`. Every coordinator that leads is asked whether its state says the same.
"""

from __future__ import annotations

from collections.abc import Callable

from phalanx.core.cluster import events as e
from phalanx.core.cluster import workflow_events as w
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.job import JobId
from phalanx.sim.violation import Violation


class NumberChecker:
    """Which number was given to whom."""

    def __init__(self, count: Callable[[str], None]) -> None:
        self._count = count
        self._given: dict[JobId, int] = {}
        self._highest = 0

    def note(self, event: e.Event) -> None:
        """An event became durable."""
        if isinstance(event, e.JobSubmitted):
            self._give(event.job.id, event.number)
        elif isinstance(event, w.WorkflowSubmitted):
            self._give(event.content.id, event.number)

    def check(self, state: ClusterState) -> None:
        """The state of a coordinator that leads has the numbers that were given."""
        for id, job in state.jobs.items():
            if job.arrival != self._given.get(id, job.arrival):
                raise Violation("numbers", f"{id} was given {self._given[id]} and has {job.arrival}")
        for id, flow in state.workflows.items():
            if flow.number != self._given.get(id, flow.number):
                raise Violation("numbers", f"{id} was given {self._given[id]} and has {flow.number}")

    def _give(self, id: JobId, number: int) -> None:
        if number <= self._highest:
            raise Violation("numbers", f"{id} is given {number}, and {self._highest} was given before")
        if id in self._given:
            raise Violation("numbers", f"{id} has {self._given[id]} and is given {number}")
        self._given[id] = self._highest = number
        self._count("number given")
