"""The cluster over REST: its coordinators, nodes, layers, tokens and audit.

Checked here is what can be known without the cluster: how a `TopologySpec` becomes a `Topology`.
The tree that follows from the nodes' labels is shown elsewhere, and so are jobs.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from phalanx.api.schema.fields import check_count, check_text, shown
from phalanx.api.schema.jobs import Counts
from phalanx.core.model.amounts import parse_seconds
from phalanx.core.model.credential import Kind, Role
from phalanx.core.model.resources import Cores
from phalanx.core.model.topology import KEYS_MAX, LAYERS_MAX, Layer, Topology
from phalanx.errors import BadRequest, Unprocessable

COUNT_MAX = 1_000_000_000

NAME_BYTES_MAX = 253
KEY_BYTES_MAX = 512

USER_S, JOIN_S, OVERLAP_S = 30 * 86_400.0, 3600.0, 3600.0  # what is taken if nothing is said
JOIN_S_MAX, OVERLAP_S_MAX = 7 * 86_400.0, 30 * 86_400.0


class CoordinatorView(Struct):
    """The coordinator that answered, its role, and the leader as far as it knows."""

    name: str
    role: Literal["Active", "Standby", "Stopped"]
    leader: str = ""  # its name; empty while nobody leads
    address: str = ""  # of the leader's REST
    behind_s: float = 0.0  # how long ago a standby last read the log to its end
    trouble: str = ""  # why it cannot read on: what its store says, or does not say


class DeviceView(Struct, omit_defaults=True):
    """One device and the task that holds it."""

    index: int
    kind: str
    memory_bytes: int
    numa: int | None = None
    uuid: str = ""
    task: str | None = None
    idle_s: float = 0.0  # held and hardly used for so long; 0: it is in use, or free
    number: str = ""  # of the task, such as 17.3
    out_of_service: str = ""  # why it is given to no task; empty: it may be
    name: str = ""  # as its maker calls it; empty where only the kind is known
    job_name: str = ""  # of the job that holds it
    user: str = ""  # whose job that is


class NumaView(Struct):
    """One NUMA node of a machine."""

    id: int
    cores: Cores
    cores_free: Cores


class IsolationView(Struct, omit_defaults=True):
    """How a node holds tasks to what they were granted, one word for each limit; without one it does not."""

    cpus: str = ""  # cpuset, or affinity, which a task can undo
    cpu_time: str = ""  # quota
    memory: str = ""  # limit, or watched: what uses more is ended when that is seen
    processes: str = ""  # limit, or account: of all tasks together
    devices: str = ""  # filter; none: it has no devices
    scratch: str = ""  # quota, tmpfs or watched; without one, no size is set
    lacking: list[str] = []  # what tasks are not held to, in words
    note: str = ""  # why not
    network: str = ""  # cgroup or account: what tells tasks without an address apart in an overlay network


class AccountsView(Struct, omit_defaults=True):
    """As which accounts of a node its tasks run."""

    mapped: bool = False  # each user's tasks as the account that the operator has named for that user
    shared: str = ""  # else all tasks as this one, which is the runner's: they can access each other's files
    root: bool = False  # whether tasks may run as root


class NodeView(Struct):
    """One node: capacity, free resources, running tasks."""

    name: str
    status: Literal["Online", "Unreachable", "Offline", "Quarantined", "Unhealthy", "Stopping"]
    drained: bool
    drain_reason: str
    cores: Cores
    cores_free: Cores
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
    excluded_until: float | None = None  # after failures it gets no new work before this
    rests_until: float | None = None  # the same as `excluded_until`, by its former name
    note: str = ""  # what is unusual about it
    cost_per_hour: float | None = None  # as its runner says; None: not said
    slots: int = 0  # 1: it runs one task at a time
    elastic_disabled: bool = False  # it takes no work of any kind until it is enabled
    disabled_reason: str = ""  # by whom, or after how long without work
    disabled_automatically: bool = False
    toggled_at: float | None = None  # when it was last disabled or enabled
    idle_since: float | None = None  # since when nothing has been held there; None while something is
    isolation: IsolationView | None = None  # None: its runner does not say
    containers: str = ""  # the runtime that runs containers there, or why there is none
    numbers: list[str] = []  # of `tasks`, such as 17.3
    accounts: AccountsView | None = None  # None: its runner does not say


class DrainRequest(Struct, forbid_unknown_fields=True):
    reason: str = ""  # empty: by whom
    evict: bool = False  # what runs there is asked to leave, gangs as a whole


class ElasticRequest(Struct, forbid_unknown_fields=True):
    enabled: bool  # False: the node takes no work of any kind; what runs there goes on
    reason: str = ""


class ElasticReply(Struct):
    """Whether an elastic node is enabled, in the words of the workers' interface."""

    worker_id: str
    enabled: bool
    elastic_disabled: bool


class LoseRequest(Struct, forbid_unknown_fields=True):
    reason: str  # how it is known that the node is gone


class RemovedNode(Struct):
    """A node that was removed."""

    name: str


class ClusterView(Struct):
    """Summary of the cluster. Cores and devices are those of schedulable nodes."""

    version: str
    epoch: int
    revision: int
    nodes: int
    nodes_online: int
    cores: Cores
    cores_free: Cores
    devices: int
    devices_free: int
    jobs: int
    tasks: Counts
    coordinator: CoordinatorView | None = None  # who answered
    brake: str = ""  # why nobody is declared lost just now


class LayerSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """One layer. The first of its label keys that a node carries, not empty, names the node's domain."""

    name: str
    keys: list[str]


class TopologySpec(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The layers between the cluster and its nodes, the outermost first."""

    layers: list[LayerSpec]
    cluster: str = "cluster"  # what the layer above all is called
    node: str = "node"  # what the layer of single nodes is called


class TopologyReply(Struct):
    """The layers that hold from now on, from the cluster down to the node."""

    layers: list[str]
    changed: bool


def to_topology(spec: TopologySpec, field: str = "") -> Topology:
    """The topology a spec describes, or a refusal that names the field."""
    check_count(f"{field}layers", len(spec.layers), LAYERS_MAX)
    seen: dict[str, str] = {}
    for where, name in _names(spec, field):
        _check_word(where, name, NAME_BYTES_MAX)
        if name in seen:
            raise BadRequest(f"{where}: {shown(name)} is already the name of {seen[name]}")
        seen[name] = where
    layers = tuple(
        Layer(each.name, _keys(each.keys, f"{field}layers[{number}].keys"))
        for number, each in enumerate(spec.layers)
    )
    return Topology(layers, spec.cluster, spec.node)


def to_spec(topology: Topology) -> TopologySpec:
    """The same in the words of REST."""
    layers = [LayerSpec(each.name, list(each.keys)) for each in topology.layers]
    return TopologySpec(layers, topology.cluster, topology.node)


def _names(spec: TopologySpec, field: str) -> list[tuple[str, str]]:
    layers = [(f"{field}layers[{number}].name", each.name) for number, each in enumerate(spec.layers)]
    return [(f"{field}cluster", spec.cluster), (f"{field}node", spec.node), *layers]


def _keys(keys: list[str], field: str) -> tuple[str, ...]:
    if not keys:
        raise BadRequest(
            f"{field}: there is none, give the label that names the domain, such as phalanx/rack"
        )
    check_count(field, len(keys), KEYS_MAX)
    for key in keys:
        _check_word(field, key, KEY_BYTES_MAX)
    if len(set(keys)) != len(keys):
        raise BadRequest(f"{field}: {shown(keys)} names a label twice")
    return tuple(keys)


def _check_word(field: str, word: str, bytes_max: int) -> None:
    check_text(field, word, bytes_max)
    if not word or not word.isprintable() or word != word.strip():
        raise BadRequest(f"{field}: {shown(word)} is not a word: write printable characters, at least one")


class TokenRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A user's token (`name`, `role`), or with `kind` join one that lets a runner in, once (`node`: only this one)."""

    kind: Literal["user", "join"] = "user"
    name: str | None = None  # whose jobs are one's own; None: that of who asks
    role: Role | None = None
    expires: float | str | None = None  # seconds, or "30d", or "never"
    node: str | None = None


class RotateRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """How long the old token stays valid beside the new one."""

    overlap: float | str | None = None  # seconds, or "1h"; 0: not at all


class TokenView(Struct):
    """One token, without its value. Its id is the fingerprint shown in logs and the audit log."""

    id: str
    kind: Kind
    name: str
    role: str
    is_valid: bool
    is_revoked: bool
    created_at: float
    created_by: str
    expires_at: float | None
    used_at: float | None  # to about ten minutes
    node: str = ""  # of a join token: the node that redeemed it


class NewToken(Struct):
    """The only answer that contains the token's value."""

    token: str
    record: TokenView


def seconds_of(field: str, given: float | str | None, default_s: float, most_s: float | None) -> float | None:
    """A duration out of a request; None is never, where that is allowed (`most_s` None)."""
    if given is None:
        return default_s
    if given == "never":
        if most_s is not None:
            raise BadRequest(f"{field}: 'never' is not possible here, give at most {most_s:.0f} seconds")
        return None
    try:
        found = 0.0 if given in (0, "0") else parse_seconds(str(given))
    except ValueError as error:
        raise BadRequest(f"{field}: {error}") from None
    if most_s is not None and found > most_s:
        raise Unprocessable(f"{field}: {given} is too long, give at most {most_s:.0f} seconds")
    return found


class AuditLine(Struct, omit_defaults=True):
    """One change or refusal. `status` is that of HTTP; `left_out`: number of refusals omitted before it."""

    at: float = 0.0
    name: str = ""  # empty: nobody we know
    role: str = ""
    fingerprint: str = ""  # of the token that was shown
    where: str = ""  # the address it came from
    method: str = ""
    route: str = ""
    id: str = ""  # the job, node, queue or token it was about
    status: int = 0
    reason: str = ""
    request_id: str = ""
    left_out: int = 0
    what: str = ""  # of a session: its command without values, or its port
    action: str = ""  # what was asked, in plain words: submit, cancel, drain node
    number: str = ""  # of the job, task or workflow it was about, by which `phalanx show` finds it
    made: str = ""  # the numbers of what it made: 17, or 17-20
