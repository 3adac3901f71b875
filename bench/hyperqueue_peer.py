"""A process of HyperQueue: `server DIR`, `worker DIR SERVER_DIR CORES` or `client SERVER_DIR DIR`.

It imports nothing but HyperQueue, because the worker forks and a larger process forks slower. A worker comes with its
own server, which is not used: it is given the other server's address before it starts to work.
"""

import itertools
import json
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path

from hyperqueue import Job, LocalCluster
from hyperqueue.client import Client
from hyperqueue.cluster import WorkerConfig

LOOK_SOON_S, LOOK_S = 0.0005, 0.005


class Looked(Exception):
    """Raised in the callback of wait_for_jobs, which would otherwise look again only after a second."""


def is_over(client, job_id):
    """Whether a job has ended, by one question to the server."""
    found = {}

    def look(jobs):
        found.update(jobs)
        raise Looked

    with suppress(Looked):
        client.connection.wait_for_jobs([job_id], look)
    return found[job_id]["completed"]


def completed_after_s(client, folder, tasks, look_s):
    """Submit one job of so many tasks and wait for its end. Output is captured in files, as is the default."""
    folder.mkdir()
    job = Job(default_workdir=folder, max_fails=None)
    for _ in range(tasks):
        job.program(["/bin/true"])
    began = time.perf_counter()
    submitted = client.submit(job)
    while not is_over(client, submitted.id):
        time.sleep(look_s)
    return time.perf_counter() - began


def latencies(client, folder, latencies, idle_s):
    """One task at a time, each on an idle cluster."""
    folder.mkdir()
    seconds = []
    for number in range(latencies):
        time.sleep(idle_s)
        seconds.append(completed_after_s(client, folder / str(number), 1, LOOK_SOON_S))
    return seconds


def serve_client(server_dir, folder):
    client = Client(server_dir)
    numbers = itertools.count(1)
    say({})
    for line in sys.stdin:
        question = json.loads(line)
        if "run" in question:
            place = folder / f"run-{next(numbers)}"
            say({"seconds": completed_after_s(client, place, question["run"], LOOK_S)})
        else:
            say({"seconds": latencies(client, folder / f"ones-{next(numbers)}", **question)})


def work(folder, server_dir, cores):
    cluster = LocalCluster(str(folder))
    shutil.copy(server_dir / "hq-current" / "access.json", folder / "hq-current" / "access.json")
    cluster.start_worker(WorkerConfig(cores=cores))
    return cluster


def say(answer):
    print(json.dumps(answer), flush=True)


def main(role, first, *rest):
    if role == "client":
        serve_client(first, Path(rest[0]))
        return
    Path(first).mkdir()
    cluster = LocalCluster(first) if role == "server" else work(Path(first), Path(rest[0]), int(rest[1]))
    say({})
    sys.stdin.read()
    del cluster


if __name__ == "__main__":
    main(*sys.argv[1:])
