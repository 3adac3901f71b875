"""What one trivial task costs the runner process alone: `python -m bench.runner_cost [--tasks 20000]`.

The runner's own loop with its own limits, and keepers and a coordinator that answer from memory: starts come in
messages, as a coordinator sends them, each keeper reports the end of a few tasks at a time and the start of those that
run then, and every end is acknowledged. Only what the runner does is timed, its sockets are not. Median, and the parts
of it; `--profile` shows where it goes.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import json
import os
import pstats
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, cast

from msgspec import structs

from phalanx.clock import SteadyClock
from phalanx.config import task_environment
from phalanx.core.model.job import Command
from phalanx.core.model.orders import Brief, Disposition, Ended, Start
from phalanx.core.model.resources import Capacity, Grant
from phalanx.link import wire
from phalanx.runner.cgroups import Cgroups
from phalanx.runner.keeper import VERSION
from phalanx.runner.limits import AttemptLimits
from phalanx.runner.link import Wire
from phalanx.runner.loop import RunnerLoop
from phalanx.runner.machine import LocalMachine
from phalanx.runner.processes import Processes
from phalanx.runner.scratch import ScratchFolders
from phalanx.runner.turn import RunnerEngine

JOB = "01k1234567890abcdefghj"  # and a number
LANES, AHEAD = 16, 16  # attempts that a lane has at a time
TOGETHER = 4  # tasks whose ends a keeper sends in one frame
RUNNING = 2  # tasks that a keeper has started when it sends one


class Sent:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.data: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.data.append(data)

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, _name: str) -> None:
        return None

    def close(self) -> None:
        return

    def take(self) -> bytes:
        data, self.data = b"".join(self.data), []
        return data


class MemoryMachine(LocalMachine):
    """A machine whose keeper has nothing yet, and answers from memory."""

    processes: Processes
    transport: Sent

    async def connect(self, make: Callable[[], Processes]) -> Processes:
        self.processes, self.transport = make(), Sent()
        self.processes.connection_made(cast(Any, self.transport))
        listing = _frame([["listing", [], {"version": VERSION}]])
        asyncio.get_running_loop().call_soon(self.processes.data_received, listing)
        return self.processes


class Rig:
    """One runner between keepers and a coordinator that answer from memory."""

    machines: type[LocalMachine] = MemoryMachine

    def __init__(self, folder: Path, keepers: int, lanes: int = LANES, has_cgroups: bool = True) -> None:
        self.timing = Timing(None)
        self.ended = 0
        names = [f"bench-{os.getpid()}.{number}" for number in range(keepers)]
        self._cgroups = [Cgroups.find(name, isolate=has_cgroups, track=has_cgroups) for name in names]
        self.folders = [folder / name for name in names]
        self._machines = [self.machines(each) for each in self.folders]
        self._lanes = lanes
        capacity = Capacity(lanes, 1 << 40)
        scratch = ScratchFolders(folder / "scratch")
        limits = AttemptLimits(self._cgroups[0], capacity, scratch=scratch, others=self._cgroups[1:])
        engine = RunnerEngine("n1", "life", "origin", "token", capacity)
        places = list(zip(self._machines, self._cgroups, strict=True))
        self.loop = RunnerLoop(engine, folder, SteadyClock(), task_environment(), 64 << 20, places, limits)
        self._link, self._out, self._unpacker = Wire(self.loop), Sent(), wire.Unpacker()
        self._number = self._jobs = 0
        self._job = ""

    async def open(self) -> None:
        await self.loop.open()
        self._link.connection_made(cast(Any, self._out))
        self._out.take()
        self._receive(wire.Welcome(wire.VERSION, 1, 5.0, 1e6))

    async def run(self, tasks: int) -> None:
        self.begin(tasks)
        waiting: list[deque[str]] = [deque() for _ in self._machines]
        while self.ended < tasks:
            await self._turn(waiting)
            self.answer(tasks)

    def begin(self, tasks: int) -> None:
        """The first starts of a new array."""
        self._jobs += 1
        self._job = f"{JOB}{self._jobs:04}"
        command = Command(("/bin/true",))
        brief = Brief(self._job, 0, command, "job", "default", self._job, tasks, f"1-{tasks}", 10.0, None)
        self._number = self.ended = 0
        first = [self._start(lane) for _ in range(AHEAD) for lane in range(self._lanes)]
        self._receive(wire.Orders(1, [structs.replace(brief, group_tasks=tasks), *first[:tasks]]))

    async def leave(self) -> None:
        for cgroups in self._cgroups:
            await cgroups.leave()

    def _receive(self, message: wire.Message) -> None:
        data = wire.pack(message)
        with self.timing("messages"):
            self._link.data_received(data)

    def _start(self, lane: int) -> Start:
        self._number += 1
        return Start((self._job, self._number - 1, 1), lane, Grant(1, 0), self._number, 0)

    async def _turn(self, waiting: list[deque[str]]) -> None:
        """What keepers were asked to start has started and ended, a few at a time."""
        with self.timing("flushes"):
            await asyncio.sleep(0)
        for machine, keys in zip(self._machines, waiting, strict=True):
            assert isinstance(machine, MemoryMachine)
            requests = _requests(machine.transport.take())
            keys.extend(request[1] for request in requests if request[0] == "start")
            some = [keys.popleft() for _ in range(min(TOGETHER, len(keys)))]
            frame = _frame([*map(_end, some), *map(_start, islice(keys, RUNNING))])
            if some:
                with self.timing("news"):
                    machine.processes.data_received(frame)

    def answer(self, tasks: int) -> None:
        """Acknowledge the ends that were reported, and send as many starts."""
        reports = [each for each in self._unpacker.feed(self._out.take()) if isinstance(each, wire.Reports)]
        ends = [report for each in reports for report in each.reports if isinstance(report, Ended)]
        if not ends:
            return
        self.ended += len(ends)
        starts = [self._start(end.key[1] % self._lanes) for end in ends[: tasks - self._number]]
        self._receive(wire.Orders(1, list(starts)))
        self._receive(wire.Dispositions(1, [(each.key, Disposition.ACCEPTED) for each in ends]))


class Timing:
    """CPU seconds by part."""

    def __init__(self, profile: cProfile.Profile | None) -> None:
        self.parts: dict[str, float] = {}
        self._profile = profile
        self._name, self._began = "", 0.0

    def __call__(self, name: str) -> Timing:
        self._name = name
        return self

    def __enter__(self) -> None:
        self._began = time.process_time()
        if self._profile is not None:
            self._profile.enable()

    def __exit__(self, *_: object) -> None:
        if self._profile is not None:
            self._profile.disable()
        self.parts[self._name] = self.parts.get(self._name, 0.0) + time.process_time() - self._began


def _start(key: str) -> list[Any]:
    return ["started", key, 4242, 1.0, [1000, 1001]]


def _end(key: str) -> list[Any]:
    end = {
        "code": 0, "signal": None, "oom": False, "reason": None, "started_at": 1.0, "ended_at": 2.0, "stderr_tail": "",
        "stopped": True, "why": None, "files": 0, "forks_refused": 0, "memory_peak_bytes": 4 << 20, "cpu_s": 0.001,
        "read_bytes": 0, "written_bytes": 0,
    }  # fmt: skip
    return ["ended", key, end]


def _frame(answers: list[Any]) -> bytes:
    body = json.dumps(answers).encode()
    return len(body).to_bytes(4, "big") + body


def _requests(data: bytes) -> list[list[Any]]:
    found: list[list[Any]] = []
    at = 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        found += json.loads(data[at + 4 : end])
        at = end
    return found


async def measure(
    tasks: int, rounds: int, keepers: int, profile: cProfile.Profile | None
) -> list[dict[str, float]]:
    """Milliseconds of CPU a task by part, of each round."""
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as folder:
        rig = Rig(Path(folder), keepers)
        await rig.open()
        await rig.run(tasks // 10)
        found = []
        for _ in range(rounds):
            rig.timing = Timing(profile)
            await rig.run(tasks)
            found.append({part: 1000 * spent_s / tasks for part, spent_s in rig.timing.parts.items()})
        await rig.leave()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keepers", type=int, default=8)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    gc.set_threshold(50_000)  # as `phalanx runner` does
    profile = cProfile.Profile() if options.profile else None
    found = asyncio.run(measure(options.tasks, options.rounds, options.keepers, profile))
    whole = sorted(sum(each.values()) for each in found)
    parts = ", ".join(f"{part} {statistics.median(each[part] for each in found):.4f}" for part in found[0])
    sys.stdout.write(f"{options.tasks:,} tasks, {options.keepers} keepers, {len(found)} rounds: ")
    sys.stdout.write(
        f"{statistics.median(whole):.4f} ms of CPU a task ({whole[0]:.4f} to {whole[-1]:.4f}); {parts}\n"
    )
    if profile is not None:
        pstats.Stats(profile, stream=sys.stdout).sort_stats("tottime").print_stats(45)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
