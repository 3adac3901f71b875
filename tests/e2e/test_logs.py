"""Logs are available: of every attempt, wherever it ran, in the order in which they were written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.errors import BadRequest, NotFound
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.waiting import wait_until

WRITES = "for i in $(seq 300); do echo out $i; echo err $i >&2; done"
IN_ORDER = "".join(f"out {number}\nerr {number}\n" for number in range(1, 301))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    nodes = {"n1": "cpus=2,ram=1GiB", "n2": "cpus=1,ram=1GiB"}
    with a_real_cluster(tmp_path_factory.mktemp("logs"), nodes) as cluster:
        yield cluster


def test_one_log_has_both_streams_in_their_order(cluster: RealCluster) -> None:
    """Also of the members of a gang, whose logs are made at the barrier."""
    alone = cluster.client.submit(command=["sh", "-c", WRITES]).task_ids[0]
    gang = cluster.client.submit(command=["sh", "-c", WRITES], tasks=2).task_ids[0]
    for id in (alone, f"{gang}.0", f"{gang}.1"):
        cluster.wait_task(id, "Completed")
        assert cluster.output(id) == IN_ORDER
        with pytest.raises(BadRequest, match="one log with both streams") as refused:
            cluster.output(id, "stderr")
        assert (refused.value.reason, "--split-output" in refused.value.hint) == ("OneLog", True)


def test_a_job_with_split_output_has_two(cluster: RealCluster) -> None:
    id = cluster.client.submit(command=["sh", "-c", WRITES], split_output=True).task_ids[0]
    cluster.wait_task(id, "Completed")
    for stream, word in (("stdout", "out"), ("stderr", "err")):
        assert cluster.output(id, stream) == "".join(f"{word} {number}\n" for number in range(1, 301))


def test_the_log_of_an_earlier_attempt_is_read_where_it_ran(cluster: RealCluster) -> None:
    """P2: attempt 1 ran on one node, attempt 2 on another; both can be read, and one that never was is refused."""
    script = 'echo "attempt $PHALANX_ATTEMPT" >&2; [ "$PHALANX_ATTEMPT" = 2 ] || sleep 600'
    id = cluster.client.submit(command=["sh", "-c", script], max_retries=2).task_ids[0]
    first = cluster.wait_task(id, "Running").node
    assert first is not None
    wait_until(lambda: "attempt 1" in cluster.output(id), what="the first attempt has written")
    cluster.client.drain(first, "so that the next attempt runs elsewhere")
    cluster.client.evict(id)
    ended = cluster.wait_task(id, "Completed")
    assert ended.attempt == 2
    assert ended.node != first
    logs = [b"".join(cluster.client.logs(id, attempt=number)).decode() for number in (1, 2)]
    assert logs == ["attempt 1\n", "attempt 2\n"]

    folder: Path = cluster.folder
    for each in (folder / first / "logs", folder / "coordinator" / "files"):
        for left in each.rglob("*"):
            if left.is_file():
                left.unlink()
    with pytest.raises(NotFound, match="no log of attempt 1"):
        list(cluster.client.logs(id, attempt=1))
    cluster.client.undrain(first)
