"""A model of the durable log, event by event; it shares no code with `apply`.

A task's final status is set once. An attempt is placed once, ends once, and its number is never used again. Completed
is true: a process of exactly that attempt exited with 0. Batches come from the newest epoch only.
"""

from __future__ import annotations

from collections.abc import Callable

from phalanx.core.cluster import dispatch_events as d
from phalanx.core.cluster import events as e
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.job import JobId
from phalanx.core.model.orders import AttemptKey, Exit, Status, Why
from phalanx.sim.floor import Floor
from phalanx.sim.violation import Violation
from phalanx.store.protocol import Batch

_TRUE_ENDS = (Why.NONE, Why.EXITED, Why.SIGNALLED)  # ends that claim to have seen a process exit by itself


class Task:
    """One task, as the log has it."""

    def __init__(self) -> None:
        self.final: Status | None = None
        self.number = 0
        self.live: AttemptKey | None = None
        self.is_done = False  # it ended with code 0 and becomes Completed with its whole job


class Chronicle:
    """Jobs and their tasks, the terms, and what was acknowledged to users."""

    def __init__(self, floor: Floor) -> None:
        self.batches: list[Batch] = []
        self.jobs: dict[JobId, list[Task]] = {}
        self.requests: dict[str, list[JobId]] = {}
        self._merged: dict[AttemptKey, tuple[JobId, ...]] = {}
        self._acknowledged: dict[str, list[JobId]] = {}
        self._floor = floor
        self.epoch = 0  # the newest epoch
        self.revision = 0  # of the newest batch

    # What was acknowledged to users.

    def acknowledged(self, request_id: str, jobs: list[JobId]) -> None:
        """A submission was acknowledged: from now on it must never be lost."""
        before = self._acknowledged.setdefault(request_id, jobs)
        if before != jobs:
            raise Violation("accepted", f"request {request_id} was answered with {before}, then with {jobs}")
        self._check_acknowledged(request_id)

    def _check_acknowledged(self, request_id: str) -> None:
        jobs, kept = self._acknowledged[request_id], self.requests.get(request_id, [])
        lost = [job for job in jobs if job not in self.jobs]
        if lost:
            raise Violation("accepted", f"job {lost[0]} was accepted and is not in the log")
        if kept != jobs:
            raise Violation("accepted", f"request {request_id} made {kept}, its user was given {jobs}")

    # What became durable.

    def term_opened(self, epoch: int) -> None:
        if epoch <= self.epoch:
            raise Violation("epochs", f"epoch {epoch} was opened after epoch {self.epoch}")
        self.epoch = epoch

    def was_placed(self, key: AttemptKey) -> bool:
        """Whether the placement of this attempt is durable."""
        tasks = self.jobs.get(key[0])
        return tasks is not None and tasks[key[1]].number >= key[2]

    def committed(self, epoch: int, batch: Batch) -> list[e.Event]:
        """Record a batch and return its events."""
        if epoch != self.epoch:
            raise Violation("epochs", f"a batch of epoch {epoch} was kept though {self.epoch} is current")
        if batch.revision <= self.revision:
            raise Violation("epochs", f"revision {batch.revision} was written after {self.revision}")
        self.revision = batch.revision
        self.batches.append(batch)
        events = e.decode(batch.body)
        for event in events:
            self._note(event)
        return events

    def _note(self, event: e.Event) -> None:
        match event:
            case e.JobSubmitted():
                self._submitted(event)
            case e.TaskPlaced():
                self._placed(event)
            case e.AttemptEnded():
                self._ended(event)
            case e.TasksCancelled():
                self._cancelled(event)
            case e.TasksAbandoned():
                for first, last in event.ranges:
                    for task in self.jobs[event.job][first : last + 1]:
                        task.final = task.final or event.status
            case d.MergedEnded():
                self._merged_ended(event)
            case e.JobRestarted():
                tasks = self.jobs[event.job]
                for position in range(len(tasks)) if event.positions is None else event.positions:
                    tasks[position].is_done = False
            case e.JobSettled():
                rest = Status.FAILED if event.status == Status.FAILED else Status.CANCELLED
                self._end_all(event.job, rest)

    def _submitted(self, event: e.JobSubmitted) -> None:
        if event.job.id in self.jobs:
            raise Violation("accepted", f"job {event.job.id} was submitted twice")
        self.jobs[event.job.id] = [Task() for _ in range(event.job.tasks)]
        if event.request_id:
            self.requests.setdefault(event.request_id, []).append(event.job.id)

    def _placed(self, event: e.TaskPlaced) -> None:
        task = self._task(event.key)
        if event.key[2] != task.number + 1:
            raise Violation("one-commit", f"{event.key} was placed after attempt {task.number}")
        if task.live is not None or task.final is not None or task.is_done:
            holder = task.live or task.final or "its good end"
            raise Violation("one-commit", f"{event.key} was placed while {holder} was in force")
        task.number, task.live = event.key[2], event.key
        for job in event.merged:
            child = self.jobs[job][0]
            if child.live is not None or child.final is not None:
                raise Violation(
                    "one-commit", f"{job} was merged into {event.key} while {child.live} was in force"
                )
            child.live = event.key
        if event.merged:
            self._merged[event.key] = event.merged

    def _cancelled(self, event: e.TasksCancelled) -> None:
        if event.positions is None:
            self._end_all(event.job, Status.CANCELLED)
            return
        for position in event.positions:
            task = self.jobs[event.job][position]
            task.final = task.final or Status.CANCELLED

    def _end_all(self, job: JobId, rest: Status) -> None:
        """The job is over: tasks that ended with 0 are Completed, all others get the same end."""
        for task in self.jobs[job]:
            task.final = task.final or (Status.COMPLETED if task.is_done else rest)

    def _ended(self, event: e.AttemptEnded) -> None:
        task = self._task(event.key)
        if task.live != event.key:
            raise Violation(
                "one-commit", f"{event.key} ended in the log, but {task.live} is the live attempt"
            )
        task.live = None
        for job in self._merged.get(event.key, ()):
            if self.jobs[job][0].live == event.key:
                self.jobs[job][0].live = None
        self._check_true(event.key, event.exit, event.status)
        self._check_reported_end(event)
        if task.final is not None and event.status != task.final:
            raise Violation("one-commit", f"{event.key} is {task.final.word} and became {event.status.word}")
        task.is_done = event.status == Status.RUNNING
        if task.final is None and event.status.is_final:
            self._finish(event.key, task, event.status)

    def _merged_ended(self, event: d.MergedEnded) -> None:
        """Each of them was merged into the attempt that has ended, and has the result that was meant for it."""
        for end in event.ends:
            task, key = self.jobs[end.job][0], (end.job, 0, 0)
            if end.job not in self._merged.get(event.key, ()) or task.live is not None:
                raise Violation("one-commit", f"{end.job} ended with {event.key}, and was no part of it")
            if end.status == Status.COMPLETED and end.exit.result != f'"{end.job}"':
                raise Violation("one-commit", f"{end.job} was given the result {end.exit.result}")
            if task.final is None:
                self._finish(key, task, end.status)

    def _finish(self, key: AttemptKey, task: Task, status: Status) -> None:
        if task.final is not None:
            raise Violation("one-commit", f"{key} is {task.final.word} and became {status.word}")
        task.final = status

    def _check_true(self, key: AttemptKey, exit: Exit, status: Status) -> None:
        if status in (Status.COMPLETED, Status.RUNNING) and exit.why != Why.NONE:
            raise Violation("one-commit", f"{key} completed because of {exit.why.word}")
        if exit.why not in _TRUE_ENDS:
            return
        end = self._floor.ends.get(key)
        seen = None if end is None else (-end.signal if end.signal else end.code)
        if end is None or seen != exit.code:
            raise Violation(
                "one-commit", f"{key} is reported as exited with {exit.code} but really ended with {end}"
            )
        if exit.result != end.result:
            raise Violation("one-commit", f"{key} gave {end.result} as its result, not {exit.result}")

    def _check_reported_end(self, event: e.AttemptEnded) -> None:
        """A runner that is connected, and whose keeper lost nothing, reports every end that it saw."""
        gave_up = event.exit.why in (Why.LOST, Why.UNCONFIRMED) and event.cause != "lease over"
        if gave_up and self._floor.knows_end(event.key):
            raise Violation("one-commit", f"{event.key} ended by itself, and its end was never reported")

    def _task(self, key: AttemptKey) -> Task:
        return self.jobs[key[0]][key[1]]

    # At the end.

    def finish(self, state: ClusterState, remembers: Callable[[JobId], bool]) -> None:
        """Nothing accepted is lost, and everything has ended as the log says."""
        for request_id in self._acknowledged:
            self._check_acknowledged(request_id)
        for id, tasks in self.jobs.items():
            if not remembers(id):
                raise Violation(
                    "accepted", f"job {id} is in the log, but neither in memory nor in the history"
                )
            for position, task in enumerate(tasks):
                if task.final is None:
                    raise Violation("accepted", f"task {position} of {id} never reached a final status")
                if id in state.jobs and state.jobs[id].status[position] != task.final:
                    raise Violation(
                        "one-commit", f"task {position} of {id} is {task.final.word} in the log only"
                    )
