"""Dispatch modes, as the log has them: a node that is bound to a workflow runs nothing else until that has ended.

It shares no code with `apply`.
"""

from __future__ import annotations

from collections.abc import Callable

from phalanx.core.cluster import dispatch_events as d
from phalanx.core.cluster import events as e
from phalanx.core.cluster import workflow_events as w
from phalanx.core.model.dispatch import Dispatch
from phalanx.core.model.job import JobId
from phalanx.core.model.orders import AttemptKey
from phalanx.sim.violation import Violation


class DispatchChecker:
    """Who is bound to which node, and which models each node has used."""

    def __init__(self, count: Callable[[str], None]) -> None:
        self._count = count
        self._asked: dict[JobId, Dispatch] = {}
        self._flows: dict[JobId, JobId] = {}
        self._stages: dict[JobId, set[int]] = {}  # of each workflow, those that have not ended
        self._released: dict[JobId, set[int]] = {}  # and those that have a job
        self._bound: dict[str, JobId] = {}  # by node
        self._used: dict[str, set[str]] = {}  # by node: all names that stages which ended well there had
        self._deferred: set[JobId] = set()
        self._nodes: dict[AttemptKey, str] = {}

    def note(self, event: e.Event) -> None:
        match event:
            case w.WorkflowSubmitted():
                self._stages[event.content.id] = set(range(len(event.content.stages)))
                self._released[event.content.id] = set()
            case w.WorkflowRetried():
                self._stages[event.workflow] |= set(event.stages)
                self._released[event.workflow] -= set(event.stages)
            case w.WorkflowCancelled():  # what has no job ends at once
                waiting = self._stages[event.workflow] - self._released[event.workflow]
                self._ended(event.workflow, waiting)
            case w.StagesEnded():
                self._ended(event.workflow, {end.stage for end in event.ends})
            case e.JobSubmitted() if (
                event.job.dispatch is not None
            ):  # a stage, or a job of a queue with a mode
                self._asked[event.job.id] = event.job.dispatch
                if event.job.workflow is not None:
                    self._flows[event.job.id], stage = event.job.workflow
                    self._released[event.job.workflow[0]].add(stage)
            case e.TaskPlaced():
                self._placed(event)
            case d.TaskDeferred():
                if event.job in self._deferred:
                    raise Violation("dispatch", f"{event.job} began to wait for {event.node} twice")
                self._deferred.add(event.job)
                self._count("wait for a sticky node")
            case d.MergedEnded():
                for end in event.ends:
                    self._count(f"merged task {end.status.word.lower()}")
                for _ in event.alone:
                    self._count("merged task that runs by itself")
            case e.AttemptEnded() if event.exit.code == 0:
                self._learn(event)

    def _placed(self, event: e.TaskPlaced) -> None:
        job = event.key[0]
        self._deferred.discard(job)
        flow, asked = self._flows.get(job), self._asked.get(job)
        owner = self._bound.get(event.node)
        if owner is not None and owner != flow:
            raise Violation("dispatch", f"{event.key} was placed on {event.node}, which is bound to {owner}")
        if asked is None:
            return
        self._nodes[event.key] = event.node
        if flow is None:
            return
        if asked.mode == "static_worker":
            self._bound = {node: other for node, other in self._bound.items() if other != flow}
            self._bound[event.node] = flow
        if event.note is None and not event.promised:
            raise Violation("dispatch", f"{event.key} was placed without a note of the choice")
        if event.note is not None:
            self._count(f"dispatch by {event.note.strategy}")
        if event.note is not None and event.note.reused:
            self._count("dispatch to a node with the model")
            if not self._used.get(event.node, set()) & set(asked.context):
                raise Violation("dispatch", f"{event.key} was placed for a model that {event.node} never had")

    def _learn(self, event: e.AttemptEnded) -> None:
        asked, node = self._asked.get(event.key[0]), self._nodes.pop(event.key, None)
        if asked is not None and node is not None:
            self._used.setdefault(node, set()).update(asked.context)

    def _ended(self, flow: JobId, stages: set[int]) -> None:
        self._stages[flow] -= stages
        if not self._stages[flow]:
            self._bound = {node: other for node, other in self._bound.items() if other != flow}
