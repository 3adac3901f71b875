"""Cell 6: how soon a death is noticed: of a task, which is retried, and of a runner, which is reported."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from bench.cluster import Cluster, node_status, submit, until
from bench.figures import Chapter, Figure
from bench.keepalive import Connection
from bench.session import Session

SAMPLES = 10
_LOOK_S = 0.001


def measure(session: Session) -> Chapter:
    samples = session.size(SAMPLES, 3)
    cluster = session.cluster(2)
    tasks: list[float] = []
    runners: list[float] = []
    with cluster.connect() as rest:
        session.settle()
        for _ in range(samples):
            tasks.append(_task(cluster, rest))
            runners.append(_runner(cluster, rest))
            session.machine.own(cluster.parts())
    chapter = Chapter(f"Recovery from kill -9: {samples} samples each")
    chapter.figures = [
        Figure("task killed, next attempt Running: median", "s", tasks, 0.1, "less"),
        Figure("the same: slowest", "s", [max(tasks)], 0.1, "less"),
        Figure("runner killed, node Unreachable: median", "s", runners, 0.2, "less"),
        Figure("the same: slowest", "s", [max(runners)], 0.2, "less"),
    ]
    chapter.notes = [
        (
            "From the signal to the first answer over REST that says so, asked every millisecond. The first retry of a"
            " task comes at once, later ones after a pause; the runner's own death costs its task nothing."
        ),
    ]
    return chapter


def _task(cluster: Cluster, rest: Connection) -> float:
    """Seconds until a killed task runs again."""
    job = submit(rest, "sleep", "100000", max_retries=3)
    until(lambda: _attempt(rest, job) == (1, "Running"), 10.0, "the task runs")
    began = time.perf_counter()
    os.kill(_leader(cluster, job), signal.SIGKILL)
    until(lambda: _attempt(rest, job) == (2, "Running"), 30.0, "the task runs again", _LOOK_S)
    took = time.perf_counter() - began
    rest.ask("POST", f"/v1/jobs/{job}/cancel", b"{}")
    return took


def _runner(cluster: Cluster, rest: Connection) -> float:
    """Seconds until the node of a killed runner is shown as unreachable; then it is started again."""
    process = cluster.processes["n1"]
    began = time.perf_counter()
    process.kill()
    until(lambda: node_status(rest, "n1") == "Unreachable", 60.0, "the node is unreachable", _LOOK_S)
    took = time.perf_counter() - began
    process.wait()
    cluster.start_runner("n1")
    return took


def _attempt(rest: Connection, task: str) -> tuple[int, str]:
    view = json.loads(rest.ask("GET", f"/v1/tasks/{task}"))
    return view["attempt"], view["status"]


def _leader(cluster: Cluster, job: str) -> int:
    """The pid of a job's process, found by the key that the keeper gave it."""
    keeper = cluster.keeper_pid("n1")
    key = f"PHALANX_JOB_ID={job}".encode()
    for pid in Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split():
        if key in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            return int(pid)
    raise RuntimeError(f"no process of {job}")
