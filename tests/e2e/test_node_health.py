"""A node that does not work is not Online: its keeper frozen, or dead and not replaceable, or its runner broken."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.e2e.silent_runner import SilentRunner
from tests.support.keeper_node import Node
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.waiting import wait_until

NODES = {"n1": "cpus=4,ram=4GiB", "n2": "cpus=4,ram=4GiB"}
LONG = ["sleep", "300"]


@contextmanager
def frozen_keeper(cluster: RealCluster, node: str) -> Iterator[None]:
    pid = Node(cluster.folder / node).keeper_pid()
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # its runner may have ended it
            os.kill(pid, signal.SIGCONT)


def status(cluster: RealCluster, node: str) -> str:
    return cluster.client.node(node).status


def test_a_frozen_keeper_is_noticed_and_its_node_gets_no_work_until_it_goes_on(tmp_path: Path) -> None:
    with a_real_cluster(tmp_path, NODES) as cluster:
        runs = cluster.client.submit(targets=["n1"], command=LONG).task_ids[0]
        cluster.wait_task(runs, "Running")
        with frozen_keeper(cluster, "n1"):
            wait_until(lambda: status(cluster, "n1") == "Unhealthy", 8.0, "the coordinator knows")
            pinned = cluster.client.submit(targets=["n1"], command=["true"]).task_ids[0]
            free = cluster.client.submit(command=["true"]).task_ids[0]
            assert cluster.wait_task(free, "Completed").node == "n2"
            said = cluster.client.why(pinned).dominant
            assert (said.code, "does not answer" in said.text) == ("NodeUnhealthy", True)
            assert cluster.client.task(runs).status == "Running", "what runs there is left alone"
        cluster.wait_online("n1")
        cluster.wait_task(pinned, "Completed")


def test_a_keeper_that_is_frozen_for_good_is_replaced_and_what_it_ran_runs_elsewhere(tmp_path: Path) -> None:
    with a_real_cluster(tmp_path, NODES) as cluster:
        id = cluster.client.submit(targets=["n1"], command=LONG).task_ids[0]
        moves = cluster.client.submit(command=LONG, cores=4).task_ids[0]
        cluster.wait_task(id, "Running")
        first = cluster.wait_task(moves, "Running").node
        assert first is not None
        with frozen_keeper(cluster, first):
            wait_until(lambda: cluster.client.task(moves).attempt == 2, 25.0, "it is known to have ended")
            cluster.wait_task(moves, "Running")
            cluster.wait_online(first)
        cluster.wait_task(id, "Running")


def test_what_was_on_its_way_into_a_frozen_keeper_runs_elsewhere_and_never_there(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    with a_real_cluster(tmp_path / "c", {"n1": NODES["n1"]}) as cluster:
        with frozen_keeper(cluster, "n1"):
            id = cluster.client.submit(shell=f"touch {marks}/$PHALANX_ATTEMPT").task_ids[0]
            wait_until(lambda: cluster.client.task(id).status == "Assigned", 5.0, "it is on its way")
            cluster.start_runner("n2", NODES["n2"])
            task = cluster.wait_task(id, "Completed", within_s=18.0)  # three times lost_after_s
            assert (task.node, task.retries_used) == ("n2", 0)
        cluster.wait_online("n1")
        again = cluster.client.submit(targets=["n1"], command=["true"]).task_ids[0]
        cluster.wait_task(again, "Completed")
        assert len(list(marks.iterdir())) == 1, "the keeper refused what it found in its socket"


HANGING = """
import fcntl, sys
lock = open(sys.argv[2] + "/keeper.lock")
fcntl.flock(lock, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def _a_keeper_that_hangs(folder: Path) -> Iterator[None]:
    """A process that looks like a keeper at its start and has the lock, but never listens."""
    command = [sys.executable, "-c", HANGING, "keeper/__main__.py", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as keeper:
        assert keeper.stdout is not None
        assert keeper.stdout.readline()
        try:
            yield
        finally:
            keeper.kill()


def test_a_keeper_that_cannot_be_started_again_is_tried_for_ever_and_heals(tmp_path: Path) -> None:
    with a_real_cluster(tmp_path, NODES) as cluster:
        node = Node(tmp_path / "n1")
        cluster.kill("n1", signal.SIGSTOP)  # so that it starts no other keeper before we have the lock
        os.kill(node.keeper_pid(), signal.SIGKILL)
        with _a_keeper_that_hangs(tmp_path / "n1"):
            cluster.kill("n1", signal.SIGCONT)
            wait_until(lambda: status(cluster, "n1") == "Unhealthy", 10.0, "the coordinator knows")
            tried = tmp_path / "n1.log"
            wait_until(
                lambda: tried.read_text().count("no keeper, trying again") >= 2, 30.0, "it tries again"
            )
            id = cluster.client.submit(targets=["n1"], command=["true"]).task_ids[0]
            assert cluster.client.task(id).status == "Pending", "nothing goes there, so nothing fails there"
        cluster.wait_online("n1", within_s=30.0)
        assert cluster.wait_task(id, "Completed").attempt == 1


def was_given(cluster: RealCluster, id: str) -> bool:
    """Whether it went to a node, and may have come back since."""
    task = cluster.client.task(id)
    return task.status == "Assigned" or task.losses == 1


def test_a_runner_that_never_starts_anything_keeps_nothing(tmp_path: Path) -> None:
    with (
        a_real_cluster(tmp_path, {}, heartbeat_s=0.2, lost_after_s=3.0) as cluster,
        SilentRunner(cluster, "ghost", accepts=True),
    ):
        cluster.wait_online("ghost")
        id = cluster.client.submit(command=["true"]).task_ids[0]
        pinned = cluster.client.submit(targets=["ghost"], command=["true"]).task_ids[0]
        wait_until(lambda: was_given(cluster, id), 20.0, "it is given to the ghost")
        cluster.start_runner("n1", NODES["n1"])
        task = cluster.wait_task(id, "Completed", within_s=30.0)
        assert (task.node, task.retries_used, task.losses) == ("n1", 0, 1)
        failed = cluster.wait_task(pinned, "Failed")
        assert (failed.exit_code, "did not confirm start" in failed.message) == (-1, True)
        assert status(cluster, "ghost") == "Quarantined", "no work until it has confirmed the end"
