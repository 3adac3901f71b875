"""Cell 2: one task at a time on an idle cluster, from the submit to the answer that it has completed."""

from __future__ import annotations

import time

from bench.cluster import submit, wait
from bench.figures import Chapter, Figure, quantile
from bench.keepalive import Connection
from bench.session import Session

SAMPLES, BLOCKS = 200, 4
IDLE_S = 0.05  # between two samples, so that each finds an idle cluster


def measure(session: Session) -> Chapter:
    blocks = session.size(BLOCKS, 2)
    size = session.size(SAMPLES, 40) // blocks
    durable, in_memory = session.cluster(2), session.cluster(2, store="memory:")
    rival = session.hyperqueue(2)
    ours: list[list[float]] = []
    unwritten: list[list[float]] = []
    theirs: list[list[float]] = []
    with durable.connect() as rest, in_memory.connect() as rest_in_memory:
        _samples(rest, 5)
        _samples(rest_in_memory, 5)
        for _ in range(blocks):
            session.settle()
            ours.append(_samples(rest, size))
            unwritten.append(_samples(rest_in_memory, size))
            if rival is not None:
                theirs.append([each * 1000 for each in rival.latencies(size, IDLE_S)])
    chapter = Chapter(f"Idle submit to completed: {blocks * size} samples in {blocks} blocks")
    chapter.figures = [*_figures("", ours, 6.0), *_figures("in memory ", unwritten, None)]
    if theirs:
        chapter.figures += _figures("HyperQueue ", theirs, None)
    chapter.notes = [
        (
            "Ours: POST /v1/jobs and GET …/wait on one kept-alive connection, the task is /bin/true."
            " The POST is answered after the fsync, the wait after the end is durable."
        ),
        "In memory: the same with --store memory:, so that nothing survives a crash, as in HyperQueue's.",
        (
            f"HyperQueue: submit, then its client asks every 0.5 ms. {IDLE_S * 1000:.0f} ms of rest before each"
            " sample for both: back to back, HyperQueue's scheduler waits for its next pass and shows about 65 ms."
        ),
    ]
    return chapter


def _samples(rest: Connection, count: int) -> list[float]:
    return [_one(rest) * 1000 for _ in range(count)]


def _one(rest: Connection) -> float:
    time.sleep(IDLE_S)
    began = time.perf_counter()
    wait(rest, submit(rest, "/bin/true"))
    return time.perf_counter() - began


def _figures(whose: str, blocks: list[list[float]], target: float | None) -> list[Figure]:
    samples = [each for block in blocks for each in block]
    return [
        Figure(f"{whose}median", "ms", samples, target, "less"),
        Figure(f"{whose}p90", "ms", [quantile(block, 0.9) for block in blocks]),
    ]
