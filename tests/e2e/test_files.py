"""Files outlive their node: logs, results and artifacts of attempts whose node was killed and its disk removed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from phalanx.errors import PhalanxError
from tests.support.real_cluster import RealCluster, a_real_cluster, end_keeper
from tests.support.s3_server import CREDENTIALS, shared_s3
from tests.support.waiting import wait_until

ONE_NODE = {"n1": "cpus=2,ram=1GiB"}
LINES = 40_000


def kept(cluster: RealCluster) -> list[Path]:
    """What stands in the coordinator's own folder of files."""
    return [each for each in (cluster.folder / "coordinator" / "files").rglob("*") if each.is_file()]


def lose_node(cluster: RealCluster, name: str) -> None:
    """Its processes are killed and its disk is gone, as when a machine burns."""
    cluster.kill(name)
    end_keeper(cluster.folder / name)
    (cluster.folder / name).rename(cluster.folder / f"{name}-gone")


def test_the_log_of_an_ended_attempt_outlives_its_node(tmp_path: Path) -> None:
    with a_real_cluster(tmp_path, ONE_NODE) as cluster:
        script = f"seq {LINES}; echo trouble >&2"
        id = cluster.client.submit(command=["sh", "-c", script]).task_ids[0]
        silent = cluster.client.submit(command=["true"]).task_ids[0]
        only_err = cluster.client.submit(command=["sh", "-c", "echo bad >&2"]).task_ids[0]
        for each in (id, silent, only_err):
            cluster.wait_task(each, "Completed")
        wait_until(
            lambda: len(kept(cluster)) == 4, what="both logs of one, and one with its mark, are copied"
        )
        whole = cluster.output(id)
        lose_node(cluster, "n1")
        wait_until(lambda: cluster.client.node("n1").status != "Online", what="the node is away")

        assert whole == "".join(f"{number}\n" for number in range(1, LINES + 1))
        assert cluster.output(id) == whole
        assert cluster.output(id, "stderr") == "trouble\n"
        assert (cluster.output(only_err), cluster.output(only_err, "stderr")) == ("", "bad\n")
        assert b"".join(cluster.client.logs(id, lines=2)) == f"{LINES - 1}\n{LINES}\n".encode()
        assert b"".join(cluster.client.logs(id, offset=len(whole) - 6)) == whole[-6:].encode()
        assert b"".join(cluster.client.logs(id, follow=True)) == whole.encode()
        with pytest.raises(PhalanxError, match="node n1 is not connected") as refused:
            cluster.output(silent)
        assert "no copy of it in the place for files" in refused.value.hint


def test_logs_are_copied_after_the_runner_was_restarted_and_read_from_the_copy_when_deleted(
    tmp_path: Path,
) -> None:
    """The coordinator is away when the attempt ends, and the runner is killed before it is back."""
    with a_real_cluster(tmp_path, ONE_NODE, lost_after_s=60.0) as cluster:
        script = f"echo begun; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo ended"
        id = cluster.client.submit(command=["sh", "-c", script]).task_ids[0]
        cluster.wait_task(id, "Running")
        cluster.kill("coordinator")
        (tmp_path / "go").touch()
        log = tmp_path / "n1" / "logs" / id / "0.1.stdout"
        wait_until(lambda: "ended" in log.read_text(), what="the task has ended")
        cluster.kill("n1")
        cluster.start_coordinator()
        cluster.wait_ready("coordinator")
        cluster.start_runner("n1")
        cluster.wait_task(id, "Completed")
        wait_until(lambda: len(kept(cluster)) == 1, what="its log is copied")
        wait_until(lambda: log.stat().st_mode & 0o777 == 0o400, what="it is marked as copied")
        log.unlink()
        assert cluster.output(id) == "begun\nended\n"


def test_a_log_with_a_gap_is_copied_with_its_gap(tmp_path: Path) -> None:
    with a_real_cluster(tmp_path, ONE_NODE) as cluster:
        script = "import os; os.write(1, b'a' * 8192); os.ftruncate(1, 1 << 26); os.write(1, b'end')"
        id = cluster.client.submit(command=[sys.executable, "-c", script]).task_ids[0]
        cluster.wait_task(id, "Completed")
        wait_until(lambda: len(kept(cluster)) == 2, what="both parts are copied")
        before = cluster.output(id)
        lose_node(cluster, "n1")
        wait_until(lambda: cluster.client.node("n1").status != "Online", what="the node is away")
        assert "bytes of this log were not kept" in before
        assert cluster.output(id) == before


def test_logs_go_to_a_bucket(tmp_path: Path) -> None:
    bucket = shared_s3().a_bucket()
    settings = {"coordinator.files": f"s3://{bucket}/lab", "coordinator.files_endpoint": shared_s3().endpoint}
    cluster = RealCluster(tmp_path, settings=settings)
    cluster.environment = dict(CREDENTIALS)
    try:
        cluster.start(ONE_NODE)
        id = cluster.client.submit(command=["echo", "hello"]).task_ids[0]
        cluster.wait_task(id, "Completed")
        wait_until(lambda: id.encode() in shared_s3().asked(bucket, "GET"), what="its log is in the bucket")
        lose_node(cluster, "n1")
        wait_until(lambda: cluster.client.node("n1").status != "Online", what="the node is away")
        assert cluster.output(id) == "hello\n"
        log = (tmp_path / "coordinator.log").read_text()
        assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in log
    finally:
        cluster.stop()
