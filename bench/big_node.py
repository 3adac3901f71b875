"""How many trivial processes one node starts on all its cores: `python -m bench.big_node`.

    python -m bench.big_node [--tasks 20000] [--slots CORES] [--keepers 1,0] [--cgroups every-task,memory] [--rounds 3]

The limit is measured in the same round, before and after: as many bare spawning processes as there are slots, each with
one `/bin/true` after another. Ours is one array over REST, durable, with the logs of every task. `--keepers 0` is the
number that the runner chooses by itself.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from bench import ceiling
from bench.cluster import Cluster, submit, wait
from bench.machine import Machine


def bare_per_s(spawners: int, spawns: int) -> float:
    """Spawns a second of so many processes that do nothing else, together."""
    words = [sys.executable, "-I", "-S", ceiling.__file__, str(spawns // spawners)]
    began = time.perf_counter()
    running = [subprocess.Popen(words, stdout=subprocess.DEVNULL) for _ in range(spawners)]
    if any(process.wait() for process in running):
        raise RuntimeError("a bare spawning process failed")
    return spawns // spawners * spawners / (time.perf_counter() - began)


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

    def run(self, tasks: int) -> tuple[float, dict[str, float]]:
        """Tasks a second, and the CPU milliseconds of each part per task."""
        with self._cluster.connect() as rest, self._machine.span(self._cluster.parts()) as span:
            wait(rest, submit(rest, "/bin/true", array=f"1-{tasks}"))
        return tasks / span.wall_s, {part: used.own_s / tasks * 1000 for part, used in span.used.items()}

    def stop(self) -> None:
        self._cluster.stop()


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
            _measure(variants, options.tasks, options.slots, options.rounds)
        finally:
            for variant in variants:
                variant.stop()
    return 0


def _measure(variants: list[Variant], tasks: int, slots: int, rounds: int) -> None:
    print(f"{tasks:,} x /bin/true, {slots} slots, {len(os.sched_getaffinity(0))} cores", flush=True)
    shares: dict[str, list[float]] = {variant.name: [] for variant in variants}
    for _ in range(rounds):
        for variant in variants:
            before = bare_per_s(slots, tasks)
            per_s, cpu_ms = variant.run(tasks)
            limit = 2 / (1 / before + 1 / bare_per_s(slots, tasks))
            shares[variant.name].append(per_s / limit)
            parts = ", ".join(f"{part} {ms:.3f} ms" for part, ms in cpu_ms.items())
            print(
                f"{variant.name}: {per_s:,.0f}/s of {limit:,.0f}/s = {per_s / limit:.2f} ({parts})",
                flush=True,
            )
    for name, found in shares.items():
        print(f"median {name}: {median(found):.2f} of the limit ({min(found):.2f} to {max(found):.2f})")


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
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
