"""What metrics cost: the recorder per event, and one scrape of a coordinator with many jobs.

`python -m bench.metrics` prints both; the target for the recorder is 2 µs per event, with no files.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from statistics import median

from phalanx.api.schema.cluster import CoordinatorView
from phalanx.api.server.limits import TimeSlices
from phalanx.clock import SystemClock
from phalanx.coordinator.metrics.density import Density
from phalanx.coordinator.metrics.exposition import exposition
from phalanx.coordinator.metrics.families import Moment
from phalanx.coordinator.metrics.recorder import Recorder
from phalanx.coordinator.metrics.survey import survey
from phalanx.coordinator.metrics.task_events import TaskEvents
from phalanx.coordinator.turn import Engine, Turn
from phalanx.core.cluster.inputs import Hello, Input, Submit, Tell
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.array import parse_array
from phalanx.core.model.job import Command, Group, Job, ulid
from phalanx.core.model.orders import Ended, Exit, Started, Why
from phalanx.core.model.resources import Capacity, Request

TARGET_US = 2.0
NODES, CORES, TASKS, ARRAYS, ROUNDS, JOBS = 10, 100, 1000, 20, 5, 100_000


def a_job(number: int, tasks: int = 1, cores: int = 1) -> Job:
    id = ulid(1, number)
    array = parse_array(f"0-{tasks - 1}") if tasks > 1 else None
    group = Group(Command(("/bin/true",)), Request(cores=cores), tasks=tasks)
    return Job(id=id, groups=(group,), batch=id, submitted_at=0.0, array=array)


def a_cluster() -> Engine:
    engine = Engine(ClusterState())
    engine.state.epoch = 1
    for number in range(NODES):
        engine.turn([Hello(f"n{number}", "a", f"o{number}", Capacity(CORES, 1 << 40), [])], 1.0)
    return engine


def turns_of_arrays(engine: Engine) -> list[Turn]:
    """Arrays from submission to their ends; every task starts and ends well."""
    turns, now = list[Turn](), 1.0
    for number in range(ARRAYS):
        job = a_job(number + 1, TASKS)
        turns.append(engine.turn([Submit(job)], now))
        while live := list(engine.state.jobs[job.id].live.values()):
            now += 0.001
            told = list[Input]()
            for attempt in live:
                exit = Exit(Why.NONE, 0, now, now + 1)
                told += [
                    Tell(attempt.node, "a", 1, Started(attempt.key, now), 1),
                    Tell(attempt.node, "a", 1, Ended(attempt.key, exit), 1),
                ]
            turns.append(engine.turn(told, now))
    return turns


def per_event_us(turns: list[Turn], state: ClusterState, make: Callable[[], Recorder]) -> list[float]:
    events, found = sum(len(turn.events) for turn in turns), list[float]()
    for _ in range(ROUNDS):
        recorder, began_at = make(), time.process_time()
        for turn in turns:
            recorder.observe(turn, state)
        found.append((time.process_time() - began_at) / events * 1e6)
    return found


async def scrape_ms(jobs: int) -> tuple[float, int]:
    """CPU of one scrape with so many jobs waiting, and its size in bytes."""
    engine, recorder = a_cluster(), Recorder()
    for at in range(0, jobs, 1000):
        engine.turn([Submit(a_job(at + each + 1, cores=CORES)) for each in range(1000)], 1.0)
    slices, found = TimeSlices(SystemClock()), list[float]()
    text = b""
    for _ in range(ROUNDS):
        began_at = time.process_time()
        seen = await survey(engine.state, slices, 1.0)
        view = CoordinatorView("a", "Active")
        moment = Moment(recorder, seen, engine.state.counts, 1, view.role == "Active", 0.0, {})
        text = exposition(moment)
        found.append((time.process_time() - began_at) * 1e3)
    return median(found), len(text)


def main() -> None:
    engine = a_cluster()
    turns = turns_of_arrays(engine)
    plain = median(per_event_us(turns, engine.state, Recorder))
    files = median(per_event_us(turns, engine.state, lambda: Recorder(Density(), TaskEvents())))
    print(f"recorder: {plain:.2f} µs per event (target {TARGET_US:g}), {files:.2f} µs with files")
    for jobs in (1000, JOBS):
        cost_ms, size = asyncio.run(scrape_ms(jobs))
        print(f"one scrape with {jobs:,} jobs: {cost_ms:.1f} ms of CPU, {size:,} bytes")


if __name__ == "__main__":
    main()
