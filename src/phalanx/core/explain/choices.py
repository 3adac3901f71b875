"""A choice of a node by one of FlowMesh's modes, in words: of how many, for what, and who came next."""

from __future__ import annotations

from collections import Counter

from phalanx.core.cluster.jobs import JobState
from phalanx.core.model import reason
from phalanx.core.model.amounts import plural
from phalanx.core.model.bindings import DispatchView, workflow_key
from phalanx.core.model.dispatch import LANE, DispatchNote
from phalanx.core.model.job import Job
from phalanx.core.model.reason import Reason
from phalanx.core.model.resources import Request
from phalanx.core.model.table import NodeTable
from phalanx.core.placement.dispatch import bound_node


def told_choice(note: DispatchNote) -> str:
    """What a choice rested on, in one phrase."""
    told = f"chosen from {plural(note.pool, 'node')} with room ({note.strategy})"
    if note.strategy == LANE:
        told = "chosen because short tasks of its kind run there one after another (lane)"
    if note.reused:
        told += f", {note.reused} of its models and datasets loaded there already"
    if note.strategy == "best_fit" or note.weight:
        told += f", λ {note.weight:g}, score {note.score:.6g}"
    if note.learned_s:
        told += f", by earlier run times ({note.learned_s:g} s on such a node)"
    if note.others:
        told += f"; next {', '.join(f'{name} {score:.6g}' for name, score in note.others)}"
    return told


def why_there(job: JobState, position: int) -> Reason | None:
    """Why a task that holds a place was given that node, if a mode chose it or its job is spread."""
    attempt = job.live.get(position)
    note = None if attempt is None else attempt.note
    if attempt is None or note is None:
        return None if attempt is None else _why_spread(job, position, attempt.node)
    others = dict(note.others)
    told = f"{attempt.node} was {told_choice(note)}"
    return reason.dispatched(
        attempt.node, note.strategy, note.pool, note.reused, note.weight, note.score, others, told
    )


def _why_spread(job: JobState, position: int, node: str) -> Reason | None:
    """Over how many nodes the tasks that hold places stand, if they were to stand apart."""
    if not job.group_of(position).request.spread:
        return None
    places = Counter(each.node for each in job.live.values())
    return reason.spread_over(node, places[node], places.total(), len(places))


def why_one_node(view: DispatchView, nodes: NodeTable, job: Job, request: Request) -> Reason | None:
    """That a task waits for one node, and which mode wants it so; None if it may be given any."""
    asked = job.dispatch
    host = None if asked is None or request.target is not None else bound_node(view, nodes, job, request)
    if asked is None or host is None:
        return None
    if asked.mode == "static_worker":
        return reason.static_worker_unavailable(host, workflow_key(job))
    if asked.mode == "fixed_pipeline":
        return reason.no_worker_ready(host, asked.task_type)
    return reason.sticky_worker_busy(host)
