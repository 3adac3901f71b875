"""First come first served against EASY backfill: logs of real clusters, replayed through the engine in virtual time.

    python -m bench.backfill LOG.swf... [--procs N] [--shape gangs|tasks]

Every job of the log becomes one waiting unit, and `plan` decides at each arrival and each end, as it does in the
coordinator. As `gangs` the machine is one-core nodes and a job is a gang of as many one-core tasks as it had
processors; as `tasks` the machine is one node and a job is one task with as many cores. Both have to give the same
waits, the second sooner. The estimate of a job is its time limit, which none of them overruns.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Hashable, Iterator
from heapq import heappop, heappush
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from bench.swf import Log, Logged, read
from phalanx.core.model.job import Command, Gang, Group, Job
from phalanx.core.model.plan import Placement, Plan, PlanMemory, Policy, Snapshot
from phalanx.core.model.queues import Queues
from phalanx.core.model.resources import Capacity, Grant, Request
from phalanx.core.model.table import NodeTable
from phalanx.core.model.tenants import NEVER, Tenant, Tenants
from phalanx.core.model.waiting import Part, Rank, Unit, Waiting
from phalanx.core.placement.engine import plan

if TYPE_CHECKING:  # an older tree, which this is compared with, does not have it
    from phalanx.core.model.lanes import Lane, LanePool

BOUND_S = 10.0  # shorter jobs count as this long in the slowdown
TARGET_PERCENT = 10.0
MEASURED: dict[str, dict[str, tuple[float, float]]] = {
    "sdsc_sp2_5k": {"fcfs": (15_675, 140.3), "easy": (3_689, 18.3), "exact": (3_300, 14.6)},
    "hpc2n_alea_sample": {"fcfs": (5_588, 46.8), "easy": (3_470, 16.3), "exact": (3_348, 15.5)},
}
"""Mean wait in seconds and mean bounded slowdown of another simulator on the same logs."""
MODES = {
    "fcfs": "first come first served",
    "easy": "EASY, users' estimates",
    "exact": "EASY, exact run times",
}


class Task:
    """A job as one task on the only node."""

    is_gang: Literal[False] = False
    comes_back = False
    number = 0
    typical_run_s = None

    def __init__(self, job: Job, arrival: int) -> None:
        self.job = job
        self.rank: Rank = (-float(job.priority), arrival, 0)
        self.request = job.groups[0].request
        self.kind: Hashable = self.request
        self.lanes: dict[tuple[str, int], Lane] = {}
        self.pool: LanePool | None = None

    def ready(self, most: int) -> Iterator[int]:
        return iter((0,)[:most])


class GangOwner:
    """A job as a gang of tasks, each on its own node."""

    is_gang: Literal[True] = True
    is_surplus = False
    may_hold_part = False
    comes_back = False

    def __init__(self, job: Job, arrival: int) -> None:
        self.job = job
        self.rank: Rank = (-float(job.priority), arrival, 0)
        self.kind: Hashable = job.groups[0].tasks

    def wanted(self) -> tuple[Part, ...]:
        group = self.job.groups[0]
        return (Part(group.request, group.tasks, group.tasks),)

    def members(self, group: int) -> list[tuple[int, int]]:
        return [(position, position) for position in range(self.job.groups[group].tasks)]

    def bound(self) -> list[tuple[int, int]]:
        return []


class Outcome(Struct, frozen=True):
    """What a replay gave: means over all jobs, and what the decisions cost."""

    wait_s: float
    slowdown: float
    plans: int
    cpu_s: float


class Replay:
    """One log under one policy: what runs, what waits, and when."""

    def __init__(self, procs: int, *, gangs: bool, backfills: bool) -> None:
        self.now = 0.0
        self.waits: dict[int, float] = {}
        self.plans = 0
        self.cpu_s = 0.0
        self._policy = Policy(backfill="easy" if backfills else "none")
        self._gangs = gangs
        self._nodes = NodeTable()
        for number in range(procs if gangs else 1):
            self._nodes.put(f"n{number:04}", Capacity(1 if gangs else procs, 0))
            self._nodes.set_open(f"n{number:04}", True)
        self._waiting = Waiting()
        self._memory = PlanMemory()
        self._tenants = Tenants()
        self._queues = Queues()
        self._gain = 0
        self._units: dict[str, tuple[Unit, Logged]] = {}
        self._held: dict[str, list[Placement]] = {}
        self._ends: list[tuple[float, str]] = []

    def run(self, jobs: list[Logged], *, exact: bool) -> Outcome:
        arrivals = [(job.submitted_at, number, job) for number, job in enumerate(jobs)][::-1]
        while arrivals or self._ends:
            self.now = min([at for at, _, _ in arrivals[-1:]] + [at for at, _ in self._ends[:1]])
            while self._ends and self._ends[0][0] <= self.now:
                self._end(heappop(self._ends)[1])
            while arrivals and arrivals[-1][0] <= self.now:
                _, number, job = arrivals.pop()
                self._submit(number, job, job.run_s if exact else job.estimate_s)
            self._place()
        slowdowns = [_slowdown(self.waits[job.number], job.run_s) for job in jobs]
        waits = [self.waits[job.number] for job in jobs]
        return Outcome(sum(waits) / len(jobs), sum(slowdowns) / len(jobs), self.plans, self.cpu_s)

    def _submit(self, number: int, logged: Logged, limit_s: float) -> None:
        tasks = logged.procs if self._gangs else 1
        cores = 1 if self._gangs else logged.procs
        job = Job(
            id=str(logged.number),
            groups=(Group(Command(("true",)), Request(cores=cores), tasks=tasks),),
            batch=str(logged.number),
            submitted_at=self.now,
            time_limit_s=limit_s,
            gang=Gang() if self._gangs else None,
        )
        unit: Unit = GangOwner(job, number) if self._gangs else Task(job, number)
        self._units[job.id] = unit, logged
        self._waiting.add(unit)

    def _place(self) -> None:
        while len(self._waiting):
            began = time.process_time()
            proposal: Plan = plan(
                Snapshot(
                    self._nodes,
                    self._waiting,
                    self._gain,
                    self._tenants,
                    self._queues,
                    self.now,
                    self._memory,
                ),
                self._policy,
            )
            self.cpu_s += time.process_time() - began
            self._memory = proposal.memory
            self.plans += 1
            for placement in proposal.placements:
                self._start(placement.job, [placement])
            for gang_placement in proposal.gang_placements:
                self._start(gang_placement.job, list(gang_placement.members))
            if not proposal.more:
                return

    def _start(self, id: str, members: list[Placement]) -> None:
        unit, logged = self._units[id]
        self._waiting.discard(unit)
        self._held[id] = members
        self.waits[logged.number] = self.now - logged.submitted_at
        heappush(self._ends, (self.now + logged.run_s, id))
        for member in members:
            row = self._nodes.rows[member.node]
            self._nodes.take(row, member.grant)
            self._queues.take(("default", ""), member.grant)
            self._tenants.add(self._tenant(unit.job, row, member.position, member.grant))

    def _tenant(self, job: Job, row: int, position: int, grant: Grant) -> Tenant:
        return Tenant(
            key=(job.id, position),
            job=job.id,
            queue="default",
            group=0,
            node_row=row,
            grant=grant,
            priority=0,
            evictable_at=NEVER,
            ends_at=self.now + (job.time_limit_s or 0.0),
            since=self.now,
        )

    def _end(self, id: str) -> None:
        for member in self._held.pop(id):
            self._nodes.give_back(self._nodes.rows[member.node], member.grant)
            self._queues.give_back(("default", ""), member.grant)
            self._tenants.remove((id, member.position))
        del self._units[id]
        self._gain += 1


def replay(log: Log, mode: str, procs: int, *, gangs: bool = False) -> Outcome:
    """The whole log under one policy, on a machine of so many processors."""
    return Replay(procs, gangs=gangs, backfills=mode != "fcfs").run(log.jobs, exact=mode == "exact")


def main() -> int:
    options = _options()
    worst = 0.0
    for path in options.logs:
        with path.open(encoding="latin-1") as lines:
            log = read(lines)
        procs = options.procs or log.procs
        if not procs or any(job.procs > procs for job in log.jobs):
            print(f"{path.name}: no MaxProcs in its header, or jobs larger than that; give --procs")
            return 2
        print(f"{path.name}: {len(log.jobs)} jobs, {procs} processors, as {options.shape}")
        print(f"    {'':25}{'mean wait s':>22}{'bounded slowdown':>26}")
        for mode in MODES:
            outcome = replay(log, mode, procs, gangs=options.shape == "gangs")
            worst = max(worst, _show(mode, outcome, MEASURED.get(path.stem, {}).get(mode)))
    print(f"largest difference {worst:.1f} %, target {TARGET_PERCENT:.0f} %")
    return int(worst > TARGET_PERCENT)


def _show(mode: str, outcome: Outcome, measured: tuple[float, float] | None) -> float:
    """Print one line; returns how far it is from what was measured, in percent."""
    cost = f"{outcome.plans} plans, {1e3 * outcome.cpu_s / outcome.plans:.2f} ms each"
    found = (outcome.wait_s, outcome.slowdown)
    if measured is None:
        print(f"    {MODES[mode]:25}{found[0]:>12,.0f}{found[1]:>26,.1f}              {cost}")
        return 0.0
    off = [100.0 * (ours / theirs - 1.0) for ours, theirs in zip(found, measured, strict=True)]
    wait = f"{found[0]:,.0f} ({measured[0]:,.0f}, {off[0]:+.1f} %)"
    slowdown = f"{found[1]:,.1f} ({measured[1]:,.1f}, {off[1]:+.1f} %)"
    print(f"    {MODES[mode]:25}{wait:>26}{slowdown:>26}    {cost}")
    return max(map(abs, off))


def _slowdown(wait_s: float, run_s: float) -> float:
    return max(1.0, (wait_s + run_s) / max(run_s, BOUND_S))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.backfill", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("logs", nargs="+", type=Path, metavar="LOG.swf")
    parser.add_argument("--procs", type=int, default=0, help="processors, if the header does not say")
    parser.add_argument("--shape", choices=("gangs", "tasks"), default="gangs")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
