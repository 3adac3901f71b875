"""The words of REST and of the Python client: what is asked and what is answered.

The OpenAPI document is generated from these structs. Unknown fields are refused, so that a misspelt one is
never ignored in silence. How a `SubmitRequest` becomes jobs is in `api/schema/submission.py`. Job files, gangs, quotas
and layers have words of their own in `jobspec.py`, `gang.py`, `queues.py` and `layers.py`.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct

from phalanx.api.schema.cluster import CoordinatorView
from phalanx.api.schema.gang import ConditionView, GangView
from phalanx.api.schema.jobspec import GatherSpec

T = TypeVar("T")
StatusWord = Literal["Pending", "Assigned", "Running", "Completed", "Failed", "Cancelled"]


class SubmitRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One submission. Give `command` (an argv list) or `shell` (one string for /bin/sh), not both."""

    command: list[str] = []
    shell: str | None = None
    kind: Literal["command", "vps"] = "command"
    targets: list[str] = []  # one task per target, one batch
    required_gpus: list[list[int]] | None = None  # device indexes, one list per target (seed 000)
    cores: int = 1
    memory: int | str = 0  # bytes, or "16GiB"
    gpus: int = 0
    gpu_type: str | None = None
    gpu_memory: int | str = 0  # per device
    priority: int = 0
    queue: str = "default"
    array: str | None = None  # "1-100%4"
    name: str = ""
    env: dict[str, str] = {}
    cwd: str | None = None
    time_limit: float | str | None = None  # seconds, or "1h30m"
    grace: float | str | None = None  # between SIGTERM and SIGKILL
    max_retries: int | None = None  # runs after the first
    max_attempts: int | None = None  # runs in all; not together with max_retries
    no_queue: bool = False  # refuse at once what cannot start now
    allow_infeasible: bool = False  # wait even if no node of today could ever hold it
    request_id: str | None = None  # the same as the Idempotency-Key header
    tasks: int = 1  # more than 1 makes a gang: its tasks start together or not at all
    min: int = 0  # how many tasks a gang cannot start without; 0: all
    gather: list[GatherSpec] = []  # how close the tasks of a gang stand
    gang_wait: float | str | None = None  # how long tasks of a gang hold their places for the others
    labels: dict[str, str] = {}  # what the node must carry
    preemption: Literal["lower", "never"] = "lower"  # whom it may evict: lower priorities, or nobody
    evictable: bool = True
    min_run: float | str = 0  # how long an attempt runs before it may be evicted
    tags: dict[str, str] = {}  # what `ps -l` selects by


class FailedTarget(Struct):
    """A target that was not accepted, and why."""

    target: str
    reason: str  # a code, such as TargetNotFound
    detail: str


class AcceptedTask(Struct, omit_defaults=True):
    """What was accepted for one target (or for the whole request, without targets)."""

    id: str
    tasks: int = 1  # more than 1 for an array
    target: str | None = None


class SubmitReply(Struct, omit_defaults=True):
    """Durable when you read this. `task_ids` holds one id per accepted target; `batch_id` is the first."""

    task_ids: list[str]
    batch_id: str
    accepted: list[AcceptedTask]
    failed_targets: list[FailedTarget] = []
    assigned_node: str | None = None  # the node, when exactly one target was given
    warnings: list[str] = []  # what was read otherwise than written, or changes nothing
    replayed: bool = False  # true when the same request_id had been answered before


class Counts(Struct):
    """How many tasks of a job stand where."""

    pending: int = 0
    assigned: int = 0
    running: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0


class RequestView(Struct, omit_defaults=True):
    """What each task asks for."""

    cores: int
    memory_bytes: int = 0
    gpus: int = 0
    gpu_type: str | None = None
    gpu_memory_bytes: int = 0
    target: str | None = None
    labels: dict[str, str] = {}


class GroupView(Struct):
    """One group of a job: tasks with one command and one request. `needed` of them make a gang whole."""

    name: str
    tasks: int
    needed: int
    replicas: int
    at_once: int  # of each replica; 0: all
    counts: Counts
    command: list[str]
    request: RequestView
    after: list[str]  # "other started": who has to come first
    finished: int = 0  # of the running ones: ended with code 0, Completed once the whole job is
    tags: dict[str, str] = {}  # besides those of the job


class JobView(Struct):
    """One job. `status` sums up its tasks; `exit_code` is its only task's, or the first failed one's.

    `command`, `request`, `cwd` and `env` are those of its first group.
    """

    id: str
    batch_id: str
    name: str
    user: str
    queue: str
    priority: int
    status: StatusWord
    reason: str
    tasks: int
    counts: Counts
    command: list[str]
    request: RequestView
    array: str | None
    submitted_at: float
    started_at: float | None
    ended_at: float | None
    exit_code: int | None
    time_limit_s: float | None
    max_retries: int
    cwd: str | None = None
    env: dict[str, str] = {}
    groups: list[GroupView] = []
    gang: GangView | None = None  # None: every task starts as soon as there is room for it
    restarts: int = 0  # of the whole job, those that count
    restart_limit: int | None = None  # None: it is never restarted as a whole
    setbacks: int = 0  # restarts of the whole job that were nobody's doing, and do not count
    retry_at: float | None = None  # nothing of it is placed before this
    finished: int = 0  # of the running tasks: ended with code 0, Completed once the whole job is
    failures: int = 0  # attempts of all tasks that counted against their retries
    held: str | None = None  # why nothing of it runs until somebody resumes it, or adds what it lacks
    object: str = ""  # what Kubernetes calls it: namespace/name, of several PodGroups with commas
    tags: dict[str, str] = {}


class TaskView(Struct):
    """One task and its newest attempt. A paused task is Running with `paused` true and keeps its grant."""

    id: str
    job_id: str
    batch_id: str
    name: str
    index: int | None
    status: StatusWord
    reason: str  # a code from the closed list: exited, oom, lost, timeout, …
    message: str  # a sentence
    exit_code: int | None  # −N for signal N, −1 when lost
    attempt: int  # 0 before the first
    node: str | None
    devices: list[int]
    target: str | None
    target_numa_node_id: int | None
    paused: bool
    retries_used: int
    losses: int
    retry_at: float | None
    submitted_at: float
    started_at: float | None
    ended_at: float | None
    stderr_tail: str
    group: str = ""
    rank: int | None = None  # of a gang: its place among the members, by their index in the network
    ready: bool = False  # of a gang: it is held at the barrier and waits for the others
    nominated_node: str | None = None  # where it will stand once those who were asked to leave have gone
    conditions: list[ConditionView] = []
    object: str = ""  # what Kubernetes calls it: namespace/name


class DeviceView(Struct, omit_defaults=True):
    """One device and who holds it."""

    index: int
    kind: str
    memory_bytes: int
    numa: int | None = None
    uuid: str = ""
    task: str | None = None


class NumaView(Struct):
    id: int
    cores: int
    cores_free: int


EXCLUDED = "temporarily excluded"  # how the note of a node begins that gets no new work before `rests_until`


class NodeView(Struct):
    """One node: what it has, what is free, who is on it."""

    name: str
    status: Literal["Online", "Unreachable", "Offline", "Quarantined", "Unhealthy", "Stopping"]
    drained: bool
    drain_reason: str
    cores: int
    cores_free: int
    memory_bytes: int
    memory_free_bytes: int
    numa: list[NumaView]
    devices: list[DeviceView]
    labels: dict[str, str]
    tasks: list[str]  # the attempts it holds, the first 1000
    task_count: int
    incarnation: str
    last_seen_at: float | None
    generation: int = 0  # of its lease: one more with each join and each loss
    failures: int = 0  # reported there in a row
    rests_until: float | None = None  # after failures it gets no new work before this
    note: str = ""  # what is unusual about it


class ReasonView(Struct, omit_defaults=True):
    """Why not, as data: a code, its tier (never, held, policy, capacity, progress), a sentence, numbers."""

    code: str
    tier: str
    text: str
    numbers: dict[str, Any] = {}


class NodeReasons(Struct):
    """So many nodes say no for the same reason."""

    count: int
    reason: ReasonView
    nodes: list[str]  # the first few


class Fix(Struct, omit_defaults=True):
    """The nearest change that would let it start; `change` gives fields of SubmitRequest their new values."""

    text: str
    change: dict[str, Any] = {}
    command: str = ""  # a command line that does it, if one does


class DomainSlots(Struct, omit_defaults=True):
    """How many tasks one domain of the network could take, against what is needed there."""

    layer: str
    domain: list[str]  # its path from outside in; empty: the whole cluster
    slots: int
    nodes: int = 0


class WhyReply(Struct):
    """Why a job or task is where it is: one dominant reason, all others, counts by node, the nearest fix.

    For a gang `domains` says what each domain of its layer could hold against the `needed` members.
    """

    id: str
    status: StatusWord
    dominant: ReasonView
    others: list[ReasonView]
    nodes: list[NodeReasons]
    fix: Fix | None
    position: int | None  # in the queue, from 1
    waiting: int  # how many tasks wait in all
    at: float
    epoch: int
    needed: int | None = None
    domains: list[DomainSlots] = []
    object: str = ""  # what Kubernetes calls it: namespace/name


class StoryLine(Struct, omit_defaults=True):
    """One thing that happened, in order; `cause` names what led to it."""

    revision: int
    at: float
    event: str
    text: str
    task: str | None = None
    node: str | None = None
    cause: str = ""
    epoch: int = 0


class CancelReply(Struct):
    """What was cancelled. Tasks on a node are being stopped; `stopping` counts them."""

    id: str
    cancelled: int
    stopping: int


class EvictReply(Struct):
    """How many tasks were asked to leave their places; they wait again as their job's restart policy says."""

    id: str
    evicted: int


class DrainRequest(Struct, forbid_unknown_fields=True):
    reason: str
    evict: bool = False  # what runs there is asked to leave, gangs as a whole


class LoseRequest(Struct, forbid_unknown_fields=True):
    reason: str  # how it is known that the node is gone


class RemovedNode(Struct):
    name: str


class ClusterView(Struct):
    """The cluster in one line. Cores and devices are those of the nodes that take work."""

    version: str
    epoch: int
    revision: int
    nodes: int
    nodes_online: int
    cores: int
    cores_free: int
    devices: int
    devices_free: int
    jobs: int
    tasks: Counts
    coordinator: CoordinatorView | None = None  # who answered
    brake: str = ""  # why nobody is declared lost just now


class WatchEvent(Struct, omit_defaults=True):
    """One line of a watch. `revision` is the Last-Event-ID to resume after."""

    revision: int
    at: float
    event: str
    job: str | None = None
    task: str | None = None
    status: str | None = None
    reason: str | None = None
    exit_code: int | None = None
    node: str | None = None
    text: str = ""


class LogChunk(Struct):
    """A piece of one stream of one attempt. `data` is bytes as written; `size` the file's length then."""

    offset: int
    data: bytes
    size: int
    attempt: int
    end: bool  # nothing will follow
    gap: int = 0  # bytes right before `offset` that were not kept


class Page(Struct, Generic[T]):
    """A piece of a list. Give `next_cursor` back to get the next; null means this was the last."""

    items: list[T]
    next_cursor: str | None


class Problem(Struct, omit_defaults=True):
    """RFC 9457 problem+json, with our reason code and what to do next."""

    type: str
    title: str
    status: int
    detail: str
    instance: str = ""
    reason: str = ""
    hint: str = ""
    failed_targets: list[FailedTarget] = []
