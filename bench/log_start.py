"""How soon `phalanx logs JOB` prints the first line of a job of many tasks: `python -m bench.log_start`.

A real coordinator and a runner, an array whose tasks each wrote one line, and the command as a user types it, in a
process of its own. In the same round `phalanx version` is timed, which loads the program and asks nobody: what is above
it is what the logs cost. What was measured is in bench/SWEEPS.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.figures import Chapter, Figure
from bench.session import Session
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.waiting import wait_until

TASKS, ROUNDS = 1000, 9


def first_byte_s(words: list[str], env: dict[str, str]) -> float:
    """From the start of a command to its first output."""
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "phalanx", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env
    ) as process:
        assert process.stdout is not None
        if not process.stdout.read(1):
            raise SystemExit(f"phalanx {' '.join(words)} printed nothing")
        took = time.perf_counter() - began
        process.stdout.read()
    return took


def is_over(cluster: RealCluster, job: str, tasks: int) -> bool:
    return cluster.client.job(job).counts.completed == tasks


def measure(session: Session) -> Chapter:
    tasks = session.size(TASKS, 50)
    logs, loads = first_lines_s(session.place("log_start"), tasks, session.size(ROUNDS, 2))
    chapter = Chapter(f"First line of logs: {tasks:,} tasks, {len(logs)} rounds")
    chapter.figures = [
        Figure("`phalanx logs JOB`, first line", "s", logs),
        Figure("`phalanx version`, which asks nobody", "s", loads),
        Figure("what the logs cost", "s", [log - load for log, load in zip(logs, loads, strict=True)]),
    ]
    return chapter


def first_lines_s(folder: Path, tasks: int, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds until the first output of `logs`, and of `version`, one after the other."""
    with a_real_cluster(folder / "cluster", {"n1": "cpus=64,ram=64GiB"}) as cluster:
        reply = cluster.client.submit(
            command=["sh", "-c", "echo task $PHALANX_ARRAY_INDEX"], array=f"1-{tasks}"
        )
        job = reply.batch_id
        wait_until(lambda: is_over(cluster, job, tasks), 300.0, "all tasks have ended")
        token = folder / "token"
        token.write_text(cluster.user_token)
        token.chmod(0o600)
        env = {name: text for name, text in os.environ.items() if not name.startswith("PHALANX_")}
        env |= {"PHALANX_ADDRESS": cluster.address("coordinator"), "PHALANX_TOKEN_FILE": str(token)}
        logs, loads = [], []
        for _ in range(rounds):
            logs.append(first_byte_s(["logs", job], env))
            loads.append(first_byte_s(["version"], env))
    return logs, loads


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        logs, loads = first_lines_s(Path(folder), given.tasks, given.rounds)
    for what, times in (("first line of logs", logs), ("phalanx version", loads)):
        print(f"{what}: {statistics.median(times):.3f} s ({min(times):.3f} to {max(times):.3f})")
    print(f"logs above version: {statistics.median(logs) - statistics.median(loads):.3f} s")


if __name__ == "__main__":
    main()
