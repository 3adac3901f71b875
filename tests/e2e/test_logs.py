"""Logs are available: of every attempt, wherever it ran, with dropped parts marked."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.errors import NotFound
from tests.support.real_cluster import a_real_cluster
from tests.support.waiting import wait_until


def test_the_log_of_an_earlier_attempt_is_read_where_it_ran(tmp_path: Path) -> None:
    """P2: attempt 1 ran on one node, attempt 2 on another; both can be read, and one that never was is refused."""
    with a_real_cluster(tmp_path, {"n1": "cpus=1,ram=1GiB", "n2": "cpus=1,ram=1GiB"}) as cluster:
        script = 'echo "attempt $PHALANX_ATTEMPT" >&2; [ "$PHALANX_ATTEMPT" = 2 ] || sleep 600'
        id = cluster.client.submit(command=["sh", "-c", script], max_retries=2).task_ids[0]
        first = cluster.wait_task(id, "Running").node
        assert first is not None
        wait_until(lambda: "attempt 1" in cluster.output(id, "stderr"), what="the first attempt has written")
        cluster.client.drain(first, "so that the next attempt runs elsewhere")
        cluster.client.evict(id)
        ended = cluster.wait_task(id, "Completed")
        assert ended.attempt == 2
        assert ended.node != first
        logs = [
            b"".join(cluster.client.logs(id, stream="stderr", attempt=number)).decode() for number in (1, 2)
        ]
        assert logs == ["attempt 1\n", "attempt 2\n"]

        for folder in (tmp_path / first / "logs", tmp_path / "coordinator" / "files"):
            for left in folder.rglob("*"):
                if left.is_file():
                    left.unlink()
        with pytest.raises(NotFound, match="no log of attempt 1"):
            list(cluster.client.logs(id, attempt=1))
