"""Cell 1: ten thousand `/bin/true` in one array on two slots, against the machine's limit and other schedulers.

Each round measures the raw limit, us, and the others, one after another; ratios are taken within the round.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from bench import ceiling, machine
from bench.ceiling import Ceiling
from bench.cluster import Cluster, submit, wait
from bench.figures import Chapter, Figure, Table, number
from bench.machine import Span, Used
from bench.rivals import HyperQueue, Ray
from bench.session import Session

TASKS, ROUNDS = 10_000, 5
SLOTS = 2


@dataclass
class Round:
    """What one round saw. CPU is in milliseconds per task."""

    bare: Ceiling
    with_log: Ceiling
    creation_ms: float
    ours_per_s: float
    ours_ms: dict[str, float]
    rivals_per_s: dict[str, float] = field(default_factory=dict)
    rivals_ms: dict[str, dict[str, float]] = field(default_factory=dict)

    def control_ms(self, parts: Mapping[str, float]) -> float:
        """What scheduling one task cost beyond spawning it."""
        return sum(parts.values()) - self.bare.cpu_ms


def measure(session: Session) -> Chapter:
    tasks = session.size(TASKS, 1000)
    ours = session.cluster(SLOTS)
    rivals: dict[str, HyperQueue | Ray | None] = {"HyperQueue": session.hyperqueue(SLOTS)}
    if session.with_ray:
        rivals["Ray"] = session.ray(SLOTS)
    _run(session, ours, 200)  # the first tasks of a cluster pay for what is loaded late
    rounds = [_round(session, ours, rivals, tasks) for _ in range(session.size(ROUNDS, 2))]
    chapter = Chapter(f"Trivial process tasks: {tasks:,} × /bin/true, {SLOTS} slots, {len(rounds)} rounds")
    chapter.figures = [*_our_figures(rounds), *_rival_figures(rounds)]
    chapter.tables = [_cpu_table(rounds)]
    chapter.notes = [
        "The limit is `os.posix_spawn` with two in flight and an empty environment, in a process of its own.",
        (
            "Ours: one array over REST, from the POST to the answer of the wait; SQLite with an fsync per batch,"
            " the output of each task through a pipe into a log of its own."
        ),
    ]
    chapter.notes.append(
        "A new file costs 0.03 ms on a calm ext4. If it shows more, many files were deleted on this disk within the"
        " last minutes: ext4 then searches past them, and the log of every task pays for it."
    )
    if rivals["HyperQueue"] is None:
        chapter.notes.append("HyperQueue was not run: it is not installed (`make install-bench`).")
    if not session.with_ray:
        chapter.notes.append("Ray was not run: it is large; `scripts/bench --with-ray` fetches it.")
    return chapter


def _round(
    session: Session, ours: Cluster, rivals: Mapping[str, HyperQueue | Ray | None], tasks: int
) -> Round:
    session.settle()
    before = ceiling.measure(tasks // 2)  # half before us and half after, since the machine's speed drifts
    span = _run(session, ours, tasks)
    bare = ceiling.joined(before, ceiling.measure(tasks // 2))
    with_log = ceiling.measure(tasks // 2, session.place("spawned"))
    creation_ms = machine.creation_ms(session.folder)
    found = Round(bare, with_log, creation_ms, tasks / span.wall_s, _ms_per_task(span, tasks))
    for name, rival in rivals.items():
        if rival is None:
            continue
        parts = rival.parts()
        parts.pop("client", None)  # it polls, because it has to; that is not HyperQueue's cost
        with session.machine.span(parts) as span:
            seconds = rival.run(tasks)
        found.rivals_per_s[name] = tasks / seconds
        found.rivals_ms[name] = _ms_per_task(span, tasks)
    return found


def _run(session: Session, cluster: Cluster, tasks: int) -> Span:
    with cluster.connect() as rest, session.machine.span(cluster.parts() | {"client": [os.getpid()]}) as span:
        wait(rest, submit(rest, "/bin/true", array=f"1-{tasks}"))
    return span


def _ms_per_task(span: Span, tasks: int) -> dict[str, float]:
    """CPU per task by part; what a part's children used are the tasks themselves."""

    def per_task(used: Used) -> tuple[float, float]:
        return used.own_s / tasks * 1000, used.children_s / tasks * 1000

    found = {name: per_task(used) for name, used in span.used.items()}
    return {name: own for name, (own, _) in found.items()} | {
        "tasks": sum(each for _, each in found.values())
    }


def _our_figures(rounds: list[Round]) -> list[Figure]:
    return [
        Figure("tasks/s", "/s", [each.ours_per_s for each in rounds]),
        Figure("raw posix_spawn limit", "/s", [each.bare.per_s for each in rounds]),
        Figure("with a session, a pipe and a log", "/s", [each.with_log.per_s for each in rounds]),
        Figure("one new file, this disk", "ms", [each.creation_ms for each in rounds]),
        Figure("share of the raw limit", "", [each.ours_per_s / each.bare.per_s for each in rounds], 0.45),
        Figure(
            "control CPU per task",
            "ms",
            [each.control_ms(each.ours_ms) for each in rounds],
            0.6,
            "less",
        ),
        Figure("of it coordinator", "ms", [each.ours_ms["coordinator"] for each in rounds], 0.2, "less"),
    ]


def _rival_figures(rounds: list[Round]) -> list[Figure]:
    figures: list[Figure] = []
    for name in rounds[0].rivals_per_s:
        theirs = [each.rivals_per_s[name] for each in rounds]
        ratios = [each.ours_per_s / each.rivals_per_s[name] for each in rounds]
        figures += [
            Figure(f"{name} tasks/s", "/s", theirs),
            Figure(f"ours / {name}", "×", ratios, 1.5),
            Figure(f"{name} control CPU per task", "ms", [r.control_ms(r.rivals_ms[name]) for r in rounds]),
        ]
    return figures


def _cpu_table(rounds: list[Round]) -> Table:
    """Medians, part by part."""
    rows = [["bare spawn", "parent and child", number(median(each.bare.cpu_ms for each in rounds))]]
    rows.append(
        ["spawn with a log", "parent and child", number(median(each.with_log.cpu_ms for each in rounds))]
    )
    rows += [
        ["Phalanx", part, number(median(each.ours_ms[part] for each in rounds))] for part in rounds[0].ours_ms
    ]
    for name, parts in rounds[0].rivals_ms.items():
        rows += [
            [name, part, number(median(each.rivals_ms[name][part] for each in rounds))] for part in parts
        ]
    return "CPU per task", ["", "process", "ms"], rows
