"""Jobs that start after others, on real processes: also when the coordinator is killed in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.errors import BadRequest, Conflict, NotFound
from tests.support.real_cluster import RealCluster, a_real_cluster


def writes(folder: Path, word: str) -> list[str]:
    return ["/bin/sh", "-c", f"echo {word} >> {folder / 'order'}"]


def test_a_chain_keeps_its_order_over_a_kill_of_the_coordinator(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with a_real_cluster(tmp_path / "cluster", lost_after_s=20.0) as cluster:
        client = cluster.client
        wait_for_gate = f"while [ ! -e {gate} ]; do sleep 0.05; done; echo first >> {tmp_path / 'order'}"
        first = client.submit(shell=wait_for_gate).task_ids[0]
        second = client.submit(command=writes(tmp_path, "second"), array="1-3", after=[first]).batch_id
        third = client.submit(command=writes(tmp_path, "third"), after=[f"{second[:24]}:ok"]).task_ids[0]
        alarm = client.submit(command=writes(tmp_path, "alarm"), after=[f"{first}:failed"]).task_ids[0]
        assert client.job(third).after == [f"{second}:ok"]
        assert client.why(third).dominant.code == "WaitingDependency"
        cluster.wait_task(first, "Running")
        cluster.kill("coordinator")
        gate.touch()
        cluster.start_coordinator()
        cluster.wait_ready("coordinator")
        cluster.wait_task(third, "Completed")
        assert cluster.wait_task(alarm, "Cancelled").reason == "dependency"
        assert (tmp_path / "order").read_text().split() == ["first", *["second"] * 3, "third"]
        refused(cluster, first, alarm)


def refused(cluster: RealCluster, done: str, cancelled: str) -> None:
    for after, error in (
        (f"{cancelled}", Conflict),
        (f"{done}:failed", Conflict),
        (f"{done}:later", BadRequest),
        ("f" * 26, NotFound),
    ):
        with pytest.raises(error):
            cluster.client.submit(command=["/bin/true"], after=[after])
