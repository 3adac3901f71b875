"""How long one eviction decision takes: 5,000 nodes with 8 GPUs each, all held by 40,000 running tasks.

    python -m bench.preemption [--rounds 30]

Once the tasks belong to jobs of about 200 tasks in four priorities, and on a quarter of the nodes to gangs of 16, some
of them larger than they need to be; once every task is a separate job. Each preemptor is decided again and again in a
draft that is thrown away, with a task changed in between, so that nothing is answered from a cache. Wall time and CPU
time are shown separately, since the machine may be shared.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Hashable
from random import Random
from statistics import median
from typing import Literal

from bench.figures import number, quantile
from phalanx.core.model.job import Command, Gang, Gather, Group, Job
from phalanx.core.model.plan import GangPlacement, Policy, Snapshot
from phalanx.core.model.queues import Queues
from phalanx.core.model.resources import Capacity, Device, Grant, NumaNode, Request
from phalanx.core.model.table import NodeTable
from phalanx.core.model.tenants import NEVER, Tenant, Tenants
from phalanx.core.model.waiting import Part, Rank, Waiting
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.preempt.make_room import make_room

NODES, GPUS, CORES = 5000, 8, 64
GIB = 1024**3
NOW = 100_000.0
TARGET_MS = 50.0
JOB_TASKS = 200  # tasks of one job that is not a gang
GANG = 16  # members of one gang that runs, one GPU each


class Preemptor:
    """A gang that waits, all of its members."""

    is_gang: Literal[True] = True
    comes_back = False
    is_surplus = False
    may_hold_part = False

    def __init__(self, name: str, members: int, gpus: int, gather: tuple[Gather, ...]) -> None:
        request = Request(cores=4 * gpus, memory_bytes=gpus * GIB, gpus=gpus)
        group = Group(Command(("/bin/true",)), request, tasks=members)
        self.job = Job(name, (group,), name, 0.0, priority=100, gang=Gang(gather=gather))
        self.rank: Rank = (-100.0, 0, 0)
        self.kind: Hashable = name
        self._wanted = (Part(request, members, members),)

    def wanted(self) -> tuple[Part, ...]:
        return self._wanted

    def members(self, group: int) -> list[tuple[int, int]]:
        return [(position, position) for position in range(self.job.tasks)]

    def bound(self) -> list[tuple[int, int]]:
        return []


def a_cluster(nodes: int, chance: Random, alone: bool = False) -> Snapshot:
    """A full cluster in four layers: 4 spines, 5 blocks in each, 10 racks in each of those, 25 nodes in a rack."""
    table, tenants, queues = NodeTable(), Tenants(), Queues()
    halves = (NumaNode(0, CORES // 2), NumaNode(1, CORES // 2))
    devices = tuple(Device(index, "h100", 80 * GIB, index // (GPUS // 2)) for index in range(GPUS))
    for row in range(nodes):
        rack, block, spine = row // 25, row // 250, row // 1250
        labels = {"spine": f"s{spine}", "block": f"b{block:02}", "rack": f"r{rack:03}"}
        table.put(f"n{row:04}", Capacity(CORES, 512 * GIB, halves, devices, labels))
        table.set_open(f"n{row:04}", True)
    for place in range(nodes * GPUS):
        _settle(table, tenants, queues, place, chance, alone)
    return Snapshot(table, Waiting(), 1, tenants, queues, NOW)


def _settle(
    table: NodeTable, tenants: Tenants, queues: Queues, place: int, chance: Random, alone: bool
) -> None:
    """One running task with one GPU."""
    row, device = divmod(place, GPUS)
    number = place if alone else chance.randrange(len(table) * GPUS // JOB_TASKS)
    job = f"job-{number:05}"
    if not alone and row % 4 == 0:
        number = place // (4 * GPUS) // (GANG // GPUS)
        job = f"gang-{number:05}"
        tenants.needed[job] = (GANG - 4 * (number % 3 == 0),)
    grant = Grant(4, GIB, (device,), None, ((device // (GPUS // 2), 4),))
    since = NOW - chance.uniform(0.0, 50_000.0)
    key = (table.names[row], device)
    tenants.add(Tenant(key, job, "default", 0, row, grant, number % 4 * 10, 0.0, NEVER, since))
    table.take(row, grant)
    queues.take("default", grant)


def measure(
    snapshot: Snapshot, unit: Preemptor, rounds: int, chance: Random
) -> tuple[list[float], list[float], GangPlacement]:
    """Wall and CPU milliseconds of every round, and the last answer."""
    wall, cpu = [], []
    answer = None
    for _ in range(rounds):
        _touch(snapshot, chance)
        draft = Draft(snapshot)
        began, used = time.perf_counter(), time.process_time()
        answer = make_room(draft, unit, Policy())
        wall.append(1000 * (time.perf_counter() - began))
        cpu.append(1000 * (time.process_time() - used))
        draft.plan()
    assert isinstance(answer, GangPlacement), answer
    return wall, cpu, answer


def _touch(snapshot: Snapshot, chance: Random) -> None:
    """One task has ended and another of its class has taken its place, as between any two decisions."""
    key = chance.choice(list(snapshot.tenants.slots))
    tenant = snapshot.tenants.get(key)
    assert tenant is not None
    snapshot.nodes.give_back(tenant.node_row, tenant.grant)
    snapshot.tenants.remove(key)
    snapshot.tenants.add(tenant)
    snapshot.nodes.take(tenant.node_row, tenant.grant)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rounds", type=int, default=30)
    asked.add_argument("--nodes", type=int, default=NODES)
    arguments = asked.parse_args()
    gc.set_threshold(50_000)  # as the coordinator does
    for alone in (False, True):
        chance = Random(7)
        snapshot = a_cluster(arguments.nodes, chance, alone)
        gc.collect()
        gc.freeze()
        what = "each a job of its own" if alone else "in jobs and gangs"
        print(
            f"{arguments.nodes:,} nodes, {len(snapshot.tenants):,} running tasks, {what}: ≤ {TARGET_MS:.0f} ms wanted"
        )
        print(f"{'preemptor':44} {'median':>8} {'p99':>8} {'CPU':>8} ms  {'victims':>8} {'jobs':>6}")
        for unit in _preemptors():
            print(_line(snapshot, unit, arguments.rounds, chance))


def _preemptors() -> list[Preemptor]:
    rack, block = (Gather("rack", must=True),), (Gather("block", must=True),)
    return [
        Preemptor("one task, 8 GPUs", 1, 8, ()),
        Preemptor("a gang of 8, 1 GPU each", 8, 1, ()),
        Preemptor("a gang of 8, 8 GPUs each, in one rack", 8, 8, rack),
        Preemptor("a gang of 64, 1 GPU each, in one block", 64, 1, block),
        Preemptor("a gang of 64, 8 GPUs each, in one block", 64, 8, block),
        Preemptor("a gang of 1,000, 1 GPU each", 1000, 1, ()),
        Preemptor("a gang of 1,000, 1 GPU each, in one block", 1000, 1, block),
    ]


def _line(snapshot: Snapshot, unit: Preemptor, rounds: int, chance: Random) -> str:
    wall, cpu, answer = measure(snapshot, unit, rounds, chance)
    jobs = {tenant.job for key in answer.victims if (tenant := snapshot.tenants.get(key)) is not None}
    figures = [number(each) for each in (median(wall), quantile(wall, 0.99), median(cpu))]
    verdict = (
        "met" if median(wall) <= TARGET_MS else "met in CPU time" if median(cpu) <= TARGET_MS else "missed"
    )
    return (
        f"{unit.job.id:44} {figures[0]:>8} {figures[1]:>8} {figures[2]:>8}"
        f"     {len(answer.victims):>8,} {len(jobs):>6,}  {verdict}"
    )


if __name__ == "__main__":
    main()
