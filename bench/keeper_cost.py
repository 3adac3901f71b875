"""What one trivial task costs a keeper process: `python -m bench.keeper_cost [--tasks 2000] [--lanes 2]`.

A real keeper runs `/bin/true` as the runner's own loop tells it to, and a coordinator answers from memory; the rig is
that of `runner_cost`. CPU time is counted by the kernel, to the nanosecond, for the keeper's process alone: its
children are not in it. `--no-cgroups` is a runner that may make none; `--folder` is where state and logs are;
`--profile FILE` runs the keeper under cProfile, and `--tree` measures the keeper of another checkout.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.runner_cost import MemoryMachine, Rig, Timing
from phalanx.runner import machine
from phalanx.runner.keeper import lookup, service
from phalanx.runner.machine import LocalMachine
from phalanx.runner.processes import Processes

PROFILED = """
import cProfile, sys, os
sys.path.append({above!r})
from keeper import service
profile = cProfile.Profile()
try:
    profile.runcall(service.main, sys.argv[1:])
finally:
    profile.dump_stats({out!r})
"""


class RealKeeper(MemoryMachine):
    """A machine with a real keeper."""

    async def connect(self, make: Callable[[], Processes]) -> Processes:
        return await LocalMachine.connect(self, make)


class KeeperRig(Rig):
    """One runner with a real keeper, and a coordinator that answers from memory."""

    machines = RealKeeper

    async def run(self, tasks: int) -> None:
        self.begin(tasks)
        while self.ended < tasks:
            await asyncio.sleep(0.001)
            self.answer(tasks)

    async def close(self) -> None:
        await self.loop.close(stop_tasks=True)
        await self.leave()


def cpu_ms(pid: int) -> float:
    """The processor time of a process of one thread, as the scheduler counts it."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6


async def measure(folder: Path, tasks: int, rounds: int, lanes: int, has_cgroups: bool) -> list[float]:
    """Milliseconds of CPU a task, of each round."""
    rig = KeeperRig(folder, 1, lanes, has_cgroups)
    for name in rig.folders:
        name.mkdir()
    await rig.open()
    (pid,) = [pid for name in rig.folders for pid in lookup.keepers(os.path.realpath(name), service.LOCK)]
    found = []
    try:
        await rig.run(500)
        for _ in range(rounds):
            rig.timing = Timing(None)
            before = cpu_ms(pid)
            await rig.run(tasks)
            found.append((cpu_ms(pid) - before) / tasks)
    finally:
        await rig.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--folder", default=None, help="a folder on a disk, for state and logs")
    parser.add_argument("--no-cgroups", action="store_true")
    parser.add_argument("--profile", default="", help="a file for a profile of the keeper")
    parser.add_argument("--tree", default="", help="the checkout whose keeper is measured")
    options = parser.parse_args()
    if options.tree:
        machine.KEEPER = Path(options.tree).resolve() / "src/phalanx/runner/keeper/__main__.py"
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-", dir=options.folder) as folder:
        if options.profile:
            above, out = str(machine.KEEPER.parent.parent), str(Path(options.profile).resolve())
            machine.KEEPER = Path(folder) / "keeper" / "__main__.py"  # a keeper is known by its path
            machine.KEEPER.parent.mkdir()
            machine.KEEPER.write_text(PROFILED.format(above=above, out=out))
        given = options.tasks, options.rounds, options.lanes, not options.no_cgroups
        found = asyncio.run(measure(Path(folder), *given))
    sys.stdout.write(
        f"{options.tasks:,} tasks, {options.lanes} lanes, {len(found)} rounds: "
        f"{statistics.median(found):.4f} ms of CPU a task in the keeper ({min(found):.4f} to {max(found):.4f})\n"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
