"""The whole state as bytes, so that a restart need not replay everything, and one job as bytes, for the history.

Only what cannot be derived is kept: ledgers, lanes and the queue are rebuilt from the live attempts.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable
from heapq import heapify
from operator import attrgetter

from msgspec import Struct, msgpack, structs

from phalanx.core.cluster.apply.approvals import wait_for_approval
from phalanx.core.cluster.apply.bindings import restore_bindings
from phalanx.core.cluster.apply.dependencies import restore_dependents
from phalanx.core.cluster.apply.grants import (
    keep_for,
    note_completeness,
    queue_up,
    restore_merged,
    share_lanes,
    tenant,
)
from phalanx.core.cluster.apply.nodes import begin_term
from phalanx.core.cluster.apply.overlay import restore_overlay
from phalanx.core.cluster.apply.workflows import restore_workflows
from phalanx.core.cluster.brake import Brake
from phalanx.core.cluster.conditions import Condition, told_preemption
from phalanx.core.cluster.environments import EnvironmentImage, HistoryEnvironments
from phalanx.core.cluster.jobs import KEPT_RESULT_BYTES, JobState
from phalanx.core.cluster.node_image import NodeImage
from phalanx.core.cluster.nodes import NodeState
from phalanx.core.cluster.overlay import Overlay, OverlayImage
from phalanx.core.cluster.state import BACKOFF, BEGIN, ClusterState, Timers
from phalanx.core.cluster.units import Attempt, Formation, Promise
from phalanx.core.cluster.usage import DeviceNumbers, JobUsage
from phalanx.core.cluster.workflow_image import WorkflowImage, workflow_image, workflow_state
from phalanx.core.model.bindings import BindingsImage
from phalanx.core.model.credential import Credential
from phalanx.core.model.health import in_service
from phalanx.core.model.job import Job, JobId
from phalanx.core.model.lanes import Lane
from phalanx.core.model.login import LoginsImage
from phalanx.core.model.orders import Status, Why
from phalanx.core.model.queues import Quota
from phalanx.core.model.tenants import NEVER
from phalanx.core.model.topology import Topology
from phalanx.core.model.usage import UsageTotals
from phalanx.core.model.waiting import Waiting


class GroupImage(Struct, array_like=True):
    fresh: int
    again: list[int]
    run_s: float
    samples: int


class WholeImage(Struct, array_like=True):
    """What a job knows of itself as one: its formation, its promise, its restarts."""

    outcome: Status | None
    done: list[int]
    satisfied: bool
    forming: tuple[int, float] | None  # number, formed at
    formations: int
    recalls: int
    restarts: int
    setbacks: int
    restarting: bool
    hold_until: float
    promise: Promise | None


class JobImage(Struct, array_like=True):
    job: Job
    arrival: int
    status: bytearray
    why: bytearray
    attempts: bytes
    code: bytes
    times: bytes | None
    nodes: bytes | None
    groups: list[GroupImage]
    delayed: dict[int, float]
    charged: dict[int, int]
    losses: dict[int, int]
    details: dict[int, tuple[str, str]]
    first_started_at: float | None
    ended_at: float | None
    first_code: int | None
    live: list[Attempt]
    conditions: dict[int, tuple[float, str]]
    whole: WholeImage
    past: dict[int, float] = {}  # of conditions that are no longer true: since when
    earlier: dict[int, dict[int, int]] = {}
    held_because: str = ""
    preempted: list[int] | None = None  # whose condition is a preemption; None: only its sentence says so
    awaits: list[JobId] = []
    results: dict[int, str] = {}
    kept_results: dict[int, tuple[int, str]] = {}
    usage: bytes | None = None
    device_usage: dict[int, DeviceNumbers] = {}
    usage_totals: UsageTotals | None = None
    begins_at: float = 0.0
    held_by: str = ""
    environments: HistoryEnvironments | None = None  # only in the history
    approve_by: float | None = None
    cancelled_by: dict[int, str] = {}


class ClusterImage(Struct, array_like=True):
    epoch: int
    revision: int
    arrivals: int
    nodes: list[NodeImage]
    jobs: list[JobImage]
    ended: list[str]
    requests: list[tuple[str, list[str]]]  # only in old images, without users
    topology: Topology
    quotas: dict[str, Quota]
    keyring: list[Credential] = []
    secret: str = ""
    known_names: list[str] | None = None  # None: those of the nodes
    generation_floor: int = 0
    brake: Brake | None = None
    request_ids: list[tuple[str, str, list[str]]] = []  # with the user
    workflows: list[WorkflowImage] = []
    ended_workflows: list[str] = []
    bindings: BindingsImage | None = None
    overlay: OverlayImage | None = None
    repeated: list[tuple[JobId, list[JobId]]] = []
    environments: list[EnvironmentImage] = []
    logins: LoginsImage | None = None


def encode_state(state: ClusterState) -> bytes:
    """All of it."""
    return msgpack.encode(
        ClusterImage(
            state.epoch,
            state.revision,
            state.arrivals,
            [_node_image(node) for node in state.nodes.values()],
            [_job_image(job) for job in state.jobs.values()],
            list(state.ended),
            [],
            state.table.topology,
            state.queues.quotas,
            list(state.keyring.by_id.values()),
            state.keyring.secret,
            state.known_names,
            state.generation_floor,
            state.brake,
            list(state.requests),
            [workflow_image(flow) for flow in state.workflows.values()],
            list(state.ended_workflows),
            state.bindings.image(),
            state.overlay.image() if state.overlay else None,
            list(state.repeated.items()),
            state.environments.image(),
            state.logins.image(),
        )
    )


def decode_state(body: bytes, rules: Timers) -> ClusterState:
    """The state that `encode_state` saw."""
    image = msgpack.decode(body, type=ClusterImage)
    state = ClusterState(rules)
    state.epoch, state.revision, state.arrivals = image.epoch, image.revision, image.arrivals
    state.table.set_topology(image.topology)
    state.queues.quotas, state.keyring.secret = image.quotas, image.secret
    state.waiting, state.generation_floor = Waiting(state.queues.by_user), image.generation_floor
    for credential in image.keyring:
        state.keyring.put(credential)
    state.known_names = image.known_names or [node.name for node in image.nodes]
    for place, node in enumerate(image.nodes):
        _restore_node(state, node, place)
    for job in image.jobs:
        _restore_job(state, job)
    for node in image.nodes:
        _restore_lanes(state, node)
    state.environments.restore(image.environments, (job.job for job in state.jobs.values()))
    state.overlay = Overlay(image.overlay)
    restore_overlay(state)
    restore_workflows(state, [workflow_state(flow) for flow in image.workflows])
    restore_dependents(state)
    restore_merged(state)
    for each in state.jobs.values():
        if each.promise is not None:
            keep_for(state, each, each.promise.made_at)
        if each.forming is not None:
            note_completeness(state, each)
        if not each.is_over:
            queue_up(state, each)
    state.ended_workflows = OrderedDict.fromkeys(image.ended_workflows)
    state.ended = OrderedDict.fromkeys(image.ended)
    old = [state.jobs[job] for job in image.ended]
    state.ended_bytes = sum(job.result_bytes + job.size_bytes for job in old)
    state.requests.restore(image.requests, state.jobs, image.request_ids)
    state.repeated.restore(image.repeated)
    state.logins.restore(image.logins)
    heapify(state.retries)
    if image.bindings is not None:
        restore_bindings(state, image.bindings)
    begin_term(state, 0.0)
    state.brake = image.brake
    return state


def encode_job(job: JobState, environments: HistoryEnvironments | None = None) -> bytes:
    """One job, for the history."""
    image = _job_image(job)
    image.environments = environments
    return msgpack.encode(image)


def decode_job(body: bytes) -> JobState:
    """A job out of the history; it has no live attempts."""
    return _job_state(msgpack.decode(body, type=JobImage), [0, 0, 0, 0, 0, 0])


# What an image has under the same name as its object is copied by name; the rest is told one by one.
_SAME_IN_NODE = tuple(
    set(NodeImage.__struct_fields__) - {"name", "number", "leftovers", "lanes", "failed_jobs"}
)
_SAME_IN_WHOLE = tuple(set(WholeImage.__struct_fields__) - {"done", "forming"})
_SAME_IN_JOB = (
    "job", "status", "why", "delayed", "charged", "losses", "details", "first_started_at", "ended_at", "first_code",
    "earlier", "held_because", "results", "kept_results", "begins_at", "held_by", "approve_by", "cancelled_by",
)  # fmt: skip
_whole_facts = attrgetter(*WholeImage.__struct_fields__)
_node_facts = attrgetter(*NodeImage.__struct_fields__)


def _copy(source: object, target: object, names: Iterable[str]) -> None:
    for name in names:
        setattr(target, name, getattr(source, name))


def _node_image(node: NodeState) -> NodeImage:
    image = NodeImage(*_node_facts(node))
    image.leftovers = sorted(node.leftovers)
    image.lanes = [(lane.id, lane.grant, list(lane.attempts)) for lane in node.lanes.values()]
    return image


def _job_image(job: JobState) -> JobImage:
    conditions = job.conditions.items()
    return JobImage(
        job.job,
        job.arrival,
        job.status,
        job.why,
        job.attempts.tobytes(),
        job.code.tobytes(),
        job.times.tobytes() if job.times is not None else None,
        job.nodes.tobytes() if job.nodes is not None else None,
        [GroupImage(each.fresh, each.again, each.run_s, each.samples) for each in job.groups],
        job.delayed,
        job.charged,
        job.losses,
        job.details,
        job.first_started_at,
        job.ended_at,
        job.first_code,
        list(job.live.values()),
        {position: (each.at, each.message) for position, each in conditions},
        _whole_image(job),
        {position: each.past_at for position, each in conditions if each.past_at is not None},
        job.earlier,
        job.held_because,
        [position for position, each in conditions if each.preempted],
        sorted(job.awaits),
        job.results,
        job.kept_results,
        None if job.usage.column is None else job.usage.column.tobytes(),
        job.usage.devices,
        job.usage.totals if job.usage.totals.attempts else None,
        job.begins_at,
        job.held_by,
        approve_by=job.approve_by,
        cancelled_by=job.cancelled_by,
    )


def _whole_image(job: JobState) -> WholeImage:
    image = WholeImage(*_whole_facts(job))
    image.done = sorted(job.done)
    image.forming = None if job.forming is None else (job.forming.number, job.forming.formed_at)
    if job.promise is not None:  # a list that says the same in the same order each time
        image.promise = structs.replace(job.promise, victims=sorted(job.promise.victims))
    return image


def _restore_node(state: ClusterState, image: NodeImage, place: int) -> None:
    state.table.put(image.name, in_service(image.capacity, image.health))
    number = place if image.number is None else image.number
    node = state.nodes[image.name] = NodeState(image.name, state.table.rows[image.name], number)
    _copy(image, node, _SAME_IN_NODE)
    node.leftovers = set(image.leftovers)
    if node.excluded_until is not None:
        state.excluded[image.name] = None


def _restore_job(state: ClusterState, image: JobImage) -> None:
    job = _job_state(image, state.counts, state.incomplete, state.rules.aging_s)
    state.add_job(job)
    wait_for_approval(state, job, job.approve_by)
    share_lanes(state, job)
    for status, count in enumerate(job.counts[1:], start=1):
        state.counts[status] += count
    for attempt in image.live:
        node, group = state.nodes[attempt.node], job.group_of(attempt.key[1])
        attempt.row, attempt.group = node.row, group.number
        job.live[attempt.key[1]] = node.attempts[attempt.key] = attempt
        replica = group.replica(attempt.key[1])
        group.live[replica] = group.live.get(replica, 0) + 1
        group.staying += attempt.ending is None
    state.retries += [(at, job.job.id, position) for position, at in job.delayed.items()]
    whole = ((job.hold_until, BACKOFF), (job.begins_at, BEGIN))
    state.retries += [(at, job.job.id, what) for at, what in whole if at]
    _restore_whole(state, job, image.whole)


def _restore_whole(state: ClusterState, job: JobState, image: WholeImage) -> None:
    if image.forming is not None:
        job.forming = Formation(*image.forming)
        state.forming[job.job.id] = None
        for position, attempt in job.live.items():
            if attempt.formation == job.forming.number and not attempt.released:
                job.forming.positions.add(position)
                if attempt.ready:
                    job.forming.ready.add(position)


def _job_state(
    image: JobImage, totals: list[int], incomplete: set[str] | None = None, aging_s: float = 0.0
) -> JobState:
    job = JobState(image.job, image.arrival, totals, incomplete, aging_s)
    job.attempts, job.code = array("H", image.attempts), array("h", image.code)
    job.times = None if image.times is None else array("d", image.times)
    job.nodes = None if image.nodes is None else array("I", image.nodes)
    _copy(image, job, _SAME_IN_JOB)
    job.usage = JobUsage(image.usage, image.device_usage, image.usage_totals)
    job.result_bytes = sum(map(len, job.results.values())) + KEPT_RESULT_BYTES * len(job.kept_results)
    job.counts = [job.status.count(status) for status in Status]
    for group, kept in zip(job.groups, image.groups, strict=True):
        _copy(kept, group, GroupImage.__struct_fields__)
    _copy(image.whole, job, _SAME_IN_WHOLE)
    job.done, job.awaits = set(image.whole.done), set(image.awaits)
    for position, (at, text) in image.conditions.items():
        preempted = told_preemption(text) if image.preempted is None else position in image.preempted
        job.conditions[position] = Condition(at, text, preempted, image.past.get(position))
    return job


def _restore_lanes(state: ClusterState, image: NodeImage) -> None:
    node = state.nodes[image.name]
    for lane_id, grant, keys in image.lanes:
        job = state.jobs[keys[0][0]]
        attempt = job.live[keys[0][1]]
        lane = node.lanes[lane_id] = Lane(lane_id, node.name, grant, job.groups[attempt.group].lanes)
        lane.attempts = dict.fromkeys(keys)
        endings = [state.jobs[key[0]].live[key[1]].ending for key in keys]
        is_failed = any(device in node.health.failed for device in grant.devices)
        lane.is_slow = Why.EVICTED in endings or None not in endings or is_failed
        state.table.retake(node.row, grant)
        state.queues.take(job.job.queue_user, grant)
        held, leaves = tenant(job, attempt, attempt.since), None not in endings
        gone = {"evictable_at": NEVER, "ends_at": attempt.since, "is_leaving": True} if leaves else {}
        state.tenants.add(structs.replace(held, **gone))
        if job.gang is not None:
            state.tenants.needed[job.job.id] = tuple(group.needed for group in job.job.groups)
