"""Whether a gang could ever be placed here: asked at submit, and when it is explained why one waits.

The same search that places it is asked about empty nodes, those that are away counted, for they may come back. Why
there is no room now is said by `place_gang` itself, with the slots of every domain; what to change instead is tried
in `fixes.py`.
"""

from __future__ import annotations

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
from phalanx.core.model.waiting import Ask, Waiting, WaitingGang
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.gang.place import place_gang
from phalanx.core.placement.gang.search import GangSearch, PartSlots
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
    ask = Ask(unit)
    parts = ask.parts
    if not parts:
        return None
    slots = [PartSlots(part.need, part.most, nodes.slots_ever(part.request)) for part in parts]
    no = Shortage(nodes, parts, GangSearch(nodes.tree, slots, ask.gather, bound=ask.bound)).never()
    if no is not None or len(parts) == 1 or ask.bound or len(nodes) > NODES_TRIED_MAX:
        return no
    return _tried_on_empty_nodes(nodes, unit, sum(part.need for part in parts))


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
