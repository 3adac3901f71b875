"""Ten kinds of waiting or refused tasks: the reason is right, names numbers, and the suggested fix works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phalanx.api.schema.jobs import WhyReply
from phalanx.errors import BadRequest, NeverFits
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.waiting import wait_until

LONG = ["/bin/sleep", "300"]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RealCluster]:
    with a_real_cluster(tmp_path) as cluster:
        yield cluster


def why(cluster: RealCluster, **request: Any) -> tuple[str, WhyReply]:
    id = cluster.client.submit(**request).task_ids[0]
    assert cluster.client.task(id).status == "Pending"
    return id, cluster.client.why(id)


def starts(cluster: RealCluster, **request: Any) -> None:
    id = cluster.client.submit(**request).task_ids[0]
    cluster.wait_task(id, "Running", "Completed")


def test_cores_are_taken(cluster: RealCluster) -> None:
    cluster.client.submit(targets=["n1"], cores=6, command=LONG)
    cluster.client.submit(targets=["n2"], cores=4, command=LONG)
    request: dict[str, Any] = {"cores": 4, "command": LONG}
    _, reply = why(cluster, **request)
    assert reply.dominant.code == "WaitingCapacity"
    assert reply.dominant.numbers == {"wanted": 4, "free": 2, "total": 8}
    assert reply.fix is not None and reply.fix.change == {"cores": 2}
    starts(cluster, **request | reply.fix.change)


def test_memory_is_taken(cluster: RealCluster) -> None:
    cluster.client.submit(targets=["n1"], memory="12GiB", command=LONG)
    cluster.client.submit(targets=["n2"], memory="30GiB", command=LONG)
    request: dict[str, Any] = {"memory": "8GiB", "command": LONG}
    _, reply = why(cluster, **request)
    assert "Insufficient available memory" in reply.dominant.text and "8 GiB requested" in reply.dominant.text
    assert reply.fix is not None and reply.fix.change == {"memory": "4GiB"}
    starts(cluster, **request | reply.fix.change)


def test_gpus_are_taken(cluster: RealCluster) -> None:
    cluster.client.submit(gpus=1, command=LONG)
    request: dict[str, Any] = {"gpus": 2, "command": LONG}
    id, reply = why(cluster, **request)
    assert "1 of 2" in reply.dominant.text
    assert reply.fix is not None and reply.fix.change == {"gpus": 1}
    cluster.client.cancel(id)  # room is kept for it while it waits
    starts(cluster, **request | reply.fix.change)


def test_a_named_gpu_is_taken(cluster: RealCluster) -> None:
    cluster.client.submit(targets=["n1::0"], command=LONG)
    request: dict[str, Any] = {"targets": ["n1::0"], "command": LONG}
    id, reply = why(cluster, **request)
    assert reply.dominant.code == "TargetBusy" and "[0]" in reply.dominant.text
    assert reply.fix is not None and reply.fix.change == {"targets": [], "gpus": 1}
    cluster.client.cancel(id)
    starts(cluster, **request | reply.fix.change)


def test_another_task_must_end_first(cluster: RealCluster) -> None:
    holder = cluster.client.submit(targets=["n1"], gpus=2, command=LONG).task_ids[0]
    cluster.wait_task(holder, "Running")
    waiting, reply = why(cluster, gpus=1, command=LONG)
    assert (
        reply.fix is not None and reply.fix.command == f"phalanx cancel {cluster.client.job(holder).number}"
    )
    cluster.client.cancel(holder)
    cluster.wait_task(waiting, "Running")


def test_the_node_is_drained(cluster: RealCluster) -> None:
    cluster.client.drain("n2", "new disk")
    waiting, reply = why(cluster, targets=["n2"], command=LONG)
    assert reply.dominant.code == "Maintenance" and "new disk" in reply.dominant.text
    assert reply.fix is not None and reply.fix.command == "phalanx node resume n2"
    cluster.client.undrain("n2")
    cluster.wait_task(waiting, "Running")


def test_the_node_is_away(cluster: RealCluster) -> None:
    cluster.kill("n2")
    wait_until(lambda: cluster.client.node("n2").status == "Offline", 15.0)
    waiting, reply = why(cluster, targets=["n2"], command=LONG)
    assert reply.dominant.code == "NodeOffline" and "n2" in reply.dominant.text
    assert reply.fix is not None
    cluster.start_runner("n2")
    cluster.wait_task(waiting, "Running")


def test_the_array_has_reached_its_limit(cluster: RealCluster) -> None:
    job = cluster.client.submit(array="1-4%1", command=LONG).task_ids[0]
    reply = cluster.client.why(f"{job}.3")
    assert reply.dominant.code == "ArrayLimit" and reply.dominant.numbers == {"limit": 1}
    number = reply.number.partition(".")[0]
    assert reply.fix is not None and reply.fix.command == f"phalanx update {number} --limit 2"
    cluster.client.update(job, at_once=2)
    cluster.wait_task(f"{job}.2", "Running")


def test_it_failed_and_waits_for_its_retry(cluster: RealCluster) -> None:
    id = cluster.client.submit(command=["/bin/false"], max_retries=5).task_ids[0]

    def backing_off() -> WhyReply | None:
        reply = cluster.client.why(id)
        return reply if reply.dominant.code == "RetryBackoff" else None

    reply = wait_until(backing_off)
    assert "of 5" in reply.dominant.text


def test_others_stand_before_it(cluster: RealCluster) -> None:
    cluster.client.submit(targets=["n1"], gpus=2, command=LONG)
    why(cluster, gpus=1, command=LONG)
    _, reply = why(cluster, gpus=1, command=LONG)
    assert reply.position == 2
    assert [other.code for other in reply.others if other.tier == "policy"] == ["PriorityBehind"]
    _, ahead = why(cluster, gpus=1, command=LONG, priority=10, preemption="never")
    assert ahead.position == 1


def test_it_could_never_fit(cluster: RealCluster) -> None:
    with pytest.raises(NeverFits, match="9 requested") as caught:
        cluster.client.submit(cores=9, command=LONG)
    assert "with 8 cores instead of 9" in caught.value.hint
    starts(cluster, cores=8, command=LONG)


def test_it_names_what_does_not_exist(cluster: RealCluster) -> None:
    with pytest.raises(BadRequest, match="nodes: n1, n2"):
        cluster.client.submit(targets=["n7"], command=LONG)
    with pytest.raises(BadRequest, match=r"Valid: \[0, 1\]"):
        cluster.client.submit(targets=["n1:5"], command=LONG)


def test_it_failed_for_good(cluster: RealCluster) -> None:
    id = cluster.client.submit(command=["/no/such/program"], max_retries=0).task_ids[0]
    cluster.wait_task(id, "Failed")
    reply = cluster.client.why(id)
    assert "/no/such/program" in reply.dominant.text
    assert reply.fix is not None and "program" in reply.fix.text
