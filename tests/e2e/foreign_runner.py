"""A runner of another kind at a real coordinator, which is killed meanwhile: is each task run, and none of them twice?

Every task writes its number into one file, so that what was run is known without asking the cluster. A runner is given
as a command line; it gets the node's name and the address of gRPC as arguments, and the token in its environment:

    python -m tests.e2e.foreign_runner --tasks 1000 --kills 3 -- node examples/node/runner.mjs
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.real_cluster import RealCluster, a_real_cluster, free_ports
from tests.support.waiting import wait_until

TOKEN = "KRISHIV_EXECUTOR_TASK_BEARER_TOKEN"


class Outcome(NamedTuple):
    """What came of it."""

    lost: int  # tasks that never ran
    doubled: int  # tasks that ran more than once
    completed: int
    seconds: float


@contextmanager
def a_grpc_cluster(folder: Path, lost_after_s: float = 20.0) -> Iterator[tuple[RealCluster, str]]:
    """A coordinator without nodes, and where its gRPC listens."""
    (port,) = free_ports(1)
    settings = {"coordinator.grpc_port": port}
    with a_real_cluster(folder, nodes={}, lost_after_s=lost_after_s, settings=settings) as cluster:
        yield cluster, f"127.0.0.1:{port}"


@contextmanager
def a_runner(
    cluster: RealCluster, command: Sequence[str], name: str, *addresses: str, **variables: str
) -> Iterator[subprocess.Popen[bytes]]:
    folder = cluster.folder / name
    folder.mkdir()
    environment = os.environ | {TOKEN: str(cluster.node_token)} | variables
    with (cluster.folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, name, *addresses], cwd=folder, env=environment, stdout=log, stderr=log
        )
    try:
        cluster.wait_online(name)
        yield process
    finally:
        process.kill()
        process.wait(10)


def run_all(cluster: RealCluster, tasks: int, kills: int) -> Outcome:
    """So many tasks; the coordinator is killed and started again so often, evenly over the run."""
    ran, began = cluster.folder / "ran", time.monotonic()
    ran.touch()
    note = f"echo $PHALANX_ARRAY_INDEX >> {ran}"
    id = cluster.client.submit(shell=note, array=f"1-{tasks}", cores=1, max_retries=0).batch_id
    for number in range(1, kills + 1):
        enough = tasks * number // (kills + 1)
        wait_until(lambda: len(ran.read_bytes().splitlines()) >= enough, 120.0, f"{enough} tasks ran")  # noqa: B023
        cluster.kill("coordinator")
        cluster.start_coordinator()
        wait_until(cluster.is_ready, 30.0, "the coordinator is back")
    view = cluster.client.wait(id, 240.0)
    counts = Counter(int(line) for line in ran.read_text().split())
    return Outcome(
        sum(number not in counts for number in range(1, tasks + 1)),
        sum(times > 1 for times in counts.values()),
        view.counts.completed,  # type: ignore[union-attr]  # of a job
        time.monotonic() - began,
    )


def main() -> int:
    options = argparse.ArgumentParser(description="Run tasks by a runner of another kind, under kill -9.")
    options.add_argument("--tasks", type=int, default=1000)
    options.add_argument("--kills", type=int, default=3)
    options.add_argument("command", nargs="+")
    chosen = options.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        a_grpc_cluster(Path(folder) / "c") as (cluster, address),
        a_runner(cluster, chosen.command, "guest", address),
    ):
        outcome = run_all(cluster, chosen.tasks, chosen.kills)
    sys.stdout.write(f"{outcome} over {chosen.kills} kills of the coordinator\n")
    return 0 if outcome[:3] == (0, 0, chosen.tasks) else 1


if __name__ == "__main__":
    sys.exit(main())
