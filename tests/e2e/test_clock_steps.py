"""A node whose wall clock is set by hours: time limits stay what they are, also across a restart of its runner (R27).

A small library, compiled here, shifts the wall clock of the runner and of its keeper by as much as a file says.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.api.schema.jobs import TaskView
from tests.support.real_cluster import RealCluster
from tests.support.waiting import wait_until
from tests.support.wall_clock import WallClock, build


@pytest.fixture
def clock(tmp_path: Path) -> WallClock:
    return WallClock(tmp_path, build(tmp_path))


def submitted(cluster: RealCluster, seconds: float, limit_s: float) -> str:
    command = ["sleep", str(seconds)]
    return cluster.client.submit(command=command, time_limit=limit_s, max_retries=0).task_ids[0]


def ended(cluster: RealCluster, id: str) -> TaskView:
    return cluster.wait_task(id, "Completed", "Failed", within_s=12.0)


def test_time_limits_hold_while_a_nodes_clock_is_set_by_hours(tmp_path: Path, clock: WallClock) -> None:
    cluster = RealCluster(tmp_path / "c", lost_after_s=20.0)
    try:
        cluster.start({})
        cluster.environment = clock.environment
        cluster.prelude = clock.prelude
        cluster.start_runner("n1", "cpus=4,ram=4GiB")
        cluster.wait_online("n1")

        clock.set_by(-3600)
        early = submitted(cluster, 0.5, 20)
        assert ended(cluster, early).status == "Completed", "it did not run longer than its limit"
        shown = cluster.client.task(early).started_at
        assert shown is not None and shown < cluster.client.job(early).submitted_at - 3000, "the shim works"

        clock.set_by(3600)
        late = submitted(cluster, 300, 1)
        assert (ended(cluster, late).status, cluster.client.task(late).reason) == ("Failed", "timeout")

        kept = submitted(cluster, 4, 60)
        cluster.wait_task(kept, "Running")
        clock.set_by(2 * 3600)
        cluster.kill("n1")
        cluster.start_runner("n1")
        wait_until(lambda: "n1" in {node.name for node in cluster.client.nodes()}, 10.0)
        assert (ended(cluster, kept).status, cluster.client.task(kept).attempt) == ("Completed", 1)
    finally:
        cluster.stop()
