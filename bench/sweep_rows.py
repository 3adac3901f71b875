"""How long it takes until a sweep over the rows of a file is accepted durably: `python -m bench.sweep_rows`.

A real coordinator with a SQLite file in a folder of its own, and the client beside it, over HTTP on loopback. Counted
is from the first piece of the rows to the answer, and the CPU time of the client; the file is read before. No runner
takes part. What was measured is in bench/SWEEPS.md.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.figures import Chapter, Figure
from bench.session import Session
from phalanx.api.schema.submission import SubmitRequest
from tests.support.real_cluster import a_real_cluster

ROWS, ROUNDS = 100_000, 5


def cpu_s(pid: int) -> float:
    """The CPU time of a process so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


class Round(NamedTuple):
    """Seconds until all rows were accepted, and the CPU seconds of both sides."""

    took: float
    client: float
    coordinator: float


def measure(session: Session) -> Chapter:
    rows = session.size(ROWS, 5000)
    found = [*rounds(session.place("sweep_rows"), rows, session.size(ROUNDS, 2))]
    chapter = Chapter(f"Rows of a sweep: {rows:,} rows, {len(found)} rounds")
    chapter.figures = [
        Figure("until they are accepted durably", "s", [each.took for each in found]),
        Figure("rows/s", "/s", [rows / each.took for each in found]),
        Figure("CPU in the client", "s", [each.client for each in found]),
        Figure("CPU in the coordinator", "s", [each.coordinator for each in found]),
    ]
    return chapter


def rounds(folder: Path, count: int, times: int) -> Iterator[Round]:
    rows = [[f"{1 / (at + 1):.6f}", str(at), f"s3://bucket/shards/{at:08}.tar"] for at in range(count)]
    request = SubmitRequest(command=["true", "{lr}", "{file}"], cwd="/", allow_infeasible=True, gpus=64)
    with a_real_cluster(folder / "cluster", nodes={}) as cluster:
        process = cluster.processes["coordinator"]
        for _ in range(times):
            began, cpu, theirs = time.perf_counter(), time.process_time(), cpu_s(process.pid)
            reply = cluster.client.submit_rows(request, ["lr", "seed", "file"], rows)
            took = time.perf_counter() - began
            yield Round(took, time.process_time() - cpu, cpu_s(process.pid) - theirs)
            cluster.client.cancel(reply.batch_id)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for number, each in enumerate(rounds(Path(folder), given.rows, given.rounds), start=1):
            used = f"{each.client:.2f} s of CPU in the client, {each.coordinator:.2f} s in the coordinator"
            print(f"round {number}: {each.took:.3f} s until accepted; {used}")


if __name__ == "__main__":
    main()
