"""Spans of jobs and workflows, made from turns that are durable. No I/O, and nothing of OpenTelemetry.

A trace is one job, or one workflow with the jobs of its stages. Its root is the time from submission to the end; below
it are stages, and below a job the waits and runs of its attempts. A span is made when what it tells of is over, and its
start is taken from the state: so a coordinator that was started or has taken over meanwhile makes the same span. Ids of
spans follow from those of jobs, so that a child can be sent long before its parent.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from phalanx.coordinator.turn import Turn
from phalanx.core.cluster import events as e
from phalanx.core.cluster.decision import Settle
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.workflow_events import StageEnd, StagesEnded, WorkflowRetried
from phalanx.core.cluster.workflows import StagePhase, WorkflowState
from phalanx.core.model.job import JobId
from phalanx.core.model.orders import Status, Why

TASKS_MAX = (
    1000  # of one job, whose attempts have spans; a job of more tasks has as many spans as one of these
)
TEXT_MAX = 1000
Attribute = str | int | float


class SpanRecord(Struct, frozen=True):
    """One span. `trace`, `key` and `parent` are texts of which ids are made."""

    trace: JobId
    key: str
    parent: str | None
    name: str
    start: float
    end: float
    attributes: dict[str, Attribute]
    error: str | None = None  # what went wrong; None: nothing


class SpanBuilder:
    """Turns into spans. It remembers which tasks wait again, and how often the workflows that live were retried."""

    def __init__(self) -> None:
        self._runs: dict[JobId, int] = {}
        self._again: dict[JobId, dict[int, float]] = {}  # since when

    def resume(self, state: ClusterState) -> None:
        """The state was read from the store: the ends of earlier attempts are in it until the next one has a place."""
        self._runs, self._again = {}, {}
        for id, job in state.jobs.items():
            if job.times is None or not job.counts[Status.PENDING]:
                continue
            for position in range(min(TASKS_MAX, len(job.status))):
                ended_at = job.finished_at(position)
                if job.status[position] == Status.PENDING and ended_at is not None:
                    self._again.setdefault(id, {})[position] = ended_at

    def spans(self, turn: Turn, state: ClusterState) -> Iterator[SpanRecord]:
        """What this turn has brought to its end; `state` is what came of it."""
        flows: dict[JobId, float] = {}
        for event in turn.events:
            kind = type(event)
            if kind is e.TaskPlaced:
                yield from self._waited(event, state)  # type: ignore[arg-type]  # as its kind says
            elif kind is e.AttemptEnded:
                yield from self._ran(event, state)  # type: ignore[arg-type]
            elif isinstance(event, WorkflowRetried):
                self._runs.pop(event.workflow, None)
            elif isinstance(event, StagesEnded):
                flows[event.workflow] = event.at
                yield from self._unbegun(event, state)
        for effect in turn.effects:
            if type(effect) is Settle and effect.position is None:
                self._again.pop(effect.job, None)
                if effect.job in state.jobs:
                    yield self._job(state.jobs[effect.job], turn.events[-1].at, state)
        for id, at in flows.items():
            flow = state.workflows.get(id)
            if flow is not None and flow.is_over:
                yield self._workflow(flow, at)
                self._runs.pop(id, None)

    # Attempts.

    def _waited(self, event: e.TaskPlaced, state: ClusterState) -> Iterator[SpanRecord]:
        """An attempt has a place: it waited for it since the submission, or since the end of the one before."""
        id, position, number = event.key
        job = state.jobs.get(id)
        if job is None or position >= TASKS_MAX:
            return
        again = self._again.get(id, {}).pop(position, None)
        since = job.job.submitted_at if number == 1 else again
        if since is not None:
            more: dict[str, Attribute] = {"phalanx.node": event.node}
            yield _of_attempt(job, position, number, "queue wait", min(since, event.at), event.at, more)

    def _ran(self, event: e.AttemptEnded, state: ClusterState) -> Iterator[SpanRecord]:
        """An attempt is over; one that never started has no length."""
        id, position, number = event.key
        job, exit = state.jobs.get(id), event.exit
        if job is None or position >= TASKS_MAX:
            return
        end = exit.ended_at or event.at
        if event.status == Status.PENDING:
            self._again.setdefault(id, {})[position] = end
        start = end if exit.started_at is None else min(exit.started_at, end)
        more: dict[str, Attribute] = {"phalanx.reason": exit.why.word}
        at = job.node_number(position, number)
        if at is not None and at < len(state.known_names):
            more["phalanx.node"] = state.known_names[at]
        if exit.code is not None:
            more["phalanx.exit_code"] = exit.code
        error = None if exit.why in (Why.NONE, Why.CANCELLED) else exit.message or exit.why.word
        yield _of_attempt(job, position, number, "run", start, end, more, error)

    # Jobs, stages and workflows.

    def _job(self, job: JobState, at: float, state: ClusterState) -> SpanRecord:
        made, status = job.job, job.overall_status
        attributes: dict[str, Attribute] = {
            "phalanx.job.id": made.id,
            "phalanx.queue": made.queue,
            "phalanx.user": made.user,
            "phalanx.tasks": made.tasks,
            "phalanx.status": status.name.capitalize(),
        }
        parent, trace, name = None, made.id, f"job {made.name or made.id}"
        if made.workflow is not None and (flow := state.workflows.get(made.workflow[0])) is not None:
            stage = flow.workflow.stages[made.workflow[1]].name
            parent, trace, name = self._root(flow), flow.workflow.id, f"stage {stage}"
            attributes |= {"phalanx.workflow.id": trace, "phalanx.stage": stage}
        error = None
        if status == Status.FAILED:
            failed = next((each for each in range(len(job.status)) if job.status[each] == Status.FAILED), 0)
            attributes["phalanx.reason"] = Why(job.why[failed]).word
            error = job.details.get(failed, ("", ""))[0] or Why(job.why[failed]).word
        return _record(trace, made.id, parent, name, made.submitted_at, at, attributes, error)

    def _unbegun(self, event: StagesEnded, state: ClusterState) -> Iterator[SpanRecord]:
        """Stages that ended without a job: skipped, or after one that failed."""
        flow = state.workflows.get(event.workflow)
        for end in () if flow is None else event.ends:
            assert flow is not None
            id = flow.job_id(end.stage)
            if id not in state.jobs and flow.phase(end.stage) != StagePhase.WAITING:
                yield self._stage(flow, end, id, event.at)

    def _stage(self, flow: WorkflowState, end: StageEnd, id: JobId, at: float) -> SpanRecord:
        attributes: dict[str, Attribute] = {
            "phalanx.job.id": id,
            "phalanx.workflow.id": flow.workflow.id,
            "phalanx.stage": end.name,
            "phalanx.status": "Skipped" if end.skipped else end.status.name.capitalize(),
            "phalanx.reason": end.text[:TEXT_MAX],
        }
        error = end.text if end.status == Status.FAILED else None
        root = self._root(flow)
        return _record(flow.workflow.id, id, root, f"stage {end.name}", at, at, attributes, error)

    def _workflow(self, flow: WorkflowState, at: float) -> SpanRecord:
        made, status = flow.workflow, flow.overall_status
        attributes: dict[str, Attribute] = {
            "phalanx.workflow.id": made.id,
            "phalanx.user": made.user,
            "phalanx.stages": len(made.stages),
            "phalanx.status": status.name.capitalize(),
        }
        name = f"workflow {made.name or made.id}"
        error = "a stage failed" if status == Status.FAILED else None
        return _record(made.id, self._root(flow), None, name, made.submitted_at, at, attributes, error)

    def _root(self, flow: WorkflowState) -> str:
        """The root of a workflow's trace; each retry has one of its own."""
        id = flow.workflow.id
        run = self._runs.get(id)
        if run is None:
            run = self._runs[id] = sum(flow.retries)
        return f"{id}#{run}"


def _of_attempt(
    job: JobState,
    position: int,
    number: int,
    what: str,
    start: float,
    end: float,
    more: dict[str, Attribute],
    error: str | None = None,
) -> SpanRecord:
    """A span below that of the job."""
    made = job.job
    task = made.task_id(position)
    trace = made.id if made.workflow is None else made.workflow[0]
    attributes = {"phalanx.job.id": made.id, "phalanx.task.id": task, "phalanx.attempt": number, **more}
    return _record(trace, f"{task}/{number}/{what}", made.id, what, start, end, attributes, error)


def _record(
    trace: JobId,
    key: str,
    parent: str | None,
    name: str,
    start: float,
    end: float,
    attributes: dict[str, Attribute],
    error: str | None,
) -> SpanRecord:
    error = None if error is None else error[:TEXT_MAX]
    return SpanRecord(trace, key, parent, name, start, max(start, end), attributes, error)
