"""What stands in the state at one moment and is not counted as it happens: jobs, tasks, nodes, devices.

The pass over all jobs is made in pieces, between which others are served, so the sums may be off by what happened
meanwhile. Labels come from closed lists: declared queues (the first 100 by name, the rest as `other`), words of ours,
and nodes (the first 10,000).
"""

from __future__ import annotations

from collections import Counter
from itertools import islice

from msgspec import Struct, field

from phalanx.api.server.limits import TimeSlices
from phalanx.coordinator.metrics.accounts import is_disabled
from phalanx.coordinator.views_cluster import node_status
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.nodes import NodeState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.units import Gate
from phalanx.core.model.amounts import CORES, MILLICORES
from phalanx.core.model.job import QueueUser
from phalanx.core.model.orders import Status
from phalanx.core.model.queues import DEFAULT
from phalanx.core.model.resources import Request

QUEUES_MAX = 100
NODES_MAX = 10_000
JOBS_PER_GLANCE = 32  # between two looks at the clock
OTHER = "other"
# Of a job that holds no place: in which of four ways it waits, and for what.
WAITS: dict[Gate, tuple[str, str]] = {
    Gate.HELD: ("held", "held"),
    Gate.APPROVAL: ("held", "approval"),
    Gate.BEGIN: ("held", "begin"),
    Gate.APPLIED: ("held", "members"),
    Gate.DEPENDENCY: ("held", "dependency"),
    Gate.BACKOFF: ("held", "backoff"),
    Gate.MERGED: ("in_progress", "merged"),
    Gate.PROMISE: ("in_progress", "victims_leaving"),
    Gate.RESTART: ("in_progress", "restart"),
}
WORDS = {status: status.word for status in Status}
QUOTA, CAPACITY = ("policy_wait", "quota"), ("capacity_wait", "no_room")
USER_LIMIT = ("policy_wait", "user_limit")


class NodeSurvey(Struct):
    """What is shown of one node."""

    heard_s: float
    devices_allocated: int


class Survey(Struct):
    """Sums over the state."""

    jobs: Counter[tuple[str, str]] = field(default_factory=Counter)  # by state and queue
    unplaced: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # by queue, reason and cause
    ready: int = 0  # tasks that could be placed at once if there were room
    nodes: Counter[str] = field(default_factory=Counter)  # by state
    nodes_disabled: int = 0  # of those that are not lost
    by_node: dict[str, NodeSurvey] = {}
    devices: int = 0
    devices_failed: int = 0  # out of service, of those
    devices_allocated: int = 0
    millicores: int = 0
    millicores_allocated: int = 0
    allocations: int = 0


def empty_survey() -> Survey:
    """Nothing is there. The default queue is shown all the same, so that its series do not come and go."""
    found = Survey()
    found.jobs.update({(status.word, DEFAULT): 0 for status in Status})
    found.unplaced.update({(DEFAULT, *cause): 0 for cause in {*WAITS.values(), QUOTA, USER_LIMIT, CAPACITY}})
    return found


async def survey(state: ClusterState, slices: TimeSlices, now: float) -> Survey:
    """Look at everything once."""
    found = empty_survey()
    piece = await slices.turn()
    for node in list(state.nodes.values()):
        if piece.is_over:
            piece = await slices.turn()
        if node.name in state.nodes:
            _add_node(found, state, node, now)
    queues = queue_labels(state)
    limits: dict[tuple[QueueUser, Request], tuple[str, str]] = {}
    for number, job in enumerate(list(state.jobs.values())):
        if not number % JOBS_PER_GLANCE and piece.is_over:
            piece = await slices.turn()
        _add_job(found, state, job, queues, limits)
    return found


def queue_labels(state: ClusterState) -> frozenset[str]:
    """The queues that have a label of their own."""
    return frozenset((DEFAULT, *islice(sorted(state.queues.quotas), QUEUES_MAX)))


def _add_job(
    found: Survey,
    state: ClusterState,
    job: JobState,
    queues: frozenset[str],
    limits: dict[tuple[QueueUser, Request], tuple[str, str]],
) -> None:
    queue = job.job.queue if job.job.queue in queues else OTHER
    found.jobs[WORDS[job.overall_status], queue] += 1
    pending = job.counts[Status.PENDING]
    if not pending:
        return
    gates = job.closed_gates()
    if not gates and len(job.status) == 1:
        found.ready += not job.delayed
    elif not gates:
        found.ready += sum(group.pending_count for group in job.groups if group.may_begin)
    if not job.live:
        cause = WAITS[gates[0]] if gates else _waits_for(state, job, limits)
        found.unplaced[queue, *cause] += 1


def _waits_for(
    state: ClusterState, job: JobState, limits: dict[tuple[QueueUser, Request], tuple[str, str]]
) -> tuple[str, str]:
    """Whether a limit of the queue, one of its user or a lack of room keeps it. Those that ask alike are asked once."""
    key = job.job.queue_user, job.groups[0].request
    if key not in limits:
        no = state.queues.lacks(key[0], [(key[1], 1)])
        limits[key] = CAPACITY if no is None else USER_LIMIT if "user" in no.numbers else QUOTA
    return limits[key]


def _add_node(found: Survey, state: ClusterState, node: NodeState, now: float) -> None:
    status = node_status(node)
    found.nodes["Drained" if status == "Online" and node.drain_reason is not None else status] += 1
    ledger = state.table.ledgers[node.row]
    taken = len({device for lane in node.lanes.values() for device in lane.grant.devices})
    found.allocations += len(node.lanes)
    found.nodes_disabled += is_disabled(node)
    if not node.lost:
        millicores = MILLICORES[ledger.capacity.cores]
        found.devices += len(node.capacity.devices)
        found.devices_failed += len(node.capacity.devices) - len(ledger.capacity.devices)
        found.millicores += millicores
        found.millicores_allocated += max(0, millicores - ledger.free[CORES])
    found.devices_allocated += taken
    if len(found.by_node) < NODES_MAX:
        found.by_node[node.name] = NodeSurvey(max(0.0, now - node.heard_at), taken)
