"""Workflows, as the log has them: each stage begins once its inputs have come, in the same batch, and ends once.

It shares no code with `apply`. Judged at the end of each batch, because what an end leads to stands behind it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from phalanx.core.cluster import dispatch_events as d
from phalanx.core.cluster import events as e
from phalanx.core.cluster import workflow_events as w
from phalanx.core.model.job import JobId
from phalanx.core.model.orders import Status
from phalanx.core.model.workflow import Workflow
from phalanx.sim.chronicle import Chronicle
from phalanx.sim.violation import Violation
from phalanx.sim.workload_workflow import VALUE


class FlowRecord:
    """One workflow: which stages have a job, and which have ended, since they were retried last."""

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow
        self.jobs: dict[int, JobId] = {}
        self.ends: dict[int, w.StageEnd] = {}
        self.is_cancelled = False
        self.is_stopped = False  # at a limit
        self.deadline_at = workflow.deadline_at

    def has_completed(self, stage: int) -> bool:
        return stage in self.ends and self.ends[stage].status == Status.COMPLETED

    def inputs_have_come(self, stage: int) -> bool:
        return all(map(self.has_completed, self.workflow.stages[stage].after))


class WorkflowChecker:
    """All workflows of a run."""

    def __init__(self, chronicle: Chronicle, count: Callable[[str], None]) -> None:
        self._chronicle = chronicle
        self._count = count
        self._flows: dict[JobId, FlowRecord] = {}
        self._touched: set[JobId] = set()  # in this batch
        self._results: dict[JobId, str] = {}  # of jobs of one task
        self._requests: dict[str, JobId] = {}
        self._acknowledged: dict[str, JobId] = {}

    def acknowledged(self, request_id: str, id: JobId) -> None:
        """A workflow was acknowledged: from now on it must never be lost."""
        if self._acknowledged.setdefault(request_id, id) != id or self._requests.get(request_id) != id:
            raise Violation("accepted", f"request {request_id} was answered with {id}, the log has another")

    def note(self, event: e.Event) -> None:
        match event:
            case w.WorkflowSubmitted():
                self._submitted(event)
            case e.JobSubmitted() if event.job.workflow is not None:
                self._begun(*event.job.workflow, event)
            case e.AttemptEnded() if event.status == Status.COMPLETED:
                self._results[event.key[0]] = event.exit.result
            case d.MergedEnded():
                self._results |= {end.job: end.exit.result for end in event.ends}
            case w.StagesEnded():
                self._touched.add(event.workflow)
                for end in event.ends:
                    self._ended(self._flows[event.workflow], end)
            case w.WorkflowCancelled():
                self._touched.add(event.workflow)
                self._flows[event.workflow].is_cancelled = True
                self._count("workflow cancelled")
            case w.WorkflowStopped():
                self._stopped(self._flows[event.workflow], event)
            case w.WorkflowRetried():
                self._retried(self._flows[event.workflow], event)
                self._touched.add(event.workflow)

    def _submitted(self, event: w.WorkflowSubmitted) -> None:
        if event.content.id in self._flows:
            raise Violation("workflow", f"{event.content.id} was submitted twice")
        self._flows[event.content.id] = FlowRecord(event.content)
        self._requests[event.request_id] = event.content.id
        self._touched.add(event.content.id)
        self._count("workflow")

    def _begun(self, id: JobId, stage: int, event: e.JobSubmitted) -> None:
        flow = self._flows[id]
        self._touched.add(id)
        if flow.is_stopped:
            raise Violation("workflow limit", f"stage {stage} of {id} began after the workflow was stopped")
        if stage in flow.jobs or stage in flow.ends:
            raise Violation("workflow", f"stage {stage} of {id} began twice")
        if not flow.inputs_have_come(stage):
            raise Violation("workflow", f"stage {stage} of {id} began before its inputs had come")
        flow.jobs[stage] = event.job.id
        self._count("stage")
        value = event.job.groups[0].command.env.get(VALUE)
        if value is not None:
            given = self._results.get(flow.jobs[flow.workflow.stages[stage].after[0]], "")
            if not given or msgspec.json.decode(given) != value:
                raise Violation("workflow", f"stage {stage} of {id} got {value!r}, its input gave {given!r}")

    def _ended(self, flow: FlowRecord, end: w.StageEnd) -> None:
        id, stage = flow.workflow.id, end.stage
        if stage in flow.ends:
            raise Violation("workflow", f"stage {stage} of {id} ended twice")
        flow.ends[stage] = end
        if end.parent is not None:
            self._count("stage that could never begin")
            before = flow.ends.get(end.parent)
            follows = end.parent in flow.workflow.stages[stage].after and before is not None
            if not follows or before is None or before.status != end.status or stage in flow.jobs:
                raise Violation("workflow", f"stage {stage} of {id} names {end.parent} as why it never began")
        elif stage in flow.jobs:
            finals = {task.final for task in self._chronicle.jobs[flow.jobs[stage]]}
            was_stopped = flow.is_stopped and end.status == Status.FAILED and finals == {Status.CANCELLED}
            if finals != {end.status} and not was_stopped:
                raise Violation(
                    "workflow", f"stage {stage} of {id} is {end.status.word}, its tasks are {finals}"
                )
        elif end.skipped:
            self._count("stage skipped")

    def _stopped(self, flow: FlowRecord, event: w.WorkflowStopped) -> None:
        """At its deadline, not before it; at its budget, once anything of it has run; and once."""
        self._touched.add(event.workflow)
        self._count("workflow stopped at a limit")
        is_late = flow.deadline_at is not None and event.at >= flow.deadline_at
        may_have_cost = flow.workflow.budget is not None and bool(flow.jobs or flow.ends)
        if flow.is_stopped or not (is_late or may_have_cost):
            raise Violation("workflow limit", f"{event.workflow} was stopped at {event.at}: {event.text}")
        flow.is_stopped = True

    def _retried(self, flow: FlowRecord, event: w.WorkflowRetried) -> None:
        self._count("workflow retried")
        flow.is_cancelled = flow.is_stopped = False
        flow.deadline_at = flow.deadline_at if event.deadline_at is None else event.deadline_at
        for stage in event.stages:
            flow.jobs.pop(stage, None)
            flow.ends.pop(stage, None)

    def end_of_batch(self) -> None:
        for id in sorted(self._touched):
            flow = self._flows[id]
            for stage, spec in enumerate(flow.workflow.stages):
                if flow.is_cancelled or stage in flow.jobs or stage in flow.ends:
                    continue
                if flow.inputs_have_come(stage):
                    raise Violation("workflow", f"stage {stage} of {id} may begin, and did not")
                if any(each in flow.ends and not flow.has_completed(each) for each in spec.after):
                    raise Violation("workflow", f"stage {stage} of {id} waits for what never completes")
        self._touched.clear()

    def finish(self) -> None:
        """Every workflow has ended, each of its stages."""
        for id, flow in self._flows.items():
            is_over = flow.is_cancelled or len(flow.ends) == len(flow.workflow.stages)
            if flow.deadline_at is not None and not is_over:
                raise Violation("workflow limit", f"{id} goes on after its deadline, {flow.deadline_at}")
            for stage in range(len(flow.workflow.stages)):
                if stage not in flow.ends and not flow.is_cancelled:
                    raise Violation("workflow", f"stage {stage} of {id} never ended")
