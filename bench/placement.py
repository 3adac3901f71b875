"""How fast the scheduler decides, apart from everything else: `python -m bench.placement [--nodes 5000]`.

A tree of spines, blocks, racks and nodes with 8 GPUs each is filled with gangs of one size, then with single tasks,
as the engine fills it: a draft of up to 2,048 members, then the same grants taken for good. Members a second count
all of that; the time of one decision is one `place_gang`. Every figure is wall time and CPU time, the median of
interleaved rounds, since others may use the machine. Garbage is collected as in the coordinator: what was there at
the start is frozen, and the threshold is its own.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from statistics import median
from typing import Literal

from bench.figures import number, quantile
from phalanx.core.explain.shortage import place_gang
from phalanx.core.model.job import Command, Gang, Gather, Group, Job
from phalanx.core.model.plan import GangPlacement, Placement, Snapshot
from phalanx.core.model.queues import Queues
from phalanx.core.model.resources import Capacity, Device, NumaNode, Request
from phalanx.core.model.table import NodeTable
from phalanx.core.model.tenants import Tenants
from phalanx.core.model.waiting import Part, Rank, Waiting
from phalanx.core.placement.best_node import BestNode
from phalanx.core.placement.draft import Draft

GIB = 1 << 30
DRAFT_MAX = 2048
_numbers = count()


@dataclass
class WaitingSet:
    """A gang of one group that waits."""

    job: Job
    rank: Rank = (0.0, 0, 0)
    kind: object = "gang"
    is_gang: Literal[True] = True
    is_surplus: bool = False
    may_hold_part: bool = False
    comes_back: bool = False

    def wanted(self) -> tuple[Part, ...]:
        (group,) = self.job.groups
        return (Part(group.request, group.tasks, group.tasks),)

    def members(self, group: int) -> list[tuple[int, int]]:
        return [(index, index) for index in range(self.job.groups[group].tasks)]

    def bound(self) -> list[tuple[int, int]]:
        return []


@dataclass
class Shot:
    """What one filling of the cluster took."""

    members: int
    wall_s: float
    cpu_s: float
    decisions: list[tuple[float, float]]  # wall and CPU seconds of each
    first_s: float = 0.0  # CPU seconds of the very first one, which builds the tree and counts the slots


def a_cluster(nodes: int) -> NodeTable:
    """Racks of 16 nodes, blocks of 8 racks, spines of 8 blocks; two NUMA nodes with four GPUs each."""
    table = NodeTable()
    numa = (NumaNode(0, 48), NumaNode(1, 48))
    devices = tuple(Device(at, "h100", 80 * GIB, at // 4) for at in range(8))
    for row in range(nodes):
        rack, block, spine = row // 16, row // 128, row // 1024
        labels = {"spine": f"s{spine}", "block": f"b{block}", "rack": f"r{rack}"}
        table.put(f"n{row:06}", Capacity(96, 1024 * GIB, numa, devices, labels))
        table.set_open(f"n{row:06}", True)
    return table


def a_gang(size: int, gpus: int, must: str) -> WaitingSet:
    request = Request(cores=8 * gpus, memory_bytes=16 * gpus * GIB, gpus=gpus)
    group = Group(Command(("/bin/true",)), request, tasks=size)
    gang = Gang((Gather(must, must=True),))
    return WaitingSet(Job(f"job{next(_numbers)}", (group,), "batch", 0.0, gang=gang))


def fill_with_gangs(table: NodeTable, size: int, gpus: int, must: str, members: int) -> Shot:
    """Place gangs until so many members have found room or one gang has not."""
    shot, left, units = (
        Shot(0, 0.0, 0.0, []),
        True,
        [a_gang(size, gpus, must) for _ in range(members // size)],
    )
    waiting = iter(units)
    _calm()
    shot.first_s = _first(table, units[0])
    wall, cpu = time.perf_counter(), time.process_time()
    while left:
        draft = _draft(table)
        while draft.size < DRAFT_MAX:
            unit = next(waiting, None)
            began = _now()
            left = unit is not None and isinstance(place_gang(draft, unit), GangPlacement)
            if not left:
                break
            shot.decisions.append(_since(began))
        shot.members += commit(table, draft)
    shot.wall_s, shot.cpu_s = time.perf_counter() - wall, time.process_time() - cpu
    return shot


def _first(table: NodeTable, unit: WaitingSet) -> float:
    """One decision on a fresh table, undone afterwards."""
    began = time.process_time()
    draft = _draft(table)
    place_gang(draft, unit)
    draft.plan()
    return time.process_time() - began


def fill_with_tasks(table: NodeTable, tasks: int) -> Shot:
    """Place single tasks one by one, as the engine does."""
    request = Request(cores=8, memory_bytes=16 * GIB)
    shot = Shot(0, 0.0, 0.0, [])
    _calm()
    wall, cpu = time.perf_counter(), time.process_time()
    while shot.members < tasks:
        draft = _draft(table)
        began = _now()
        for position in range(min(DRAFT_MAX, tasks - shot.members)):
            spot = BestNode(table, request).best()
            if spot is None:
                break
            row, grant = spot
            draft.place(row, Placement("job", position, table.names[row], grant), ("default", ""))
            shot.decisions.append(_since(began))
            began = _now()
        if not (placed := commit(table, draft)):
            break
        shot.members += placed
    shot.wall_s, shot.cpu_s = time.perf_counter() - wall, time.process_time() - cpu
    return shot


def _draft(table: NodeTable) -> Draft:
    return Draft(Snapshot(table, Waiting(), 0, Tenants(), Queues(), 0.0))


def _calm() -> None:
    """As `phalanx up` does once it is running."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _since(began: tuple[float, float]) -> tuple[float, float]:
    wall, cpu = _now()
    return wall - began[0], cpu - began[1]


def commit(table: NodeTable, draft: Draft) -> int:
    """Apply what was proposed."""
    plan = draft.plan()
    placed = 0
    for placement in _all(plan.placements, plan.gang_placements):
        table.take(table.rows[placement.node], placement.grant)
        placed += 1
    return placed


def _all(placements: list[Placement], gang_placements: list[GangPlacement]) -> Iterator[Placement]:
    yield from placements
    for gang_placement in gang_placements:
        yield from gang_placement.members


CELLS = [  # size of a gang, GPUs of a member, the layer that must hold it
    (4, 1, "block"),
    (64, 1, "block"),
    (1000, 1, "block"),
    (4, 8, "block"),
    (64, 8, "block"),
    (1000, 8, "spine"),
]


def measure(nodes: int, rounds: int, members_max: int) -> None:
    """Fill fresh clusters, one cell after another, round after round."""
    shots: dict[str, list[Shot]] = {}
    for _ in range(rounds):
        for size, gpus, must in CELLS:
            name = f"gangs of {size:>4} x {gpus} GPU, must {must}"
            table = a_cluster(nodes)
            shots.setdefault(name, []).append(fill_with_gangs(table, size, gpus, must, members_max))
        shots.setdefault("single tasks", []).append(fill_with_tasks(a_cluster(nodes), 50_000))
    print(
        f"{nodes:,} nodes; on this machine now a plain loop makes {_steps_per_s() / 1e6:.1f} million steps a CPU second"
    )
    for name, each in shots.items():
        _report(name, each)


def _steps_per_s() -> float:
    """How fast this machine is at this moment: its speed changes with what others do on it."""
    began, steps = time.process_time(), 1_000_000
    for _ in range(steps):
        pass
    return steps / (time.process_time() - began)


def _report(name: str, shots: list[Shot]) -> None:
    members = shots[0].members
    wall = median(shot.members / max(shot.wall_s, 1e-9) for shot in shots)
    cpu = median(shot.members / max(shot.cpu_s, 1e-9) for shot in shots)
    print(f"  {name:<34} {members:>7,} members  {number(wall):>8}/s wall  {number(cpu):>8}/s CPU", end="")
    for word, at in (("wall", 0), ("CPU", 1)):
        times = [[each[at] * 1000 for each in shot.decisions] for shot in shots]
        p50, p99 = (median(quantile(each, share) for each in times) for share in (0.5, 0.99))
        print(f"  p50 {p50:.3f} p99 {p99:.3f} ms {word}", end="")
    print(f"  first {median(shot.first_s for shot in shots) * 1000:.1f} ms CPU" if shots[0].first_s else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--nodes", type=int, action="append", help="how many nodes; repeatable (default 5000)"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--members", type=int, default=40_000, help="how many members of each size at most")
    options = parser.parse_args()
    for nodes in options.nodes or [5000]:
        measure(nodes, options.rounds, options.members)


if __name__ == "__main__":
    main()
