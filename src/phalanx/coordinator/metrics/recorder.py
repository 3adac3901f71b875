"""The recorder: counts what happened, from turns that are durable and from nothing else.

Both forms of the metrics, Prometheus text and JSON, are made from what stands here, so they agree. Counts begin at 0
with the process. A coordinator counts its own turns and those that it follows in the log of another, so a standby that
takes over goes on from about where its predecessor was; heartbeats alone are counted by the active one only.

An end is counted by its `Settle` effect, of which `apply` makes exactly one for each task. What is kept for single
tasks is bounded: when a task that was requeued began to wait again, and the newest tasks that completed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from msgspec import structs

from phalanx.coordinator.metrics.accounts import NodeAccounts
from phalanx.coordinator.metrics.density import Density
from phalanx.coordinator.metrics.dispatches import STICKY_WORKER_BUSY, DispatchTally
from phalanx.coordinator.metrics.tallies import (
    CATEGORIES,
    FAST_S,
    SLOW_S,
    Histogram,
    category_of,
    no_timings,
)
from phalanx.coordinator.metrics.task_events import WORDS, TaskEvents
from phalanx.coordinator.restore import replay, restore
from phalanx.coordinator.turn import Turn
from phalanx.core.cluster import dispatch_events as d
from phalanx.core.cluster import events as e
from phalanx.core.cluster.decision import Disposed, Settle, WaitAgain
from phalanx.core.cluster.event_kinds import NodeEvent
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.workflow_events import StagesEnded
from phalanx.core.cluster.workflows import StagePhase, WorkflowState
from phalanx.core.model.job import Job, JobId
from phalanx.core.model.orders import UNCHARGED, AttemptKey, Disposition, Exit, Status
from phalanx.store.protocol import Loaded

COMPLETED_MAX = 1000  # tasks that are named in the JSON, the newest
AGAIN_MAX = (
    100_000  # requeued tasks of which it is known since when they wait; of others a wait is not counted
)
FENCED = frozenset({Disposition.STALE_EPOCH, Disposition.STALE_LEASE, Disposition.STALE_ATTEMPT})
WORKER_FAILED = "worker_failed"  # the requeue reason of whatever a task did itself, as FlowMesh calls it
RESTARTED = "restarted"
# Why a stage of a workflow ended without a job.
CONDITION, DEPENDENCY, REFERENCE, LIMIT = "condition_not_met", "dependency", "reference", "limit"


class Recorder:
    """Counts of one process."""

    def __init__(self, density: Density | None = None, task_events: TaskEvents | None = None) -> None:
        self.density = density
        self.task_events = task_events
        self.submitted = 0
        self.started = 0
        self.ended = [0] * 6  # by status; only the last three are used
        self.requeued: dict[str, int] = {}
        self.preemptions = {"priority": 0, "operator": 0}
        self.dispatches = DispatchTally()
        self.heartbeats = 0
        self.fenced = 0
        self.missed = 0  # events that were never seen, because the log was pruned before this one read it
        self.events = 0
        self.timings = {category: no_timings() for category in CATEGORIES}
        self.queue_wait = Histogram(SLOW_S)
        self.execution = Histogram(SLOW_S)
        self.barrier_wait = Histogram(SLOW_S)
        self.placement = Histogram(FAST_S)
        self.append = Histogram(FAST_S)
        self.completed: deque[tuple[Job, int]] = deque(maxlen=COMPLETED_MAX)
        self.accounts = NodeAccounts()
        # As of the last turn, for the report at the end; only where files are written, for it may be large.
        self.state: ClusterState | None = None
        self._last = -1  # the revision up to which everything is counted; −1: nothing was read yet
        self._drafts: dict[JobId, int] = {}  # tasks counted so far of gangs whose members are still to come
        self._again: dict[JobId, dict[int, float]] = {}
        self._again_count = 0
        self._barriers: dict[JobId, float] = {}  # when the first member of a formation was placed
        self._causes: dict[JobId, str] = {}  # of jobs that ended in this turn: the one before them
        self._parents: dict[JobId, JobId] = {}  # and the one that they ran as a part of
        self._jobs: dict[JobId, JobState] = {}  # of the state that is being observed
        self._flows: dict[JobId, WorkflowState] = {}  # of the same state
        self._names: list[str] = []  # of its nodes, by number
        self._running: set[AttemptKey] = set()  # attempts whose start was counted, and that have not ended
        self._handlers: dict[type, Callable[[Any], None]] = {
            e.JobSubmitted: self._submitted,
            e.JobAmended: self._amended,
            e.TaskPlaced: self._placed,
            e.AttemptStarted: self._started,
            e.AttemptEnded: self._ended,
            e.GangReleased: self._released,
            e.GangRecalled: self._recalled,
            e.RoomPromised: self._promised,
            e.TasksEvicted: self._evicted,
            e.JobSettled: self._settled,
            e.TasksAbandoned: self._abandoned,
            d.TaskDeferred: self._deferred,
            d.MergedEnded: self._merged_ended,
            StagesEnded: self._stages_ended,
        }

    def observe(self, turn: Turn, state: ClusterState) -> None:
        """A turn is durable, and `state` is what came of it."""
        self._jobs, self._flows, self._names = state.jobs, state.workflows, state.known_names
        handlers = self._handlers
        for event in turn.events:
            kind = type(event)
            handler = handlers.get(kind)
            if handler is not None:
                handler(event)
            elif isinstance(event, NodeEvent):
                self._node(event, state)
        for effect in turn.effects:
            if type(effect) is Settle:
                self._settle(effect, turn)
            elif type(effect) is WaitAgain:
                self._count_requeued(RESTARTED, effect.count)
        for answer in turn.answers:
            if type(answer) is Disposed and answer.disposition in FENCED:
                self.fenced += 1
        for seconds in turn.plans_s:
            self.placement.observe(seconds)
        if turn.append_s is not None:
            self.append.observe(turn.append_s)
        self.events += len(turn.events)
        self._last = max(self._last, turn.revision)
        if self._causes or self._parents:
            self._causes, self._parents = {}, {}
        self._jobs, self._flows, self._names = {}, {}, []  # a state that is discarded must not live on here
        if self.task_events is not None:
            self.state = state

    def resume(self, loaded: Loaded, state: ClusterState, now: float) -> None:
        """The state was read from the store: count what the log has and nobody has told us yet.

        That is a write whose answer was lost, or, of a standby, what it missed; to count it exactly the log is
        applied once more, to a state of its own.
        """
        if 0 <= self._last < state.revision:
            self.missed += max(0, loaded.image_revision - self._last)
            known = [batch for batch in loaded.batches if batch.revision <= self._last]
            news = loaded.batches[len(known) :]
            past = restore(Loaded(loaded.image, loaded.image_revision, known), state.rules) if news else state
            for batch in news:
                events, effects = replay(past, batch)
                self.observe(Turn(events, effects, [], [], batch.revision), past)
        self._last = state.revision
        if self.task_events is not None:
            self.state = state
        self._running = {
            key for node in state.nodes.values() for key, each in node.attempts.items() if each.started_at
        }
        self.accounts.open(state, now)

    # Jobs and tasks.

    def _submitted(self, event: e.JobSubmitted) -> None:
        job = event.job
        self._count_submitted(event.at, job, job.tasks)
        if job.draft is not None:
            self._drafts[job.id] = job.tasks

    def _amended(self, event: e.JobAmended) -> None:
        job = event.job
        counted = self._drafts.pop(job.id, job.tasks)
        if job.tasks > counted:
            self._count_submitted(event.at, job, job.tasks - counted)
        if job.draft is not None:
            self._drafts[job.id] = job.tasks

    def _count_submitted(self, at: float, job: Job, tasks: int) -> None:
        self.submitted += tasks
        if self.density is not None:
            self.density.submitted(at, tasks)
        if self.task_events is not None:
            self.task_events.note(at, "TASK_SUBMITTED", job, None, tasks=tasks)

    def _placed(self, event: e.TaskPlaced) -> None:
        id, position, number = event.key
        if event.formation:
            self._barriers.setdefault(id, event.at)
        if event.note is not None:
            self.dispatches.chosen(event.note, len(event.merged))
        job = self._jobs.get(id)
        if job is None:
            return
        if number == 1:
            since: float | None = job.job.submitted_at
        else:
            since = self._no_longer_again(id, position)
        if since is not None:
            waited_s = event.at - since if event.at > since else 0.0
            self.queue_wait.observe(waited_s)
            self.timings[category_of(job.job)].queue.add(waited_s, int(number == 1))

    def _started(self, event: e.AttemptStarted) -> None:
        self._running.add(event.key)
        self._count_started(event.key, event.at)

    def _count_started(self, key: AttemptKey, at: float) -> None:
        self.started += 1
        id, position, number = key
        if self.task_events is not None and (job := self._jobs.get(id)) is not None:
            node = self._node_of(job, position, number)
            self.task_events.note(at, "TASK_STARTED", job.job, position, attempt=number, worker_id=node)

    def _node_of(self, job: JobState, position: int, number: int) -> str:
        at, names = job.node_number(position, number), self._names
        return names[at] if at is not None and at < len(names) else ""

    def _ended(self, event: e.AttemptEnded) -> None:
        id, position, number = event.key
        job, exit = self._jobs.get(id), event.exit
        if event.key in self._running:
            self._running.remove(event.key)
        elif exit.started_at is not None:  # it was over before its start could be told
            self._count_started(event.key, exit.started_at)
        if event.status == Status.PENDING:
            reason = reason_of(exit)
            self._count_requeued(reason, 1)
            self._note_again(id, position, event.at)
            if self.task_events is not None and job is not None:
                self.task_events.note(
                    event.at,
                    "TASK_REQUEUED",
                    job.job,
                    position,
                    attempt=number,
                    reason=reason,
                    error=exit.message,
                    exit_code=exit.code,
                )
        elif job is not None and event.status != Status.CANCELLED and exit.started_at is not None:
            ran_s = max(0.0, (exit.ended_at or event.at) - exit.started_at)
            self.execution.observe(ran_s)
            timings = self.timings[category_of(job.job)]
            timings.execution.add(ran_s)
            timings.total.add(max(0.0, event.at - job.job.submitted_at))

    def _count_requeued(self, reason: str, count: int) -> None:
        self.requeued[reason] = self.requeued.get(reason, 0) + count

    def _note_again(self, id: JobId, position: int, at: float) -> None:
        if self._again_count < AGAIN_MAX:
            of_job = self._again.setdefault(id, {})
            self._again_count += position not in of_job
            of_job[position] = at

    def _no_longer_again(self, id: JobId, position: int) -> float | None:
        """Since when a requeued task waits; it no longer does."""
        of_job = self._again.get(id)
        since = None if of_job is None else of_job.pop(position, None)
        if since is not None:
            self._again_count -= 1
        return since

    def _settle(self, effect: Settle, turn: Turn) -> None:
        at, job = turn.events[-1].at, self._jobs.get(effect.job)
        if effect.position is None:
            for status, count in enumerate(effect.rest, start=Status.COMPLETED):
                self.ended[status] += count
            self._forget(effect.job)
            if self.task_events is not None and job is not None:
                self.task_events.note_rest(at, effect.rest, job, self._causes.get(effect.job, ""))
            return
        status = effect.status or Status.PENDING
        self.ended[status] += 1
        if job is None:
            return
        if status == Status.COMPLETED:
            self.completed.append((job.job, effect.position))
        if self.task_events is not None:
            cause = self._causes.get(effect.job, "")
            parent = self._parents.get(effect.job, "")
            self.task_events.note_end(at, status, job, effect.position, cause, parent)

    def _forget(self, id: JobId) -> None:
        """A job is over: nothing of it waits again."""
        if (of_job := self._again.pop(id, None)) is not None:
            self._again_count -= len(of_job)
        self._barriers.pop(id, None)
        self._drafts.pop(id, None)

    def _settled(self, event: e.JobSettled) -> None:
        if self.task_events is not None and event.cause.startswith("job "):
            self._causes[event.job] = event.cause.removeprefix("job ")

    def _abandoned(self, event: e.TasksAbandoned) -> None:
        if self.task_events is not None:
            self._causes[event.job] = event.other

    def _stages_ended(self, event: StagesEnded) -> None:
        """Stages that never got a job are counted here, submitted and ended at once; all others by their jobs."""
        flow = self._flows.get(event.workflow)
        for end in () if flow is None else event.ends:
            assert flow is not None
            id = flow.job_id(end.stage)
            if id in self._jobs or flow.phase(end.stage) == StagePhase.WAITING:  # it had one, or begins anew
                continue
            job = structs.replace(flow.workflow.stages[end.stage].job, id=id)
            self._count_submitted(event.at, job, job.tasks)
            self.ended[end.status] += job.tasks
            if self.task_events is not None:
                parent = "" if end.parent is None else flow.job_id(end.parent)
                reason = CONDITION if end.skipped else DEPENDENCY if parent else REFERENCE
                reason = LIMIT if flow.stopped and end.text == flow.stopped else reason
                self.task_events.note(
                    event.at,
                    WORDS[end.status],
                    job,
                    None,
                    tasks=job.tasks,
                    reason=reason,
                    error="" if end.skipped else end.text,
                    dependency_failure=parent,
                )

    # Dispatch.

    def _deferred(self, event: d.TaskDeferred) -> None:
        self._count_requeued(STICKY_WORKER_BUSY, 1)
        if self.task_events is not None and (job := self._jobs.get(event.job)) is not None:
            self.task_events.note(
                event.at, "TASK_REQUEUED", job.job, 0, reason=STICKY_WORKER_BUSY, worker_id=event.node
            )

    def _merged_ended(self, event: d.MergedEnded) -> None:
        """Their ends are counted by their `Settle`; the line of one that failed names the task it was a part of."""
        if self.task_events is not None:
            self._parents |= dict.fromkeys((end.job for end in event.ends), event.key[0])
            failed = [end.job for end in event.ends if end.status == Status.FAILED]
            self._causes |= dict.fromkeys(failed, event.key[0])

    # Gangs and evictions.

    def _released(self, event: e.GangReleased) -> None:
        formed_at = self._barriers.pop(event.job, None)
        if formed_at is not None:
            self.barrier_wait.observe(max(0.0, event.at - formed_at))

    def _recalled(self, event: e.GangRecalled) -> None:
        self._barriers.pop(event.job, None)

    def _promised(self, event: e.RoomPromised) -> None:
        self.preemptions["priority"] += len(event.victims)

    def _evicted(self, event: e.TasksEvicted) -> None:
        self.preemptions["operator"] += len(event.keys)

    # Nodes.

    def _node(self, event: NodeEvent, state: ClusterState) -> None:
        """Whatever happens to a node may change whether it counts, so each event of one is looked at."""
        if type(event) is e.NodeHeard:
            self.heartbeats += 1
        else:
            if isinstance(event, e.NodeJoined | e.NodeConnected):
                self.accounts.joined(event.node)
            elif isinstance(event, e.NodeLost | e.NodeLeaving | e.NodeRemoved):
                self.accounts.left(event.node)
            self.accounts.changed(event.node, state, event.at)
        if self.density is not None:
            self.density.counted(event.at, self.accounts.active)


def reason_of(exit: Exit) -> str:
    """Why a task is requeued: what it did itself is one reason, what befell it is named as the reason code is."""
    return exit.why.word if exit.why in UNCHARGED else WORKER_FAILED
