"""Jobs that start after others: none is placed before those have come, and none waits for what never will.

Judged at the end of each batch, because the outcome of a job may follow the end of its last task.
"""

from __future__ import annotations

from collections.abc import Callable

from phalanx.core.cluster import events as e
from phalanx.core.model.job import After, JobId
from phalanx.core.model.orders import Status
from phalanx.sim.chronicle import Chronicle
from phalanx.sim.violation import Violation


class Dependencies:
    """All jobs that start after others."""

    def __init__(self, chronicle: Chronicle, count: Callable[[str], None]) -> None:
        self._chronicle = chronicle
        self._count = count
        self._after: dict[JobId, tuple[After, ...]] = {}
        self._begun: dict[JobId, set[int]] = {}
        self._outcomes: dict[JobId, Status] = {}
        self._placed: set[tuple[JobId, int]] = set()  # in this batch

    def note(self, event: e.Event) -> None:
        match event:
            case e.JobSubmitted() if event.job.after:
                self._after[event.job.id] = event.job.after
                self._count("job that starts after others")
            case e.TaskPlaced() if event.key[0] in self._after:
                self._placed.add(event.key[:2])
            case e.AttemptStarted() | e.AttemptEnded():
                self._begun.setdefault(event.key[0], set()).add(event.key[1])
            case e.JobSettled():
                self._outcomes[event.job] = event.status
                if event.job in self._after and not self._begun.get(event.job):
                    self._count("job that could never start")
            case e.TasksAbandoned():
                self._count("task that could never start")

    def end_of_batch(self) -> None:
        for job, position in sorted(self._placed):
            for after in self._after[job]:
                if not self._has_come(after, position):
                    raise Violation(
                        "after", f"{job} {position} was placed before {after.job} was {after.when}"
                    )
        self._placed.clear()
        for job, others in list(self._after.items()):
            if self._is_over(job):
                del self._after[job]
                continue
            for after in others:
                self._check_wait(job, after)

    def _check_wait(self, job: JobId, after: After) -> None:
        """Nothing waits for what is over and has not come."""
        if not after.each:
            if self._is_over(after.job) and not self._has_come(after, 0):
                raise Violation("after", f"{job} waits for {after.job}, which is over and not {after.when}")
            return
        pairs = zip(self._chronicle.jobs[job], self._chronicle.jobs[after.job], strict=True)
        for position, (task, other) in enumerate(pairs):
            if task.final is None and other.final is not None and not self._has_come(after, position):
                raise Violation("after", f"task {position} of {job} waits for one that is not {after.when}")

    def _is_over(self, job: JobId) -> bool:
        return all(task.final is not None for task in self._chronicle.jobs[job])

    def _has_come(self, after: After, position: int) -> bool:
        if after.each:
            final = self._chronicle.jobs[after.job][position].final
            if after.when == "started" and position in self._begun.get(after.job, ()):
                return True
            return final is not None and (after.when in ("any", "started") or final == _WANTED[after.when])
        if self._is_over(after.job):
            return after.when in ("any", "started") or self._outcome(after.job) == _WANTED[after.when]
        begun = self._begun.get(after.job, set())
        tasks = enumerate(self._chronicle.jobs[after.job])
        return after.when == "started" and all(
            position in begun or task.final is not None for position, task in tasks
        )

    def _outcome(self, job: JobId) -> Status:
        ends = {task.final for task in self._chronicle.jobs[job]}
        worst = next((each for each in (Status.FAILED, Status.CANCELLED) if each in ends), Status.COMPLETED)
        return self._outcomes.get(job, worst)


_WANTED = {"ok": Status.COMPLETED, "failed": Status.FAILED}
