"""A full cluster: nodes by path, the tasks that run on them, and a more urgent unit that needs room."""

from __future__ import annotations

from phalanx.core.explain.evictions import make_room_or_why
from phalanx.core.model.job import Command, Gang, Gather, Group, Job
from phalanx.core.model.plan import GangPlacement, Policy, Snapshot
from phalanx.core.model.queues import Queues
from phalanx.core.model.reason import Reason
from phalanx.core.model.resources import Capacity, Device, Grant, Request, parse_target
from phalanx.core.model.table import NodeTable
from phalanx.core.model.tenants import NEVER, Tenant, TenantKey, Tenants
from phalanx.core.model.waiting import Waiting
from phalanx.core.placement.draft import Draft
from tests.support.topologies import THREE, labels
from tests.support.waiting_units import FakeGang, FakeTasks

NOW = 1000.0
LEAVING = -1.0


class FullCluster:
    """Nodes n1, n2, … at these paths, each with the same devices; everything else is there in plenty."""

    def __init__(self, *paths: str, gpus: int = 4, kinds: str = "", cores: int = 64) -> None:
        self.nodes, self.tenants, self.queues = NodeTable(), Tenants(), Queues()
        self.nodes.set_topology(THREE)
        named = kinds.split() or ["h100"] * gpus
        devices = tuple(Device(index, kind) for index, kind in enumerate(named))
        for number, path in enumerate(paths, start=1):
            self.nodes.put(f"n{number}", Capacity(cores, 1000, (), devices, labels(path)))
            self.nodes.set_open(f"n{number}", True)
        self._lanes = 0

    def sits(
        self, job: str, node: str, *devices: int, priority: int = 0, cores: int = 0, ran: float = 100.0,
        group: int = 0, until: float = 0.0, queue: str = "default",
    ) -> TenantKey:  # fmt: skip
        """One task of a job holds these devices of a node; `until` protects it, LEAVING says that it was told to go."""
        row, grant = self.nodes.rows[node], Grant(cores, 0, devices)
        self._lanes += 1
        key = (node, self._lanes)
        self.nodes.take(row, grant)
        self.queues.take((queue, ""), grant)
        may_go, ends = (NEVER, NOW + 5) if until == LEAVING else (until, NEVER)
        self.tenants.add(
            Tenant(key, job, queue, group, row, grant, priority, may_go, ends, NOW - ran, until == LEAVING)
        )
        return key

    def is_promised(self, job: str, node: str, *devices: int, priority: int = 0) -> TenantKey:
        """Devices of a node are kept for a job whose victims are leaving."""
        row, grant = self.nodes.rows[node], Grant(0, 0, devices)
        self._lanes += 1
        self.nodes.promise(row, grant)
        self.queues.take(("default", ""), grant)
        tenant = Tenant(
            (job, self._lanes), job, "default", 0, row, grant, priority, 0.0, NEVER, NOW, is_promise=True
        )
        self.tenants.add(tenant)
        return tenant.key

    def is_gang(self, job: str, *needed: int) -> None:
        self.tenants.needed[job] = needed

    def snapshot(self) -> Snapshot:
        return Snapshot(self.nodes, Waiting(), 1, self.tenants, self.queues, NOW)

    def room_for(self, unit: FakeGang | FakeTasks, policy: Policy | None = None) -> GangPlacement | Reason:
        """What would be done for this one; the cluster is as before."""
        draft = Draft(self.snapshot())
        answer = make_room_or_why(draft, unit, policy or Policy())
        gang_placements = draft.plan().gang_placements
        assert gang_placements == ([answer] if isinstance(answer, GangPlacement) else [])
        return answer

    def placement_for(self, unit: FakeGang | FakeTasks) -> GangPlacement:
        answer = self.room_for(unit)
        assert isinstance(answer, GangPlacement), answer
        return answer

    def refusal_of(self, unit: FakeGang | FakeTasks, policy: Policy | None = None) -> Reason:
        answer = self.room_for(unit, policy)
        assert isinstance(answer, Reason), answer
        return answer

    def leaving(self, unit: FakeGang | FakeTasks) -> list[str]:
        """The jobs of the victims, once for each that leaves."""
        tenants = [self.tenants.get(key) for key in self.placement_for(unit).victims]
        return sorted(tenant.job for tenant in tenants if tenant is not None)


def some(
    tasks: int, gpus: int = 1, least: int = 0, target: str = "", kind: str | None = None, cores: int = 0
) -> Group:
    """A group of tasks that ask for devices."""
    aim = parse_target(target) if target else None
    request = Request(cores=cores, gpus=gpus, gpu_type=kind, target=aim)
    return Group(Command(("/bin/true",)), request, tasks=tasks, min=least)


def a_gang(
    *groups: Group, priority: int = 10, bound: dict[int, int] | None = None, **more: object
) -> FakeGang:
    """A gang; `must` and `prefer` name layers."""
    rules = [Gather(str(more.pop("must")), must=True)] if "must" in more else []
    rules += [Gather(str(more.pop("prefer")))] if "prefer" in more else []
    rules += [Gather("node", multiple=int(str(more.pop("multiple"))))] if "multiple" in more else []
    gang = Gang(gather=tuple(rules))
    return FakeGang(Job("urgent", groups, "urgent", 0.0, priority=priority, gang=gang, **more), bound)  # type: ignore[arg-type]


def tasks(group: Group, priority: int = 10, done: int = 0, **more: object) -> FakeTasks:
    return FakeTasks(Job("urgent", (group,), "urgent", 0.0, priority=priority, **more), done)  # type: ignore[arg-type]


def nodes_of(gang_placement: GangPlacement) -> list[str]:
    return sorted(member.node for member in gang_placement.members)
