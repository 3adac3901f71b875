"""How many trivial processes one node starts on all its cores: `python -m bench.big_node`.

    python -m bench.big_node [--tasks 20000] [--slots CORES] [--keepers 1,0] [--cgroups every-task,memory] [--rounds 3]
        [--folder /dev/shm] [--real-time]

The limit is measured in the same round, before and after: as many bare spawning processes as there are slots, each with
one `/bin/true` after another. Ours is one array over REST, durable, with the logs of every task. `--keepers 0` is the
number that the runner chooses by itself. Beside the times is what a task costs in CPU time, with its process, against a
bare spawn: a machine on which others work changes that less. What others use is said with each line. With `--real-time`
(root) all that is measured, bare spawning processes and tasks too, runs before whatever others do, so a busy machine is
nearly quiet; others then stand still for seconds. `--folder /dev/shm` leaves the disk out, on which a new file costs
several times as much after many were deleted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median

from bench import ceiling
from bench.cluster import Cluster, submit, wait
from bench.machine import Machine, Span


def bare(spawners: int, spawns: int) -> ceiling.Ceiling:
    """Spawns a second of so many processes that do nothing else, together, and the CPU milliseconds of one."""
    words = [sys.executable, "-I", "-S", ceiling.__file__, str(spawns // spawners)]
    began = time.perf_counter()
    running = [subprocess.Popen(words, stdout=subprocess.PIPE) for _ in range(spawners)]
    found = [ceiling.Ceiling(*json.loads(process.communicate()[0])) for process in running]
    per_s = spawns // spawners * spawners / (time.perf_counter() - began)
    return ceiling.Ceiling(per_s, sum(each.cpu_ms for each in found) / spawners)


class Variant:
    """A cluster of one node, with its keepers and cgroups as told."""

    def __init__(self, folder: Path, slots: int, keepers: str, cgroups: str, machine: Machine) -> None:
        self.name = f"keepers={keepers} cgroups={cgroups}"
        folder.mkdir()
        Cluster.runner_settings = {"keepers": keepers, "cgroups": cgroups}
        self._cluster = Cluster(folder, {})
        self._cluster.start_coordinator()
        self._cluster.start_runner("n1", f"cpus={slots},ram=8GiB")
        self._machine = machine
        machine.own(self._cluster.parts())
        self.run(200)  # the first tasks of a cluster pay for what is loaded late

    def run(self, tasks: int) -> Span:
        with self._cluster.connect() as rest, self._machine.span(self._cluster.parts()) as span:
            wait(rest, submit(rest, "/bin/true", array=f"1-{tasks}"))
        return span

    @contextmanager
    def before_others(self) -> Iterator[None]:
        """This process and the cluster run before others, with all that they start."""
        parts = self._cluster.parts()
        ordinary = [os.getpid(), *parts["coordinator"], *parts["agent"]]
        try:
            for pid in (*ordinary, *parts["keeper"]):
                _schedule(pid, os.SCHED_RR)
            yield
        finally:
            for pid in ordinary:
                _schedule(pid, os.SCHED_OTHER)
            for pid in parts["keeper"]:  # as a keeper has it: its tasks are ordinary ones
                _schedule(pid, os.SCHED_RR | os.SCHED_RESET_ON_FORK)

    def stop(self) -> None:
        self._cluster.stop()


def _schedule(pid: int, policy: int) -> None:
    priority = os.sched_param(0 if policy == os.SCHED_OTHER else 1)
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setscheduler(int(thread.name), policy, priority)


def main() -> int:
    options = _options()
    machine = Machine()
    with tempfile.TemporaryDirectory(dir=options.folder, ignore_cleanup_errors=True) as folder:
        variants = [
            Variant(Path(folder) / f"{keepers}-{cgroups}", options.slots, keepers, cgroups, machine)
            for keepers in options.keepers.split(",")
            for cgroups in options.cgroups.split(",")
        ]
        try:
            _measure(variants, options.tasks, options.slots, options.rounds, options.real_time)
        finally:
            for variant in variants:
                variant.stop()
    return 0


def _measure(variants: list[Variant], tasks: int, slots: int, rounds: int, real_time: bool) -> None:
    print(f"{tasks:,} x /bin/true, {slots} slots, {len(os.sched_getaffinity(0))} cores", flush=True)
    shares: dict[str, list[float]] = {variant.name: [] for variant in variants}
    costs: dict[str, list[float]] = {variant.name: [] for variant in variants}
    for _ in range(rounds):
        for variant in variants:
            with variant.before_others() if real_time else nullcontext():
                before = bare(slots, tasks)
                span = variant.run(tasks)
                limit = ceiling.joined(before, bare(slots, tasks))
            shares[variant.name].append(tasks / span.wall_s / limit.per_s)
            costs[variant.name].append(limit.cpu_ms / (1000 * span.cpu_s / tasks))
            print(f"{variant.name}: {_line(span, tasks, limit)}", flush=True)
    for name, found in shares.items():
        cpu = costs[name]
        print(
            f"median {name}: {median(found):.2f} of the limit ({min(found):.2f} to {max(found):.2f});"
            f" by CPU time {median(cpu):.2f} ({min(cpu):.2f} to {max(cpu):.2f})"
        )


def _line(span: Span, tasks: int, limit: ceiling.Ceiling) -> str:
    """One round in words."""
    per_s = tasks / span.wall_s
    parts = {part: 1000 * used.own_s / tasks for part, used in span.used.items()}
    parts["tasks"] = sum(1000 * used.children_s / tasks for used in span.used.values())
    spent = ", ".join(f"{part} {ms:.3f} ms" for part, ms in parts.items())
    return (
        f"{per_s:,.0f}/s of {limit.per_s:,.0f}/s = {per_s / limit.per_s:.2f} ({spent};"
        f" a bare spawn {limit.cpu_ms:.3f} ms; others used {span.weather.foreign:.0%})"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--slots", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--keepers", default="0", help="settings of runner.keepers to compare")
    parser.add_argument(
        "--cgroups", default="every-task,memory", help="settings of runner.cgroups to compare"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", default=None, help="a folder on a disk, for the state")
    parser.add_argument("--real-time", action="store_true", help="run before all that others do")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
