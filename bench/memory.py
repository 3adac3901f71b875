"""Cell 5: what a long queue costs: memory, the look at it, and whether a task behind it costs more."""

from __future__ import annotations

import json
from statistics import median

from bench.accept import fill
from bench.cluster import look, submit, until
from bench.coordinator import SHORT_S, crowd
from bench.figures import Chapter, Figure, number
from bench.keepalive import Connection
from bench.machine import resident_mb
from bench.session import Session

QUEUES_MB = {100_000: 50.0, 1_000_000: 300.0}
BEHIND = (1000, 10_000, 100_000, 1_000_000)
MEASURED, ROUNDS, STARTS = 60_000, 3, 10
LOOK_S = 0.3
FLAT = 1.15  # flat means: a task with a million behind it costs at most so much more


def measure(session: Session) -> Chapter:
    rounds = session.size(ROUNDS, 1)
    added: dict[int, list[float]] = {size: [] for size in QUEUES_MB}
    begun: dict[int, list[float]] = {size: [] for size in QUEUES_MB}
    looks: dict[int, list[float]] = {size: [] for size in QUEUES_MB}
    costs: dict[int, list[float]] = {size: [] for size in BEHIND}
    for _ in range(rounds):
        session.settle()
        for size in QUEUES_MB:
            waiting_mb, begun_mb, look_s = _queue(session, size)
            added[size].append(waiting_mb)
            begun[size].append(begun_mb)
            looks[size].append(look_s)
        for size in BEHIND:
            costs[size].append(_cost_ms(session, size))
    chapter = Chapter(f"Long queues: {rounds} rounds")
    for size, limit_mb in QUEUES_MB.items():
        chapter.figures.append(Figure(f"{size:,} queued tasks add", "MB", added[size], limit_mb, "less"))
        chapter.figures.append(
            Figure("the same once it has begun to run", "MB", begun[size], limit_mb, "less")
        )
        chapter.figures.append(Figure(f"`phalanx ps` on {size:,}", "s", looks[size], LOOK_S, "less"))
    ratios = [most / least for least, most in zip(costs[BEHIND[0]], costs[BEHIND[-1]], strict=True)]
    chapter.figures.append(Figure("cost of a task, 1M behind / 1k behind", "×", ratios, FLAT, "less"))
    rows = [[f"{size:,}", number(median(each)), _range(each)] for size, each in costs.items()]
    chapter.tables = [("Coordinator CPU per completed task", ["queued behind", "ms", "rounds"], rows)]
    chapter.notes = [
        (
            "Memory: resident size of the coordinator before and after one array is accepted, node full; a fresh"
            " coordinator for each. `ps`: wall time of the whole command, median of ten starts a round."
        ),
        (
            f"Cost: from the middle of {session.size(MEASURED, 30_000):,} urgent tasks that pass through a crowd as in"
            " cell 4 while an array of that size waits behind them. No number was set for flat; here it means that"
            f" the cost behind 1,000,000 is within {FLAT - 1:.0%} of the cost behind 1,000."
        ),
    ]
    return chapter


def _queue(session: Session, size: int) -> tuple[float, float, float]:
    """Megabytes that an array adds when it waits and when it has begun, and the seconds of one look at it."""
    cluster = session.cluster(2, pending_limit=10_000_000)
    with cluster.connect() as rest:
        blocker = fill(rest)
        for _ in range(20):  # everything that is allocated once is there before we look
            submit(rest, "/bin/true")
        before = resident_mb(cluster.coordinator_pid)
        array = submit(rest, "/bin/true", array=f"1-{size}")
        rest.ask("GET", "/v1/jobs")
        grown = resident_mb(cluster.coordinator_pid) - before
        look_s = median(look(cluster) for _ in range(session.size(STARTS, 3)))
        rest.ask("POST", f"/v1/jobs/{blocker}/cancel", b"{}")
        until(lambda: _completed(rest, array), 30.0, "the array has begun")
        begun = resident_mb(cluster.coordinator_pid) - before
    cluster.stop()
    return grown, begun, look_s


def _cost_ms(session: Session, behind: int) -> float:
    """The coordinator's CPU per completed task while so many wait behind.

    It is taken from the middle of an urgent array, where as many tasks are placed as end.
    """
    cluster = session.cluster(None, pending_limit=10_000_000)
    tasks = session.size(MEASURED, 30_000)
    with cluster.connect() as rest:
        submit(rest, "/bin/true", array=f"1-{behind}", allow_infeasible=True)
        urgent = submit(rest, "/bin/true", array=f"1-{tasks}", priority=100, allow_infeasible=True)
        with crowd(session, cluster, SHORT_S, cores=2) as load:
            load.tell({})
            first = _completed_after(rest, urgent, tasks // 6)
            with session.machine.span({"coordinator": [cluster.coordinator_pid]}) as span:
                last = _completed_after(rest, urgent, tasks * 2 // 3)
    cluster.stop()
    return span.cpu_s / (last - first) * 1000


def _completed_after(rest: Connection, job: str, wanted: int) -> int:
    """Wait until so many have completed; returns how many had when we looked."""
    until(lambda: _completed(rest, job) >= wanted, 120.0, f"{wanted} completed", 0.02)
    return _completed(rest, job)


def _completed(rest: Connection, job: str) -> int:
    return int(json.loads(rest.ask("GET", f"/v1/jobs/{job}"))["counts"]["completed"])


def _range(values: list[float]) -> str:
    return " ".join(map(number, values))
