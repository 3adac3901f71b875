"""Cell 11: what sampling the usage of many running tasks costs the runner, on real processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from bench.figures import Chapter, Figure
from bench.session import Session
from phalanx.clock import SystemClock
from phalanx.core.model.resources import Capacity
from phalanx.runner.turn import RunnerEngine
from phalanx.runner.usage.sampler import UsageSampler

TASKS, ROUNDS = 1000, 9
SHARE_PERCENT = 3.0


def measure(session: Session) -> Chapter:
    tasks, rounds = session.size(TASKS, 50), session.size(ROUNDS, 3)
    chapter = Chapter(
        f"Sampling usage: {tasks:,} running tasks, each a process with a child, {rounds} rounds"
    )
    with _processes(tasks) as leaders:
        costs, shares = asyncio.run(_rounds(session, leaders, rounds))
    chapter.figures = [
        Figure("CPU of one round", "ms", [1000 * cost for cost in costs]),
        Figure("CPU of one round per task", "ms", [1000 * cost / tasks for cost in costs]),
        Figure("share of one core", "%", shares, SHARE_PERCENT, "less"),
    ]
    chapter.notes = [
        "A round waits for the interval that the one before it leads to; the share is of that time."
    ]
    return chapter


@contextmanager
def _processes(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(count):
            env = {"PHALANX_ATTEMPT_KEY": _name(number), "PATH": os.environ["PATH"]}
            started.append(
                subprocess.Popen(["sh", "-c", "sleep 3600 & wait"], start_new_session=True, env=env)
            )
        yield started
    finally:
        for process in started:
            os.killpg(process.pid, 9)
            process.wait()


def _name(number: int) -> str:
    return f"01kx0000000000000000000001/{number}/1/1"


async def _rounds(
    session: Session, leaders: list[subprocess.Popen[bytes]], rounds: int
) -> tuple[list[float], list[float]]:
    clock = SystemClock()
    engine = RunnerEngine("bench", "a", "o", "t", Capacity(8, 1 << 30, (), ()))
    sampler = UsageSampler(engine, session.place("usage"))
    for number, process in enumerate(leaders):
        key = ("01kx0000000000000000000001", number, 1)
        sampler.started(key, _name(number), process.pid, at=clock.monotonic())
    await sampler.sample(clock)  # the first round learns who is who
    costs, shares = [], []
    for _ in range(rounds):
        await sampler.sample(clock)
        costs.append(sampler.round_cost_s)
        shares.append(100 * sampler.round_cost_s / sampler.interval_s)
    return costs, shares
