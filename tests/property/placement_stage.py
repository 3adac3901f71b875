"""A small cluster on paper and the same one in the real objects, and a drawing of it for people.

The paper is what `placement_oracle.py` reads; the objects are what the engine is given.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Literal

from phalanx.core.model.job import Job
from phalanx.core.model.lanes import Lane, LanePool
from phalanx.core.model.plan import Snapshot
from phalanx.core.model.queues import Queues
from phalanx.core.model.resources import Capacity, Request
from phalanx.core.model.table import NodeTable
from phalanx.core.model.tenants import NEVER, Tenant, Tenants
from phalanx.core.model.topology import Topology
from phalanx.core.model.waiting import Part, Rank, Waiting
from tests.property.placement_oracle import Errand, Picture


@dataclass
class SmallGang:
    """A waiting gang, as `WaitingGang` requires it."""

    job: Job
    rank: Rank
    kind: Hashable
    left: tuple[tuple[tuple[int, int], ...], ...]  # by group: (index, position) of the members to place
    asks: tuple[Part, ...]
    stands: tuple[tuple[int, int], ...]  # (node row, members)

    @property
    def is_gang(self) -> Literal[True]:
        return True

    @property
    def is_surplus(self) -> bool:
        return False

    @property
    def may_hold_part(self) -> bool:
        return False

    @property
    def comes_back(self) -> bool:
        return False

    def wanted(self) -> tuple[Part, ...]:
        return self.asks

    def members(self, group: int) -> list[tuple[int, int]]:
        return list(self.left[group])

    def bound(self) -> list[tuple[int, int]]:
        return list(self.stands)


@dataclass
class SmallGroup:
    """A group whose tasks are placed one by one, as `WaitingGroup` requires it."""

    job: Job
    rank: Rank
    kind: Hashable
    lanes: dict[tuple[str, int], Lane]
    number: int = 0
    pool: LanePool | None = None

    @property
    def is_gang(self) -> Literal[False]:
        return False

    @property
    def comes_back(self) -> bool:
        return False

    @property
    def request(self) -> Request:
        return self.job.groups[0].request

    @property
    def typical_run_s(self) -> float | None:
        return None

    def ready(self, most: int) -> Iterator[int]:
        yield from range(min(most, self.job.tasks))


SmallUnit = SmallGang | SmallGroup


@dataclass(frozen=True)
class Case:
    """A cluster and the units to be placed on it, one after another. `capacities` has what the picture leaves out."""

    seed: int
    topology: Topology
    capacities: tuple[Capacity, ...]
    picture: Picture
    units: tuple[SmallUnit, ...]


def errand_of(unit: SmallUnit) -> Errand:
    """What a unit asks for, as an oracle's errand."""
    job = unit.job
    if isinstance(unit, SmallGroup):
        return Errand(job.id, (Part(unit.request, 1, 1),), (), (), job.priority, job.may_evict, job.queue)
    rows = tuple(row for row, count in unit.stands for _ in range(count))
    gather = job.gang.gather if job.gang else ()
    return Errand(job.id, unit.asks, gather, rows, job.priority, job.may_evict, job.queue)


def snapshot_of(case: Case) -> Snapshot:
    """The real objects: a table whose ledgers hold what the tenants hold, the tenants, the queues, the units."""
    table, tenants, queues, waiting = NodeTable(), Tenants(), Queues(), Waiting()
    table.set_topology(case.topology)
    for spot, capacity in zip(case.picture.spots, case.capacities, strict=True):
        table.put(spot.name, capacity)
        table.set_open(spot.name, spot.is_open)
    for tenant in sorted(case.picture.tenants, key=lambda each: each.is_promise):  # tenants were there first
        tenants.add(tenant)
        queues.take(tenant.queue_user, tenant.grant)
        come = table.promise if tenant.is_promise else table.take
        come(tenant.node_row, tenant.grant)
    tenants.needed.update(case.picture.needed)
    queues.quotas.update(case.picture.quotas)
    for unit in case.units:
        waiting.add(unit)
    return Snapshot(table, waiting, 1, tenants, queues, case.picture.now)


def standing(topology: Topology, labels: dict[str, str], name: str) -> tuple[str, ...]:
    """The domains that a node's labels put it in, the outermost first, and the node itself.

    Where a label is missing, nodes that share the next inner label are together; a node without any inner label is
    alone.
    """
    words, inner = [name], f"~{name}"
    for layer in reversed(topology.layers):
        if found := next((labels[key] for key in layer.keys if labels.get(key)), ""):
            words.append(found)
            inner = f"~{layer.name} {found}"
        else:
            words.append(inner)
    return tuple(reversed(words))


def drawing(case: Case) -> str:
    """The case for a person to look at."""
    picture = case.picture
    lines = [f"seed {case.seed}   layers {' > '.join(picture.layers)}"]
    for row, spot in enumerate(picture.spots):
        devices = " ".join(f"{each.index}:{each.kind}/{each.memory_bytes}" for each in spot.devices)
        state = "".join(f"  pool {value}" for name, value in spot.labels if name == "pool")
        state += "" if spot.is_open else "  CLOSED"
        lines.append(
            f"{'/'.join(spot.path)}  row {row}  cores {spot.cores} memory {spot.memory}  [{devices}]{state}"
        )
        lines += [_tenant_line(each, picture.now) for each in picture.tenants if each.node_row == row]
        free = picture.free(row)
        left = ",".join(str(each.index) for each in free.devices)
        lines.append(f"      free: cores {free.cores} memory {free.memory} devices [{left}]")
    lines += [f"queue {queue} may hold {quota}" for queue, quota in picture.quotas.items()]
    lines += [f"gang {job} needs {needed}" for job, needed in sorted(picture.needed.items())]
    lines += [line for unit in case.units for line in _unit_lines(unit)]
    return "\n".join(lines)


def _tenant_line(tenant: Tenant, now: float) -> str:
    grant = tenant.grant
    marks = [f"priority {tenant.priority}"]
    if tenant.evictable_at > now:
        marks.append("not evictable" if tenant.evictable_at == NEVER else "protected")
    if tenant.is_promise:
        marks.append("promise")
    if tenant.is_leaving:
        marks.append("leaving")
    holds = f"cores {grant.cores} memory {grant.memory_bytes} devices {list(grant.devices)}"
    if tenant.queue != "default":
        marks.append(f"queue {tenant.queue}")
    return f"    {tenant.key}  {tenant.job} group {tenant.group}  {holds}  {', '.join(marks)}"


def _unit_lines(unit: SmallUnit) -> Iterator[str]:
    errand = errand_of(unit)
    rules = [
        f"{'must' if rule.must else 'prefer'} {rule.layer}"
        + (f" x{rule.multiple}" if rule.multiple > 1 else "")
        for rule in errand.gather
    ]
    may = "" if errand.may_evict else "  may not evict"
    yield f"{errand.job} priority {errand.priority}{may}  {'; '.join(rules)}  bound on rows {list(errand.bound)}"
    for number, wanted in enumerate(errand.wanted):
        who = f" members {unit.members(number)}" if isinstance(unit, SmallGang) else ""
        yield f"    group {number}: need {wanted.need} most {wanted.most} of {_request_words(wanted.request)}{who}"


def _request_words(request: Request) -> str:
    kind = f" {request.gpu_type}" if request.gpu_type else ""
    size = f">={request.gpu_memory_bytes}" if request.gpu_memory_bytes else ""
    aim = f" on {request.target}" if request.target else ""
    labels = "".join(f" where {name}={value}" for name, value in request.labels)
    return f"cores {request.cores} memory {request.memory_bytes} gpus {request.gpus}{kind}{size}{aim}{labels}"
