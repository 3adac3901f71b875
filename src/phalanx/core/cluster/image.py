"""The whole state as bytes, so that a restart need not replay everything, and one job as bytes, for the history.

Only what cannot be derived is kept: ledgers, lanes and the queue are rebuilt from the live attempts.
"""

from __future__ import annotations

from array import array
from heapq import heapify

from msgspec import Struct, msgpack

from phalanx.core.cluster.jobs import Attempt, JobState
from phalanx.core.cluster.membership import begin_term
from phalanx.core.cluster.state import ClusterState, NodeState, Rules
from phalanx.core.model.job import Job
from phalanx.core.model.lane import Lane
from phalanx.core.model.orders import AttemptKey
from phalanx.core.model.resources import Capacity, Grant
from phalanx.core.model.status import Status, Why


class AttemptImage(Struct, array_like=True):
    key: AttemptKey
    node: str
    lane: int
    grant: Grant
    placed_at: float
    started_at: float | None
    ending: Why | None
    paused: bool | None
    suspicions: int


class JobImage(Struct, array_like=True):
    job: Job
    arrival: int
    status: bytes
    why: bytes
    attempts: bytes
    code: bytes
    times: bytes | None
    nodes: bytes | None
    fresh: int
    again: list[int]
    delayed: dict[int, float]
    charged: dict[int, int]
    losses: dict[int, int]
    details: dict[int, tuple[str, str]]
    first_started_at: float | None
    ended_at: float | None
    first_code: int | None
    run_s: float
    samples: int
    live: list[AttemptImage]


class NodeImage(Struct, array_like=True):
    name: str
    incarnation: str
    origin: str
    capacity: Capacity
    lost: bool
    drain_reason: str | None
    next_lane: int
    leftovers: list[AttemptKey]
    lanes: list[tuple[int, Grant, list[AttemptKey]]]


class ClusterImage(Struct, array_like=True):
    epoch: int
    revision: int
    arrivals: int
    nodes: list[NodeImage]
    jobs: list[JobImage]
    ended: list[str]
    requests: list[tuple[str, list[str]]]


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
            list(state.requests.items()),
        )
    )


def decode_state(body: bytes, rules: Rules) -> ClusterState:
    """The state that `encode_state` saw."""
    image = msgpack.decode(body, type=ClusterImage)
    state = ClusterState(rules)
    state.epoch, state.revision, state.arrivals = image.epoch, image.revision, image.arrivals
    for node in image.nodes:
        _restore_node(state, node)
    for job in image.jobs:
        _restore_job(state, job)
    for node in image.nodes:
        _restore_lanes(state, node)
    state.ended.update((job, None) for job in image.ended)
    state.requests.update(image.requests)
    heapify(state.retries)
    begin_term(state, 0.0)
    return state


def encode_job(job: JobState) -> bytes:
    """One job, for the history."""
    return msgpack.encode(_job_image(job))


def decode_job(body: bytes) -> JobState:
    """A job out of the history; it has no live attempts."""
    return _job_state(msgpack.decode(body, type=JobImage), [0, 0, 0, 0, 0, 0])


def _node_image(node: NodeState) -> NodeImage:
    lanes = [(lane.id, lane.grant, list(lane.attempts)) for lane in node.lanes.values()]
    return NodeImage(
        node.name,
        node.incarnation,
        node.origin,
        node.capacity,
        node.lost,
        node.drain_reason,
        node.next_lane,
        sorted(node.leftovers),
        lanes,
    )


def _job_image(job: JobState) -> JobImage:
    live = [
        AttemptImage(
            a.key, a.node, a.lane, a.grant, a.placed_at, a.started_at, a.ending, a.paused, a.suspicions
        )
        for a in job.live.values()
    ]
    return JobImage(
        job.job,
        job.rank[1],
        bytes(job.status),
        bytes(job.why),
        job.attempts.tobytes(),
        job.code.tobytes(),
        job.times.tobytes() if job.times is not None else None,
        job.nodes.tobytes() if job.nodes is not None else None,
        job.fresh,
        job.again,
        job.delayed,
        job.charged,
        job.losses,
        job.details,
        job.first_started_at,
        job.ended_at,
        job.first_code,
        job.run_s,
        job.samples,
        live,
    )


def _restore_node(state: ClusterState, image: NodeImage) -> None:
    state.table.put(image.name, image.capacity)
    node = state.nodes[image.name] = NodeState(image.name, state.table.rows[image.name])
    node.incarnation, node.origin, node.capacity = image.incarnation, image.origin, image.capacity
    node.lost, node.drain_reason, node.next_lane = image.lost, image.drain_reason, image.next_lane
    node.leftovers = set(image.leftovers)


def _restore_job(state: ClusterState, image: JobImage) -> None:
    job = _job_state(image, state.counts)
    state.add_job(job)
    for status, count in enumerate(job.counts[1:], start=1):
        state.counts[status] += count
    for a in image.live:
        attempt = Attempt(a.key, a.node, a.lane, a.grant, a.placed_at)
        attempt.started_at, attempt.ending = a.started_at, a.ending
        attempt.paused, attempt.suspicions = a.paused, a.suspicions
        job.live[a.key[1]] = state.nodes[a.node].attempts[a.key] = attempt
    state.retries += [(at, job.job.id, position) for position, at in job.delayed.items()]
    if job.has_ready and not job.is_over:
        state.waiting.add(job)


def _job_state(image: JobImage, totals: list[int]) -> JobState:
    job = JobState(image.job, image.arrival, totals)
    job.status, job.why = bytearray(image.status), bytearray(image.why)
    job.attempts, job.code = array("H", image.attempts), array("h", image.code)
    job.times = None if image.times is None else array("d", image.times)
    job.nodes = None if image.nodes is None else array("H", image.nodes)
    job.counts = [job.status.count(status) for status in Status]
    job.fresh, job.again, job.delayed = image.fresh, image.again, image.delayed
    job.charged, job.losses, job.details = image.charged, image.losses, image.details
    job.first_started_at, job.ended_at = image.first_started_at, image.ended_at
    job.first_code, job.run_s, job.samples = image.first_code, image.run_s, image.samples
    return job


def _restore_lanes(state: ClusterState, image: NodeImage) -> None:
    node = state.nodes[image.name]
    for lane_id, grant, keys in image.lanes:
        lane = node.lanes[lane_id] = Lane(lane_id, node.name, grant)
        lane.attempts = dict.fromkeys(keys)
        state.jobs[keys[0][0]].lanes[node.name, lane_id] = lane
        state.table.take(node.row, grant)
