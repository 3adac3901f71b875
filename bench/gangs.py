"""Cell 7: gangs of two nodes, real trivial processes, from a queue: one gang at a time, and several beside each other.

Every member needs a whole node, so that a gang always spans two. What is timed begins with the first submission and
ends with the last gang: durable state, logs, and the barrier that both members pass before either runs.
"""

from __future__ import annotations

import os
import time

from bench.cluster import Cluster, submit, wait
from bench.figures import Chapter, Figure
from bench.session import Session

GANGS, ROUNDS = 300, 5
PAIRS = 4
HYPERQUEUE_PER_S, SLURM_PER_S = (
    22.0,
    2.2,
)  # measured on a machine of this kind, on another day


def measure(session: Session) -> Chapter:
    gangs = session.size(GANGS, 40)
    alone, many = _cluster(session, 2), _cluster(session, 2 * PAIRS)
    serial: list[float] = []
    beside: list[float] = []
    idle: list[float] = []
    for cluster in (alone, many):
        _run(session, cluster, 20)  # the first gangs of a cluster pay for what is loaded late
    for _ in range(session.size(ROUNDS, 2)):
        session.settle()
        serial.append(_run(session, alone, gangs))
        beside.append(_run(session, many, gangs))
        idle.append(_latency(alone))
    chapter = Chapter(f"Gangs of two nodes: {gangs} × 2 × /bin/true from a queue, {len(serial)} rounds")
    chapter.figures = [
        Figure("gangs/s on two nodes, one at a time", "/s", serial),
        Figure(f"gangs/s on {2 * PAIRS} nodes", "/s", beside, 100.0),
        Figure("idle, submit to completed: median", "ms", idle),
    ]
    chapter.notes = [
        (
            f"HyperQueue's wheel ran {HYPERQUEUE_PER_S:g} such gangs/s from a queue of 300 and Slurm {SLURM_PER_S:g},"
            " on another day and without durable state; they are not run here."
        ),
    ]
    return chapter


def _cluster(session: Session, nodes: int) -> Cluster:
    cluster = session.cluster(None)
    for number in range(nodes):
        cluster.start_runner(f"n{number}", "cpus=1,ram=4GiB")
    session.machine.own(cluster.parts())
    return cluster


def _run(session: Session, cluster: Cluster, gangs: int) -> float:
    """Gangs per second, from the first submission to the end of the last."""
    with cluster.connect() as rest, session.machine.span(cluster.parts() | {"client": [os.getpid()]}):
        began = time.perf_counter()
        ids = [submit(rest, "/bin/true", tasks=2) for _ in range(gangs)]
        for id in reversed(ids):
            wait(rest, id)
        return gangs / (time.perf_counter() - began)


def _latency(cluster: Cluster) -> float:
    """Milliseconds of one gang on an idle cluster."""
    with cluster.connect() as rest:
        samples = []
        for _ in range(20):
            began = time.perf_counter()
            wait(rest, submit(rest, "/bin/true", tasks=2))
            samples.append(1000 * (time.perf_counter() - began))
        return sorted(samples)[len(samples) // 2]
