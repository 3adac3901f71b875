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
from pathlib import Path

from phalanx.api.schema.submission import SubmitRequest
from tests.support.real_cluster import a_real_cluster


def cpu_s(pid: int) -> float:
    """The CPU time of a process so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    rows = [[f"{1 / (at + 1):.6f}", str(at), f"s3://bucket/shards/{at:08}.tar"] for at in range(given.rows)]
    request = SubmitRequest(command=["true", "{lr}", "{file}"], cwd="/", allow_infeasible=True, gpus=64)
    with (
        tempfile.TemporaryDirectory() as folder,
        a_real_cluster(Path(folder) / "cluster", nodes={}) as cluster,
    ):
        process = cluster.processes["coordinator"]
        for number in range(given.rounds):
            began, cpu, theirs = time.perf_counter(), time.process_time(), cpu_s(process.pid)
            reply = cluster.client.submit_rows(request, ["lr", "seed", "file"], rows)
            took, cpu = time.perf_counter() - began, time.process_time() - cpu
            used = f"{cpu:.2f} s of CPU in the client, {cpu_s(process.pid) - theirs:.2f} s in the coordinator"
            print(f"round {number + 1}: {took:.3f} s until accepted; {used}")
            cluster.client.cancel(reply.batch_id)


if __name__ == "__main__":
    main()
