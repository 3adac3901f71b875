"""What placement sees and nothing else: nodes, tasks that run there, jobs that wait; the test sets the time.

A plan can be carried out: what it places runs until the test ends it, and what it evicts has left at once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Literal

from phalanx.core.model.job import Command, Gang, Gather, Group, Job
from phalanx.core.model.lanes import Lane, LanePool
from phalanx.core.model.plan import KeptNodes, Placement, Plan, PlanMemory, Policy, Snapshot
from phalanx.core.model.queues import Queues, Quota
from phalanx.core.model.resources import Capacity, Cores, Device, Grant, Request, parse_target
from phalanx.core.model.table import NodeTable
from phalanx.core.model.tenants import NEVER, Tenant, Tenants
from phalanx.core.model.waiting import Part, Rank, Waiting
from phalanx.core.placement.engine import plan

SIZES = {"t4": 16 << 30, "a100": 40 << 30, "h100": 80 << 30}


class WaitingTasks:
    """A group whose tasks are placed one by one."""

    is_gang: Literal[False] = False
    comes_back = False
    number = 0

    def __init__(self, job: Job, rank: Rank) -> None:
        self.job = job
        self.rank = rank
        self.request = job.groups[0].request
        self.kind: Hashable = (job.queue, self.request)
        self.lanes: dict[tuple[str, int], Lane] = {}
        self.pool: LanePool | None = None
        self.left = list(range(job.tasks))
        self.typical_run_s: float | None = None

    def ready(self, most: int) -> Iterator[int]:
        return iter(self.left[: max(0, most)])


class PlannedGang:
    """A gang of one group."""

    is_gang: Literal[True] = True
    is_surplus = False
    may_hold_part = False
    comes_back = False

    def __init__(self, job: Job, rank: Rank) -> None:
        self.job = job
        self.rank = rank
        self.left = list(range(job.tasks))
        self.stands: dict[int, int] = {}
        self.may_hold_part = False

    @property
    def kind(self) -> Hashable:
        return self.job.queue, self.job.gang, self.wanted(), tuple(self.stands)

    def wanted(self) -> tuple[Part, ...]:
        group = self.job.groups[0]
        held = group.tasks - len(self.left)
        return (Part(group.request, max(0, group.needed - held), len(self.left)),)

    def members(self, group: int) -> list[tuple[int, int]]:
        return [(position, position) for position in self.left]

    def bound(self) -> list[tuple[int, int]]:
        return sorted(self.stands.items())


class PlannedCluster:
    """Nodes are named with their cores; GPUs and labels may be given with `add_node`."""

    def __init__(self, **cores: int) -> None:
        self.now = 1000.0
        self.gain = 0
        self.nodes = NodeTable()
        self.tenants = Tenants()
        self.queues = Queues()
        self.waiting = Waiting()
        self.memory = PlanMemory()
        self.units: dict[str, WaitingTasks | PlannedGang] = {}
        self._arrivals = 0
        for name, count in cores.items():
            self.add_node(name, count)

    def add_node(self, name: str, cores: int, gpus: int | str = 0, **labels: str) -> None:
        """A node. GPUs are a number of them, or the kind of each: "a100 a100 h100"."""
        kinds = gpus.split() if isinstance(gpus, str) else ["h100"] * gpus
        devices = tuple(Device(index, kind, SIZES.get(kind, 0)) for index, kind in enumerate(kinds))
        self.nodes.put(name, Capacity(cores, 1000, (), devices, labels))
        self.nodes.set_open(name, True)
        self.gain += 1

    def runs(
        self, job: str, node: str, cores: int = 1, *, until: float | None = None, gpus: tuple[int, ...] = (),
        since: float | None = None, priority: int = 0,
    ) -> None:  # fmt: skip
        """Something runs there already; `until` is when its time limit ends it."""
        grant, row = Grant(cores, 0, gpus), self.nodes.rows[node]
        ends_at = NEVER if until is None else until
        began = self.now if since is None else since
        self.nodes.take(row, grant)
        self.queues.take(("default", ""), grant)
        key = (job, len(self.tenants.of_job.get(job, ())))
        self.tenants.add(Tenant(key, job, "default", 0, row, grant, priority, 0.0, ends_at, began))

    def promise(self, job: str, node: str, cores: int, *, until: float, gpus: tuple[int, ...] = ()) -> None:
        """A place is kept for a job whose victims are leaving."""
        grant, row = Grant(cores, 0, gpus), self.nodes.rows[node]
        self.nodes.promise(row, grant)
        self.queues.take(("default", ""), grant)
        self.tenants.add(
            Tenant((job, 0), job, "default", 0, row, grant, 9, 0.0, until, self.now, is_promise=True)
        )

    def waits(
        self, job: str, cores: int = 1, *, gpus: int = 0, kind: str | None = None, target: str = "", tasks: int = 1,
        limit: float | None = None, **more: object,
    ) -> WaitingTasks:  # fmt: skip
        """A group of tasks that are placed one by one."""
        aim = parse_target(target) if target else None
        request = Request(cores=cores, gpus=gpus, gpu_type=kind, target=aim)
        unit = WaitingTasks(_job(job, request, tasks, limit, more), self._rank(more))
        self._add(unit)
        return unit

    def waits_whole(
        self, job: str, tasks: int, cores: int = 1, *, least: int = 0, gpus: int = 0, limit: float | None = None,
        must: str = "", strict: bool = True, **more: object,
    ) -> PlannedGang:  # fmt: skip
        """A gang."""
        gather = (Gather(must, must=True, multiple=int(more.pop("multiple", 1))),) if must else ()  # type: ignore[call-overload]
        made = _job(
            job, Request(cores=cores, gpus=gpus), tasks, limit, more | {"gang": Gang(gather, strict)}, least
        )
        unit = PlannedGang(made, self._rank(more))
        self._add(unit)
        return unit

    def quota(self, queue: str, **limits: int) -> None:
        self.queues.quotas[queue] = Quota(**limits)  # type: ignore[arg-type]

    def snapshot(self) -> Snapshot:
        nodes, waiting, tenants = self.nodes, self.waiting, self.tenants
        return Snapshot(nodes, waiting, self.gain, tenants, self.queues, self.now, self.memory)

    @property
    def kept(self) -> dict[Rank, KeptNodes]:
        """The nodes that plans keep for those who wait."""
        return self.memory.copied(self.waiting).kept

    def plan(self, policy: Policy | None = None) -> Plan:
        found = plan(self.snapshot(), policy or Policy())
        self.memory = found.memory
        return found

    def placed(self, policy: Policy | None = None) -> dict[str, list[str]]:
        """Which jobs a plan would place, and on which nodes."""
        return where(self.plan(policy))

    def go(self, policy: Policy | None = None) -> dict[str, list[str]]:
        """Plan and carry it out."""
        proposal = self.plan(policy)
        for gang_placement in proposal.gang_placements:
            for key in gang_placement.victims:
                self._leave(key)
        for placement in members_of(proposal):
            self._start(placement)
        return where(proposal)

    def end(self, job: str) -> None:
        """Everything of a job has ended."""
        for key in list(self.tenants.of_job.get(job, {})):
            self._leave(key)
        self.gain += 1

    def forget(self, job: str) -> None:
        """A job that waits was cancelled."""
        self.waiting.discard(self.units.pop(job))

    def free(self) -> dict[str, Cores]:
        return {ledger.name: ledger.cores_free for ledger in self.nodes}

    def _start(self, placement: Placement) -> None:
        unit, row = self.units[placement.job], self.nodes.rows[placement.node]
        job = unit.job
        self.nodes.take(row, placement.grant)
        self.queues.take(job.queue_user, placement.grant)
        ends_at = NEVER if job.time_limit_s is None else self.now + job.time_limit_s
        key = (job.id, placement.position)
        self.tenants.add(
            Tenant(key, job.id, job.queue, 0, row, placement.grant, job.priority, 0.0, ends_at, self.now)
        )
        self.waiting.discard(unit)
        unit.left.remove(placement.position)
        if isinstance(unit, PlannedGang):
            unit.stands[row] = unit.stands.get(row, 0) + 1
        if unit.left:
            self.waiting.add(unit)

    def _leave(self, key: tuple[str, int]) -> None:
        tenant = self.tenants.get(key)
        assert tenant is not None
        self.nodes.give_back(tenant.node_row, tenant.grant)
        self.queues.give_back(tenant.queue_user, tenant.grant)
        self.tenants.remove(key)

    def _add(self, unit: WaitingTasks | PlannedGang) -> None:
        self.units[unit.job.id] = unit
        self.waiting.add(unit)

    def _rank(self, more: dict[str, object]) -> Rank:
        self._arrivals += 1
        return -float(more.get("priority", 0)), self._arrivals, 0  # type: ignore[arg-type]


def members_of(proposal: Plan) -> list[Placement]:
    return [
        *proposal.placements,
        *(each for gang_placement in proposal.gang_placements for each in gang_placement.members),
    ]


def where(proposal: Plan) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for placement in members_of(proposal):
        found.setdefault(placement.job, []).append(placement.node)
    return found


def _job(
    id: str, request: Request, tasks: int, limit: float | None, more: dict[str, object], least: int = 0
) -> Job:
    at_once = int(more.pop("at_once", 0))  # type: ignore[call-overload]
    group = Group(Command(("/bin/true",)), request, tasks=tasks, min=least, at_once=at_once)
    return Job(id, (group,), id, 0.0, time_limit_s=limit, **more)  # type: ignore[arg-type]
