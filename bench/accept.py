"""Cell 3: how fast work is accepted durably: one large array, and single jobs from sixteen connections.

The node is full, so everything accepted waits; running tasks is no part of the figures.
"""

from __future__ import annotations

import json
import sys
import time

from bench.cluster import Cluster, look, submit, until
from bench.figures import Chapter, Figure
from bench.keepalive import Connection
from bench.machine import commits_per_s
from bench.partner import Partner
from bench.session import Session
from bench.submitters import CONNECTIONS

ARRAY, SINGLES, ROUNDS = 100_000, 5000, 5


def measure(session: Session) -> Chapter:
    rounds = session.size(ROUNDS, 2)
    singles = session.size(SINGLES, 1000)
    cluster = session.cluster(2, pending_limit=100_000_000)
    arrays: list[float] = []
    rates: list[float] = []
    cpus: list[float] = []
    commits: list[float] = []
    with cluster.connect() as rest:
        fill(rest)
        for _ in range(rounds):
            session.settle()
            commits.append(commits_per_s(session.folder))
            arrays.append(_array(rest))
            with session.machine.span({"coordinator": [cluster.coordinator_pid]}) as span:
                rates.append(_singles(cluster, singles))
            cpus.append(span.cpu_s / singles * 1000)
        look_s = [look(cluster) for _ in range(session.size(10, 3))]
    chapter = Chapter(f"Durable acceptance: {rounds} rounds")
    chapter.figures = [
        Figure(f"one array of {ARRAY:,} tasks", "tasks/s", arrays, 50_000),
        Figure(f"single submits, {CONNECTIONS} connections", "/s", rates, 1500),
        Figure("coordinator CPU per single submit", "ms", cpus),
        Figure("appends with fdatasync, this disk", "/s", commits),
        Figure(f"`phalanx ps` beside {rounds * singles:,} waiting jobs", "s", look_s),
    ]
    chapter.notes = [
        (
            "Every answer comes after its fsync. An array is one record whatever its size, as in Slurm, so its rate"
            " says that acceptance does not grow with the array, not that so many records were written."
        ),
        f"{singles:,} single submits a round from a load process of its own, one in flight per connection.",
    ]
    return chapter


def fill(rest: Connection) -> str:
    """Take both slots of the node; returns the job that holds them."""
    job = submit(rest, "sleep", "100000", cores=2)
    until(lambda: _status(rest, job) == "Running", 10.0, "the node is full")
    return job


def _status(rest: Connection, job: str) -> str:
    return str(json.loads(rest.ask("GET", f"/v1/jobs/{job}"))["status"])


def _array(rest: Connection) -> float:
    began = time.perf_counter()
    submit(rest, "/bin/true", array=f"1-{ARRAY}")
    return ARRAY / (time.perf_counter() - began)


def _singles(cluster: Cluster, count: int) -> float:
    """Submits a second, as the load process counted them."""
    token = (cluster.folder / "credentials").read_text().strip()
    load = Partner([sys.executable, "-m", "bench.submitters"], cluster.folder, "submitters")
    answer = load.ask({"port": cluster.port, "token": token, "count": count})
    load.stop()
    return count / float(answer["seconds"])
