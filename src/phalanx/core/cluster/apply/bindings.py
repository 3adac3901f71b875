"""What placements and ends mean for the choice of nodes: who is bound to which, and what is loaded where."""

from __future__ import annotations

from phalanx.core.cluster import dispatch_events as d
from phalanx.core.cluster import events as e
from phalanx.core.cluster.apply.nodes import reopen
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.nodes import NodeState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.bindings import BindingsImage, workflow_key
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Exit
from phalanx.core.model.run_times import stage_kind, work_kind
from phalanx.core.model.task_results import loaded_in


def note_placed(state: ClusterState, job: JobState, node: NodeState) -> None:
    """A task was given a node by a mode."""
    asked = job.job.dispatch
    if asked is None:
        return
    state.bindings.deferred.discard(job.job.id)
    former = state.bindings.note_placed(job.job, node.name)
    if asked.mode == "static_worker" and not node.bound_to:
        node.bound_to = workflow_key(job.job)
        reopen(state, node)
    if former is not None:
        _let_go(state, former, workflow_key(job.job))


def deferred(state: ClusterState, event: d.TaskDeferred) -> None:
    state.bindings.deferred.add(state.job(event.job).job.id)


def note_ended(state: ClusterState, job: JobState, node: str, event: e.AttemptEnded, *, merged: bool) -> None:
    """An attempt has ended there: what it used is loaded, unless its result says otherwise."""
    if event.exit.code != 0:
        return
    if not merged:
        _learn(state, job.job, node, event.exit)
    asked, contexts = job.job.dispatch, state.bindings.contexts
    if asked is None:
        return
    if asked.context:
        contexts.use(node, asked.context, event.at)
    if (loaded := event.exit.loaded or loaded_in(event.exit.result)) is not None:
        contexts.drop(node, loaded.evicted)
        contexts.use(node, loaded.cached, event.at)


def _learn(state: ClusterState, job: Job, node: str, exit: Exit) -> None:
    """How long such a task takes there."""
    if exit.started_at is None or exit.ended_at is None:
        return
    seconds, capacity = exit.ended_at - exit.started_at, state.nodes[node].capacity
    if job.dispatch is not None and job.dispatch.task_type:
        state.bindings.run_times.learn(work_kind(job.user, job.dispatch), capacity, seconds)
    flow = None if job.workflow is None else state.workflows.get(job.workflow[0])
    if job.workflow is not None and flow is not None and flow.workflow.name:
        name = flow.workflow.stages[job.workflow[1]].name
        state.bindings.stage_times.learn(stage_kind(job.user, flow.workflow.name, name), capacity, seconds)


def unbind(state: ClusterState, key: str) -> None:
    """A workflow, or a job of none, has ended: the node that it had to itself is for all again."""
    node = state.bindings.workflows.pop(key, None)
    if node is not None:
        _let_go(state, node, key)


def _let_go(state: ClusterState, name: str, key: str) -> None:
    node = state.nodes.get(name)
    if node is not None and node.bound_to == key:
        node.bound_to = ""
        reopen(state, node)


def restore_bindings(state: ClusterState, image: BindingsImage) -> None:
    """Those of an image; `begin_term` opens the nodes after this."""
    state.bindings.restore(image)
    for key, name in state.bindings.workflows.items():
        if (node := state.nodes.get(name)) is not None:
            node.bound_to = key
