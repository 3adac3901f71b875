"""A cluster outgrows its machine: from SQLite to etcd, with a job that runs all the while."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.real_cluster import TWO_NODES, RealCluster
from tests.support.servers import shared_etcd
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(120)


def phalanx(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "phalanx", *words], capture_output=True, text=True, check=False
    )


def test_a_job_submitted_on_sqlite_is_there_after_migrating_to_etcd(tmp_path: Path):
    old, new = f"sqlite:{tmp_path}/old.db", shared_etcd().url
    gate = tmp_path / "gate"
    cluster = RealCluster(tmp_path / "c", lost_after_s=30.0, store=old)
    try:
        cluster.start(TWO_NODES)
        waits = f"until test -e {gate}; do sleep 0.05; done; exit 7"
        running = cluster.client.submit(targets=["n1"], shell=waits, max_retries=0).task_ids[0]
        ended = cluster.client.submit(targets=["n2"], shell="exit 0").task_ids[0]
        cluster.wait_task(ended, "Completed")
        before = cluster.wait_task(running, "Running")
        epoch = cluster.client.cluster().epoch
        busy = phalanx("store", "migrate", old, new)
        assert (busy.returncode, "is active on" in busy.stderr) == (6, True), busy.stderr
        cluster.kill(cluster.coordinators[0], 15)
        moved = phalanx("store", "migrate", old, new)
        assert moved.returncode == 0, moved.stderr
        checked = phalanx("store", "check", new)
        assert checked.returncode == 0, checked.stdout + checked.stderr
        cluster.store = new
        cluster.start_coordinator()
        wait_until(cluster.is_ready, 20.0, "the coordinator is ready on etcd")
        cluster.leader()
        cluster.wait_online("n1", "n2")
        assert cluster.client.cluster().epoch > epoch
        assert cluster.client.task(ended).status == "Completed"
        after = cluster.wait_task(running, "Running")
        assert after.attempt == before.attempt, "it ran through"
        gate.touch()
        cluster.wait_task(running, "Failed")
        assert cluster.client.task(running).exit_code == 7
    finally:
        cluster.stop()
