"""Cell 8: what its own cgroup costs an attempt: the keeper alone, the same tasks with and without, in turns."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figures import Chapter, Figure
from bench.machine import used
from bench.session import Session
from phalanx.runner.cgroups import Cgroups
from phalanx.runner.keeper_messages import Event, Launch, ProcessEnded
from phalanx.runner.machine import LocalMachine
from phalanx.runner.processes import Processes

TASKS, ROUNDS, SLOTS = 5000, 9, 2
COST_MS = 0.15
WITHIN_S = 300.0


def measure(session: Session) -> Chapter:
    tasks, rounds = session.size(TASKS, 300), session.size(ROUNDS, 2)
    chapter = Chapter(f"A cgroup for every attempt: {tasks:,} × /bin/true, {SLOTS} slots, {rounds} rounds")
    with _cgroups() as cgroups:
        if cgroups.tracking is None:
            chapter.not_run = "no cgroups may be made here"
            return chapter
        off, on = asyncio.run(_rounds(session.place("cgroup"), cgroups, tasks, rounds))
    chapter.figures = [
        Figure("CPU per task without a cgroup, keeper and task", "ms", off),
        Figure("CPU per task with a cgroup, keeper and task", "ms", on),
        Figure("cost of the cgroup", "ms", [b - a for a, b in zip(off, on, strict=True)], COST_MS, "less"),
    ]
    chapter.notes = ["The keeper is driven over its socket, without runner or coordinator."]
    return chapter


@contextmanager
def _cgroups() -> Iterator[Cgroups]:
    cgroups = Cgroups.find(f"bench-{os.getpid()}")
    try:
        yield cgroups
    finally:
        asyncio.run(cgroups.leave())


async def _rounds(folder: Path, cgroups: Cgroups, tasks: int, rounds: int) -> tuple[list[float], list[float]]:
    crowd = _Crowd(folder)
    await crowd.connect()
    off, on = [], []
    try:
        await crowd.cost_ms(200, None)  # the first tasks pay for what is loaded late
        await crowd.cost_ms(200, cgroups.tracking)
        for _ in range(rounds):
            off.append(await crowd.cost_ms(tasks, None))
            on.append(await crowd.cost_ms(tasks, cgroups.tracking))
    finally:
        await crowd.keeper.shutdown(0.0)
    return off, on


class _Crowd:
    """Many tasks for one keeper."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._left = 0
        self._sent = 0
        self._all_ended = asyncio.Event()
        self.keeper: Processes

    async def connect(self) -> None:
        self.keeper = await Processes.open(LocalMachine(self._folder), self._hear)

    def _hear(self, event: Event) -> None:
        if isinstance(event, ProcessEnded):
            self.keeper.forget([event.key])
            self._left -= 1
            if not self._left:
                self._all_ended.set()

    async def cost_ms(self, tasks: int, cgroups: str | None) -> float:
        """CPU of the keeper and of its tasks, for each of them."""
        self._left = tasks
        self._all_ended.clear()
        self.keeper.brief("b", ["/bin/true"], {}, None, cgroups)
        before = sum(used(self._pid()))
        for number in range(self._sent, self._sent + tasks):
            out, err = (str(self._folder / f"{number}.{stream}") for stream in ("stdout", "stderr"))
            launch = Launch(out=out, err=err, lane=number % SLOTS)
            self.keeper.start(f"bench/{number}/1", "b", launch)
        self._sent += tasks
        async with asyncio.timeout(WITHIN_S):
            await self._all_ended.wait()
        return (sum(used(self._pid())) - before) / tasks * 1000

    def _pid(self) -> int:
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and _words(entry)[-1:] == [str(self._folder).encode()]:
                return int(entry.name)
        raise RuntimeError("the keeper is gone")


def _words(entry: Path) -> list[bytes]:
    try:
        return (entry / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return []
