"""What limits cost: from the request to start a trivial process until its end, with and without, interleaved.

One keeper, one process at a time, round after round in another order: a plain spawn, one in a slot (what every task had
before), with a CPU of its own and a limit of processes, the same as a new lane each time, a part of a core under a
quota, with devices closed, with a memory limit besides, and with a host name and a hosts file (root). Medians,
what each costs above the plain spawn, and the ratio; beside them the tenth of the times that were shortest, and the CPU
time of keeper and runner, both of which a busy machine changes less. What the runner does for each (`AttemptLimits`
`take` and `release`, the hosts file) is in both.

    .venv/bin/python -m bench.isolation [--rounds 300]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench.figures import quantile
from phalanx.core.model.orders import AttemptKey
from phalanx.core.model.resources import Capacity, Device, Grant
from phalanx.runner.cgroups import Cgroups
from phalanx.runner.device_nodes import find_nodes
from phalanx.runner.keeper import lookup, service
from phalanx.runner.keeper_messages import Event, Launch, ProcessEnded, ProcessRefused
from phalanx.runner.limits import AttemptLimits
from phalanx.runner.log_files import HOSTS, log_path
from phalanx.runner.machine import LocalMachine
from phalanx.runner.peers import Member, can_set_names, hosts_text, write_hosts
from phalanx.runner.processes import Processes

MIB = 1 << 20
ALLOWED_MS = 1.0  # what isolation may cost above a plain spawn, in the median,
NAMES_ALLOWED_MS = 5.0  # and what namespaces with a host name and a hosts file may
PROGRAM = ["/bin/true"]
ENV = {"PATH": "/usr/bin:/bin"}
NAMES = "own host name and hosts file"
Prepare = Callable[[AttemptKey], "Prepared"]


class Prepared(NamedTuple):
    """What one attempt is started with, and what is done when it has ended."""

    cgroups: tuple[str, ...] = ()
    spaces: dict[str, str] | None = None
    release: Callable[[], object] = lambda: None


class Spawner:
    """One keeper, asked for one process at a time."""

    def __init__(self, folder: Path, bases: tuple[str, ...]) -> None:
        self._folder, self._machine = folder, LocalMachine(folder, bases)
        self._ended: asyncio.Future[None]
        self.processes: Processes

    async def open(self, tracking: str | None) -> None:
        self.processes = await Processes.open(self._machine, self._hear)
        self._pid = next(iter(lookup.keepers(str(self._folder), service.LOCK)))
        self.processes.brief("plain", PROGRAM, ENV, None, None)
        self.processes.brief("slot", PROGRAM, ENV, None, tracking)

    def _cpu_s(self) -> float:
        ran_ns = int(Path(f"/proc/{self._pid}/schedstat").read_text().split()[0])
        return ran_ns / 1e9 + time.process_time()

    async def spawn(self, key: AttemptKey, brief: str, prepare: Prepare) -> tuple[float, float]:
        """Seconds from the request to the end, with what the runner does before and after; and of CPU time."""
        name = "/".join(map(str, key))
        out, err = (str(self._folder / f"{key[1]}.{kind}") for kind in ("out", "err"))
        self._ended = asyncio.get_running_loop().create_future()
        cpu_s, began = self._cpu_s(), time.perf_counter()
        made = prepare(key)
        self.processes.start(name, brief, Launch(out, err, cgroups=made.cgroups or None, spaces=made.spaces))
        await asyncio.wait_for(self._ended, 30.0)
        made.release()
        took = time.perf_counter() - began, self._cpu_s() - cpu_s
        self.processes.forget([name])
        for path in (out, err):
            os.unlink(path)  # noqa: PTH108 - thousands of them
        return took

    def _hear(self, event: Event) -> None:
        if isinstance(event, ProcessRefused):
            self._ended.set_exception(RuntimeError(f"{event.code}: {event.message}"))
        elif isinstance(event, ProcessEnded):
            self._ended.set_result(None)


def plain(_key: AttemptKey) -> Prepared:
    return Prepared()


def named(root: Path) -> Prepare:
    """A host name and a hosts file of its own, of a gang of 16."""
    members = [Member(rank, f"job-worker-0-{rank}", f"10.0.0.{rank}") for rank in range(16)]

    def prepare(key: AttemptKey) -> Prepared:
        path = log_path(root, *key, HOSTS)
        write_hosts(path, hosts_text(members, "job", members[0]))
        return Prepared(
            (), {"hostname": members[0].hostname, "hosts": str(path)}, lambda: Path(path).unlink()
        )

    return prepare


def limited(limits: AttemptLimits, grant: Grant, lane: int | None = None) -> Prepare:
    """With a lane the set of cgroups stays, as for the tasks of an array; without one, each has a lane of its own."""

    def prepare(key: AttemptKey) -> Prepared:
        taken = limits.take(key, key[1] + 1000 if lane is None else lane, grant, 5)
        return Prepared(taken.cgroups, None, lambda: limits.release(key))

    return prepare


async def measure(folder: Path, rounds: int) -> dict[str, list[tuple[float, float]]]:
    cpus = sorted(os.sched_getaffinity(0))
    name = f"bench-{os.getpid()}"
    devices = Capacity(len(cpus), 1 << 40, devices=(Device(0, "gpu"), Device(1, "gpu")))
    cgroups = Cgroups.find(name, isolate=True, devices=True)
    if cgroups.why_not:
        sys.exit(f"no cgroups can be made here: {cgroups.why_not}")
    nodes = find_nodes(devices, "0=/dev/full;1=/dev/zero")
    bare = AttemptLimits(cgroups, Capacity(len(cpus), 1 << 40), cpus)
    closed = AttemptLimits(cgroups, devices, cpus, nodes=nodes)
    lasting = AttemptLimits(cgroups, Capacity(len(cpus), 1 << 40), cpus)
    lasting.take(("lane", 0, 0), 1, Grant(1, 0), 5)
    spawner = Spawner(folder, cgroups.bases)
    await spawner.open(cgroups.tracking)
    ways: dict[str, tuple[str, Prepare]] = {
        "plain spawn": ("plain", plain),
        "in a slot": ("slot", plain),
        "own CPU and processes, next of a lane": ("slot", limited(lasting, Grant(1, 0), lane=1)),
        "own CPU and processes, new lane": ("slot", limited(bare, Grant(1, 0))),
        "half a core": ("slot", limited(bare, Grant(0.5, 0))),
        "own CPU, processes, devices closed": ("slot", limited(closed, Grant(1, 0))),
        "own CPU, processes, memory": ("slot", limited(bare, Grant(1, 64 * MIB))),
    }
    if can_set_names():
        ways[NAMES] = ("slot", named(folder))
    taken: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    dice, number = random.Random(1), 0
    for turn in range(rounds + 10):
        for way in dice.sample(sorted(ways), len(ways)):
            number += 1
            took = await spawner.spawn(("job", number, 1), *ways[way])
            if turn >= 10:  # until all is warm
                taken[way].append(took)
    await spawner.processes.shutdown(1.0)
    await cgroups.leave()
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as folder:
        taken = asyncio.run(measure(Path(folder), rounds))
    base, base_cpu = (statistics.median(each[at] for each in taken["plain spawn"]) for at in (0, 1))
    sys.stdout.write(f"{rounds} rounds, interleaved; medians in ms, from request to end\n\n")
    sys.stdout.write(
        f"{'':40}{'p10':>8}{'above':>8}{'median':>8}{'above':>8}{'ratio':>7}{'p90':>8}{'CPU':>8}{'above':>8}\n"
    )
    least = quantile([each[0] for each in taken["plain spawn"]], 0.1)
    above = {}
    for way, times in taken.items():
        median, cpu = (statistics.median(each[at] for each in times) for at in (0, 1))
        p10, p90 = (quantile([each[0] for each in times], share) for share in (0.1, 0.9))
        above[way] = 1000 * (median - base)
        numbers = (1000 * median, above[way], median / base, 1000 * p90)
        sys.stdout.write(f"{way:40}{1000 * p10:8.3f}{1000 * (p10 - least):8.3f}")
        sys.stdout.write(f"{numbers[0]:8.3f}{numbers[1]:8.3f}{numbers[2]:7.2f}{numbers[3]:8.3f}")
        sys.stdout.write(f"{1000 * cpu:8.3f}{1000 * (cpu - base_cpu):8.3f}\n")
    names_ms = above.pop(NAMES, 0.0)
    holds = [
        _verdict("limits", max(above.values()), ALLOWED_MS),
        _verdict(NAMES, names_ms, NAMES_ALLOWED_MS),
    ]
    return 0 if all(holds) else 1


def _verdict(what: str, most_ms: float, allowed_ms: float) -> bool:
    said = "holds" if most_ms <= allowed_ms else "DOES NOT HOLD"
    sys.stdout.write(f"{what}: at most {allowed_ms} ms above a plain spawn: {said} ({most_ms:.3f} ms)\n")
    return most_ms <= allowed_ms


if __name__ == "__main__":
    raise SystemExit(main())
