"""An orderly stop of a runner is no worse than a kill: the coordinator knows, and tasks lose no more than they must."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from phalanx.runner import claim
from tests.support.keeper_node import Node
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.waiting import wait_until

NODES = {"n1": "cpus=4,ram=4GiB"}


def stop_runner(cluster: RealCluster, *words: str, code: int = 0) -> str:
    """`phalanx runner stop` on the machine of n1; returns its output."""
    argv = [sys.executable, "-m", "phalanx", "runner", "stop", *words]
    env = os.environ | {"PHALANX_RUNNER_STATE_DIR": str(cluster.folder / "n1")}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == code, done.stderr
    cluster.processes["n1"].wait(5)
    return done.stderr


def gated(cluster: RealCluster, gate: Path) -> str:
    """A task that runs until the gate exists."""
    waits = f"until test -e {gate}; do sleep 0.05; done; exit 7"
    id = cluster.client.submit(shell=waits, max_retries=0).task_ids[0]
    cluster.wait_task(id, "Running")
    return id


def test_sigterm_is_told_and_leaves_the_tasks_to_the_keeper(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with a_real_cluster(tmp_path / "c", NODES, lost_after_s=20.0) as cluster:
        id = gated(cluster, gate)
        cluster.kill("n1", signal.SIGTERM)
        assert "was stopped" in cluster.client.node("n1").note, "known at once"
        wait_until(lambda: cluster.client.node("n1").status == "Unreachable", 5.0, "its connection has ended")
        assert cluster.client.task(id).status == "Running"
        gate.touch()  # it ends while only the keeper is there
        cluster.start_runner("n1")
        task = cluster.wait_task(id, "Failed")
        assert (task.exit_code, task.attempt, task.losses) == (7, 1, 0)


def test_a_longer_lease_can_be_asked_for_before_an_upgrade(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with a_real_cluster(tmp_path / "c", NODES, heartbeat_s=0.3, lost_after_s=2.0) as cluster:
        id = gated(cluster, gate)
        said = stop_runner(cluster, "--keep", "1m")
        assert "1 task runs on for at most 1m" in said
        until = time.monotonic() + 3.0  # longer than the coordinator waits for a runner that is killed
        wait_until(lambda: time.monotonic() > until, 5.0)
        assert (cluster.client.node("n1").status, cluster.client.task(id).status) == (
            "Unreachable",
            "Running",
        )
        cluster.start_runner("n1")
        cluster.wait_online("n1")
        gate.touch()
        task = cluster.wait_task(id, "Failed")
        assert (task.exit_code, task.attempt, task.losses) == (7, 1, 0)


def test_a_drained_runner_reports_each_end_before_it_leaves(tmp_path: Path) -> None:
    with a_real_cluster(tmp_path / "c", NODES, lost_after_s=20.0) as cluster:
        ids = [cluster.client.submit(command=["sleep", "300"], max_retries=0).task_ids[0] for _ in range(2)]
        for id in ids:
            cluster.wait_task(id, "Running")
        assert "2 tasks ended and were reported" in stop_runner(cluster, "--drain")
        tasks = [cluster.client.task(id) for id in ids]
        assert {(task.status, task.reason, task.losses) for task in tasks} == {("Pending", "evicted", 0)}
        cluster.start_runner("n1")
        for id in ids:
            assert cluster.wait_task(id, "Running").attempt == 2


def test_a_second_runner_refuses_and_the_first_and_its_tasks_go_on(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with a_real_cluster(tmp_path / "c", NODES, lost_after_s=20.0) as cluster:
        id = gated(cluster, gate)
        first = cluster.processes["n1"]
        cluster.start_runner("n1")
        assert cluster.processes["n1"].wait(20) == 6
        assert f"process {first.pid}" in (cluster.folder / "n1.log").read_text()
        cluster.processes["n1"] = first
        gate.touch()
        task = cluster.wait_task(id, "Failed")
        assert (task.exit_code, task.attempt, task.losses) == (7, 1, 0)
        assert "nothing ran here" in stop_runner(cluster), "it is found though another one was started"


def test_a_runner_that_waits_for_its_keeper_can_be_stopped(tmp_path: Path) -> None:
    with a_real_cluster(tmp_path / "c", NODES, lost_after_s=20.0) as cluster:
        gated(cluster, tmp_path / "gate")
        cluster.kill("n1", signal.SIGKILL)
        keeper = Node(cluster.folder / "n1").keeper_pid()
        os.kill(keeper, signal.SIGSTOP)
        try:
            cluster.start_runner("n1")
            wait_until(lambda: claim.runners(cluster.folder / "n1"))
            assert "before its keeper had answered" in stop_runner(cluster, "--drain", code=1)
        finally:
            os.kill(keeper, signal.SIGCONT)
