"""Builders: a test's line says only what matters in that test."""

from __future__ import annotations

from itertools import count

from msgspec import structs

from phalanx.coordinator.turn import Engine, Turn
from phalanx.core.cluster.decision import Answer, Send
from phalanx.core.cluster.inputs import Heartbeat, Hello, Input, Submit, Tell
from phalanx.core.cluster.invariants import check
from phalanx.core.cluster.state import ClusterState, Timers
from phalanx.core.model.array import parse_array
from phalanx.core.model.job import Command, Gang, Gather, Group, Job, Restart, ulid
from phalanx.core.model.orders import (
    AttemptKey,
    Ended,
    Exit,
    Order,
    Phase,
    Ready,
    Report,
    Started,
    Status,
    Why,
)
from phalanx.core.model.plan import Policy
from phalanx.core.model.resources import Capacity, Device, NumaNode, Request, parse_target

GIB = 1024**3


def a_capacity(
    cores: int = 8, memory: int = 16 * GIB, numa: int = 0, gpus: int = 0, kind: str = "h100"
) -> Capacity:
    """A node's hardware; GPUs and cores are spread evenly over the NUMA nodes."""
    parts = tuple(NumaNode(i, cores // numa, ()) for i in range(numa))
    devices = tuple(
        Device(i, kind, 80 * GIB, i * numa // gpus if numa else None, f"GPU-{i}") for i in range(gpus)
    )
    return Capacity(cores, memory, parts, devices)


def a_job(target: str | None = None, *, array: str | None = None, **fields: object) -> Job:
    """A job that runs /bin/true. Request fields and job fields may be given by name."""
    asked = {name: fields.pop(name) for name in list(fields) if name in Request.__struct_fields__}
    aim = parse_target(target) if target else None
    if aim and aim.devices:
        asked["gpus"] = len(aim.devices)
    id = str(fields.pop("id", ulid(1, next(_numbers))))
    indexes = parse_array(array) if array else None
    group = Group(
        Command(("/bin/true",)),
        Request(target=aim, **asked),  # type: ignore[arg-type]
        tasks=len(indexes) if indexes else 1,
        at_once=indexes.at_once if indexes else 0,
    )
    return Job(
        id=id,
        groups=(group,),
        batch=id,
        submitted_at=0.0,
        array=indexes,
        **fields,  # type: ignore[arg-type]
    )


def a_group(tasks: int = 1, *, name: str = "", **fields: object) -> Group:
    """A group that runs /bin/true. Request fields and group fields may be given by name."""
    asked = {field: fields.pop(field) for field in list(fields) if field in Request.__struct_fields__}
    fields.setdefault("replicas", tasks)
    return Group(
        Command(("/bin/true",)),
        Request(**asked),  # type: ignore[arg-type]
        name=name,
        tasks=tasks,
        **fields,  # type: ignore[arg-type]
    )


def a_gang(*groups: Group, gather: tuple[Gather, ...] = (), limit: int = 3, **fields: object) -> Job:
    """A gang that restarts whole. Fields of the gang and of the job may be given by name."""
    about = {
        field: fields.pop(field)
        for field in list(fields)
        if field in Gang.__struct_fields__ and field != "id"
    }
    id = str(fields.pop("id", ulid(1, next(_numbers))))
    fields.setdefault("restart", Restart(whole=True, limit=limit))
    fields.setdefault("max_retries", 0)
    return Job(
        id=id,
        groups=groups,
        batch=id,
        submitted_at=0.0,
        gang=Gang(gather=gather, **about),  # type: ignore[arg-type]
        **fields,  # type: ignore[arg-type]
    )


class Cluster:
    """A coordinator's heart with a clock in the test's hand, and runners that the test plays."""

    def __init__(self, rules: Timers | None = None, policy: Policy | None = None) -> None:
        self.engine = Engine(ClusterState(rules or Timers()), policy)
        self.engine.state.epoch = 1
        self.now = 100.0
        self.orders: list[tuple[str, Order]] = []
        self.turns: list[Turn] = []
        self.plans_may_fail = False

    @property
    def state(self) -> ClusterState:
        return self.engine.state

    def give(self, *inputs: Input) -> list[Answer | None]:
        """One turn; its orders are kept and the invariants asked."""
        turn: Turn = self.engine.turn(list(inputs), self.now)
        self.turns.append(turn)
        self.orders += [(effect.node, effect.order) for effect in turn.effects if isinstance(effect, Send)]
        assert check(self.state) == []
        for failed in turn.failures:
            if not self.plans_may_fail:
                raise failed
        return turn.answers

    def add_node(
        self,
        name: str,
        life: str = "a",
        held: tuple[AttemptKey, ...] = (),
        labels: dict[str, str] | None = None,
        **has: int,
    ) -> None:
        listing = [(key, Phase.RUNNING) for key in held]
        capacity = structs.replace(a_capacity(**has), labels=labels or {})  # type: ignore[arg-type]
        self.give(Hello(name, life, f"origin-{name}", capacity, listing))

    def submit(self, job: Job, **how: bool) -> Answer | None:
        return self.give(Submit(job, **how))[0]  # type: ignore[arg-type]

    def status(self, job: Job, position: int = 0) -> Status:
        return Status(self.state.jobs[job.id].status[position])

    def ready(self, node: str, key: AttemptKey, life: str = "a", epoch: int = 1) -> Answer | None:
        return self.tell(node, Ready(key), life, epoch)

    def started(self, node: str, key: AttemptKey, life: str = "a", epoch: int = 1) -> Answer | None:
        return self.tell(node, Started(key, self.now), life, epoch)

    def ended(
        self,
        node: str,
        key: AttemptKey,
        code: int = 0,
        why: Why | None = None,
        life: str = "a",
        epoch: int = 1,
    ) -> Answer | None:
        reason = why if why is not None else Why.EXITED if code else Why.NONE
        exit = Exit(reason, code, self.now, self.now)
        return self.tell(node, Ended(key, exit), life, epoch)

    def tell(
        self, node: str, report: Report, life: str = "a", epoch: int = 1, generation: int | None = None
    ) -> Answer | None:
        """A report under the node's own lease, unless another is given."""
        lease = self.lease(node) if generation is None else generation
        return self.give(Tell(node, life, epoch, report, lease))[0]

    def beat(self, node: str, *held: AttemptKey, life: str = "a") -> Answer | None:
        return self.give(Heartbeat(node, life, [(key, Phase.RUNNING) for key in held], self.lease(node)))[0]

    def lease(self, node: str) -> int:
        """The generation of the node's lease that is in force."""
        known = self.state.nodes.get(node)
        return 0 if known is None else known.generation


def a_cluster(**nodes: dict[str, int]) -> Cluster:
    """A cluster of nodes by name: a_cluster(n1={"cores": 8, "gpus": 2})."""
    cluster = Cluster()
    for name, has in nodes.items():
        cluster.add_node(name, **has)  # type: ignore[arg-type]  # what a node has is all numbers
    return cluster


_numbers = count(1)
