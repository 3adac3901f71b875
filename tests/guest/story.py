"""Run as the first program of a guest with cgroup v2 and two NUMA nodes: limits that hold, told as one line each.

`scripts/cgroup-v2` builds the guest and reads the lines. A line is `ok NAME` or `FAILED NAME: what was seen`.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

from phalanx.core.model.resources import Capacity, Device, Grant
from phalanx.core.runner.attempts import ProcessEnd
from phalanx.runner.cgroups import Cgroups
from phalanx.runner.device_nodes import find_nodes
from phalanx.runner.devices import discover
from phalanx.runner.keeper_messages import Event, Launch, ProcessEnded, ProcessRefused
from phalanx.runner.limits import AttemptLimits
from phalanx.runner.machine import LocalMachine
from phalanx.runner.processes import Processes

MIB = 1 << 20
PIDS_MAX = 32
WITHIN_S = 120.0  # the guest is emulated
PYTHON = [sys.executable, "-I", "-S", "-c"]
SHOW = """
import os, json
try:
    os.sched_setaffinity(0, range(os.cpu_count()))
except OSError:
    pass
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
print(json.dumps([sorted(os.sched_getaffinity(0)), status["Mems_allowed_list"].strip()]), flush=True)
"""
BOMB = """
import os, time
for _ in range(200):
    if os.fork() == 0:
        time.sleep(300)
"""
OPEN = """
import os
for path in ("/dev/full", "/dev/zero"):
    try:
        os.close(os.open(path, os.O_RDONLY)); print("opened")
    except PermissionError:
        print("refused")
"""
ESCAPE = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        time.sleep(300)
    os._exit(0)
time.sleep(300)
"""


class Guest:
    """One keeper with its limits, as a runner has them."""

    def __init__(self, folder: Path) -> None:
        capacity = discover()
        devices = (Device(0, "gpu"), Device(1, "gpu"))
        self.capacity = Capacity(capacity.cores, capacity.memory_bytes, capacity.numa, devices)
        self.cgroups = Cgroups.find("guest", isolate=True, devices=True)
        nodes = find_nodes(self.capacity, "0=/dev/full;1=/dev/zero")
        cpus = sorted(os.sched_getaffinity(0))
        self.limits = AttemptLimits(self.cgroups, self.capacity, cpus, PIDS_MAX, nodes)
        self._folder = folder
        self._ends: dict[str, asyncio.Future[ProcessEnd]] = {}
        self._lane = 0
        self.processes: Processes

    async def open(self) -> None:
        machine = LocalMachine(self._folder, self.cgroups.bases)
        self.processes = await Processes.open(machine, self._hear, deadline_s=WITHIN_S)

    def start(self, script: str | list[str], grant: Grant) -> str:
        self._lane += 1
        key = ("j", self._lane, 1)
        name = "/".join(map(str, key))
        taken = self.limits.take(key, self._lane, grant, self.processes.version)
        argv = script if isinstance(script, list) else [*PYTHON, script]
        self.processes.brief(name, argv, {"PATH": "/usr/bin:/bin"}, None, self.limits.tracking())
        out, err = str(self._folder / f"{self._lane}.out"), str(self._folder / f"{self._lane}.err")
        launch = Launch(out, err, cgroups=taken.cgroups or None, cpus=taken.cpus or None, memo=taken.memo)
        self._ends[name] = asyncio.get_running_loop().create_future()
        self.processes.start(name, name, launch)
        return name

    async def ended(self, name: str) -> ProcessEnd:
        end = await asyncio.wait_for(self._ends[name], WITHIN_S)
        job, position, number = name.split("/")
        return self.limits.ended((job, int(position), int(number)), end)

    def out(self, name: str) -> str:
        return (self._folder / f"{name.split('/')[1]}.out").read_text()

    async def said(self, name: str) -> str:
        async with asyncio.timeout(WITHIN_S):
            while not (self._folder / f"{name.split('/')[1]}.out").exists() or not self.out(name).endswith(
                "\n"
            ):
                await asyncio.sleep(0.05)
        return self.out(name)

    def _hear(self, event: Event) -> None:
        if isinstance(event, ProcessRefused):
            self._ends[event.key].set_exception(RuntimeError(f"{event.code}: {event.message}"))
        elif isinstance(event, ProcessEnded):
            self._ends[event.key].set_result(event.exit)


async def holds_everything(guest: Guest) -> object:
    isolation = guest.limits.isolation
    assert isolation.lacking == [], isolation
    assert [each.is_v2 for each in guest.cgroups.hierarchies] == [True]
    assert len(guest.capacity.numa) == 2, guest.capacity.numa
    return isolation


async def own_cpus(guest: Guest) -> object:
    first, second = (guest.start(SHOW + "\nimport time; time.sleep(300)", Grant(1, 0)) for _ in range(2))
    one, other = json.loads(await guest.said(first))[0], json.loads(await guest.said(second))[0]
    assert len(one) == len(other) == 1
    assert one != other
    for name in (first, second):
        guest.processes.stop(name, 0.0)
        await guest.ended(name)
    return one, other


async def numa_target(guest: Guest) -> object:
    cpus = guest.capacity.numa[1].cpus
    name = guest.start(SHOW, Grant(1, 0, numa=1, numa_cores=((1, 1),)))
    assert (await guest.ended(name)).code == 0
    seen = json.loads(guest.out(name))
    assert set(seen[0]) <= set(cpus)
    assert len(seen[0]) == 1
    assert seen[1] == "1"
    whole = guest.start(SHOW, Grant(0.5, 64 * MIB, numa=1, numa_cores=((1, 0.5),)))
    assert (await guest.ended(whole)).code == 0
    again = json.loads(guest.out(whole))
    assert again == [sorted(cpus), "1"], again
    return seen, again


async def quota(guest: Guest) -> object:
    show = "import time; t, c = time.time(), time.process_time()\nwhile time.time() < t + 4: pass\n"
    show += "print((time.process_time() - c) / 4)"
    name = guest.start(show, Grant(0.25, 0))
    assert (await guest.ended(name)).code == 0
    share = float(guest.out(name))
    assert 0.15 < share < 0.35, share
    return share


async def memory(guest: Guest) -> object:
    name = guest.start(f"bytearray({256 * MIB})", Grant(1, 64 * MIB))
    end = await guest.ended(name)
    assert end.oom
    assert end.memory_limit_bytes == 64 * MIB
    assert 32 * MIB < end.memory_peak_bytes <= 65 * MIB
    return end.memory_peak_bytes


async def fork_bomb(guest: Guest) -> object:
    end = await guest.ended(guest.start(BOMB, Grant(1, 0)))
    assert end.code == 1
    assert end.forks_refused == 1
    return end.forks_refused


async def devices(guest: Guest) -> object:
    seen = []
    for given in ((), (0,), (1,)):
        name = guest.start(OPEN, Grant(1, 64 * MIB if given == (1,) else 0, devices=given))
        assert (await guest.ended(name)).code == 0
        seen.append(guest.out(name).split())
    assert seen == [["refused", "refused"], ["opened", "refused"], ["refused", "opened"]], seen
    return seen


async def whole_tree(guest: Guest) -> object:
    name = guest.start(ESCAPE, Grant(1, 0))
    grandchild = int(await guest.said(name))
    guest.processes.stop(name, 0.2)
    await guest.ended(name)
    assert not Path(f"/proc/{grandchild}").exists()
    return grandchild


async def cost(guest: Guest) -> object:
    took: dict[str, list[float]] = {"with limits": [], "plain": []}
    plain = AttemptLimits(Cgroups((), "", False), guest.capacity)
    limits = guest.limits
    for turn in range(60):
        for way, used in (("with limits", limits), ("plain", plain)):
            guest.limits = used
            began = time.perf_counter()
            await guest.ended(guest.start(["/bin/true"], Grant(1, 0)))
            if turn >= 10:
                took[way].append(1000 * (time.perf_counter() - began))
    guest.limits = limits
    return {way: round(statistics.median(times), 2) for way, times in took.items()}


async def nothing_left(guest: Guest) -> object:
    await guest.processes.shutdown(1.0)
    await guest.limits.leave()
    left = [str(path) for path in Path("/sys/fs/cgroup").rglob("phalanx-guest*")]
    assert left == [], left
    return left


STORY: tuple[Callable[[Guest], Awaitable[object]], ...] = (
    *(
        holds_everything,
        own_cpus,
        numa_target,
        quota,
        memory,
        fork_bomb,
        devices,
        whole_tree,
        cost,
        nothing_left,
    ),
)


async def main() -> int:
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        guest = Guest(Path(folder))
        await guest.open()
        for part in STORY:
            name = part.__name__.replace("_", " ")
            try:
                seen = await part(guest)
                sys.stdout.write(f"ok {name}: {seen}\n")
            except Exception:  # all parts are told
                failed += 1
                sys.stdout.write(f"FAILED {name}: {traceback.format_exc()}\n")
            sys.stdout.flush()
    return failed


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
