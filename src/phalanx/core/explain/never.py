"""Whether a gang could ever be placed here: asked at submit, and by whoever explains why one waits.

The same search that places it is asked about empty nodes, those that are away counted, for they may come back. Why
there is no room now is said by `place_gang` itself, with the slots of every domain; what to change instead is tried
in `fixes.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.core.cluster.decide import jobs as decide_jobs
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model import reason
from phalanx.core.model.job import Job
from phalanx.core.model.plan import Snapshot
from phalanx.core.model.queue import Queues
from phalanx.core.model.reason import Reason
from phalanx.core.model.table import NodeTable
from phalanx.core.model.tenants import Tenants
from phalanx.core.model.waiting import Waiting, WaitingGang
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.gang.place import place_gang
from phalanx.core.placement.gang.rules import binding_rules
from phalanx.core.placement.gang.search import GangSearch, GroupAsk
from phalanx.core.placement.gang.shapes import MemberShape, shapes_of
from phalanx.core.placement.gang.shortage import Shortage

NODES_TRIED_MAX = 256  # on more nodes groups that share them are not tried out, only counted


def why_never(state: ClusterState, job: JobState) -> Reason | None:
    """Why a job would be refused as soon as it is submitted, or None if it could run."""
    no = decide_jobs.why_never(state, job.job)
    return no if no is not None or job.gang is None else gang_never(state.table, job.gang)


def whole_never(nodes: NodeTable, job: Job) -> Reason | None:
    """Why a job could not start whole even if nothing else ran; None for one that is no gang."""
    gang = JobState(job, 0, [0] * 6).gang
    return None if gang is None else gang_never(nodes, gang)


def gang_never(nodes: NodeTable, unit: WaitingGang) -> Reason | None:
    """Why this gang could not start here even if nothing else ran, or None if it could, as far as we can tell."""
    shapes = shapes_of(unit.wanted())
    if not shapes:
        return None
    bound = [row for row, count in unit.bound() for _ in range(count)]
    no = Shortage(nodes, shapes, _search(nodes, shapes, unit, bound)).never()
    if no is not None or len(shapes) == 1 or bound or len(nodes) > NODES_TRIED_MAX:
        return no
    return _tried_on_empty_nodes(nodes, unit, sum(shape.need for shape in shapes))


def _search(
    nodes: NodeTable, shapes: Sequence[MemberShape], unit: WaitingGang, bound: Sequence[int]
) -> GangSearch:
    asks = [GroupAsk(shape.need, shape.most, nodes.slots_ever(shape.request)) for shape in shapes]
    return GangSearch(nodes.tree, asks, binding_rules(unit), bound=bound)


def _tried_on_empty_nodes(nodes: NodeTable, unit: WaitingGang, needed: int) -> Reason | None:
    """Each group finds room on its own; whether they do beside each other has to be tried."""
    empty = NodeTable()
    empty.set_topology(nodes.topology)
    for ledger in nodes:
        empty.put(ledger.name, ledger.capacity)
        empty.set_open(ledger.name, True)
    draft = Draft(Snapshot(empty, Waiting(), 0, Tenants(), Queues(), 0.0))
    found = place_gang(draft, unit)
    if not isinstance(found, Reason) or found.numbers.get("gave_up"):
        return None
    has_rule = any(rule.must for rule in unit.job.gang.gather) if unit.job.gang else False
    return reason.groups_too_large(needed, has_rule, found.numbers)
