"""Cell 4: the coordinator alone. A hundred simulated runners end every task at once, and no process is spawned.

The coordinator has one CPU to itself and the runners another, so a rate is what one core can decide, write and send.
CPU per task is the steadier figure: it does not change when others use the machine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.cluster import Cluster, submit, wait
from bench.figures import Chapter, Figure
from bench.partner import Partner
from bench.session import Session

TASKS, ROUNDS = 100_000, 3
RUNNERS, CORES = 100, 8
SHORT_S, LONG_S = 0.001, 60.0  # the run time that the runners report


def measure(session: Session) -> Chapter:
    tasks, rounds = session.size(TASKS, 5000), session.size(ROUNDS, 1)
    seen: dict[float, list[tuple[float, float]]] = {SHORT_S: [], LONG_S: []}
    for _ in range(rounds):
        for run_s, found in seen.items():
            session.settle()
            found.append(_round(session, tasks, run_s))
    chapter = Chapter(f"The coordinator alone: {RUNNERS} pretended runners, {tasks:,} tasks, {rounds} rounds")
    for run_s, found in seen.items():
        kind = "short tasks, which queue in lanes" if run_s == SHORT_S else "long tasks, one to a grant"
        rate = Figure(f"{kind}", "/s", [per_s for per_s, _ in found])
        rate.target = 8000 if run_s == SHORT_S else None
        chapter.figures += [rate, Figure("coordinator CPU per task", "ms", [cpu for _, cpu in found])]
    chapter.notes = [
        (
            f"{RUNNERS} connections of {CORES} slots each from one load process that speaks the runners' protocol over"
            " loopback TCP; the coordinator is pinned to one CPU, the load to another. SQLite as ever."
        ),
        (
            "The runners claim 1 ms per task in the first case and 60 s in the second, which decides whether"
            " tasks may queue in a lane; both kinds are answered at once."
        ),
    ]
    return chapter


def _round(session: Session, tasks: int, run_s: float) -> tuple[float, float]:
    """Tasks a second, and the coordinator's CPU milliseconds per task."""
    cluster = session.cluster(None)
    with cluster.connect() as rest, crowd(session, cluster, run_s) as load:
        load.tell({})
        wait(rest, submit(rest, "/bin/true", array="1-2000"))
        with session.machine.span({"coordinator": [cluster.coordinator_pid]}) as span:
            wait(rest, submit(rest, "/bin/true", array=f"1-{tasks}"))
    cluster.stop()
    return tasks / span.wall_s, span.cpu_s / tasks * 1000


@contextmanager
def crowd(session: Session, cluster: Cluster, run_s: float, cores: int = CORES) -> Iterator[Partner]:
    """A hundred runners that have joined, until the block ends; they start to answer at the first line they get."""
    load = Partner([sys.executable, "-m", "bench.crowd"], cluster.folder, "crowd")
    session.machine.own({"crowd": [load.pid]})
    pin(cluster.coordinator_pid, 0)
    pin(load.pid, 1)
    given = {"port": cluster.link_port, "token": cluster.node_token, "runners": RUNNERS}
    try:
        load.ask(given | {"cores": cores, "run_s": run_s})
        yield load
    finally:
        load.stop()


def pin(pid: int, number: int) -> None:
    """Give a process one CPU, if there are two; all its threads move."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        return
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {cpus[number]})
