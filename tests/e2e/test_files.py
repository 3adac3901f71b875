"""Files outlive their node: logs, results and artifacts of attempts whose node was killed and its disk removed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.errors import BadRequest, NotFound, PhalanxError, Unavailable
from phalanx.runner.log_files import log_path
from tests.support.real_cluster import RealCluster, a_real_cluster, end_keeper
from tests.support.s3_server import CREDENTIALS, shared_s3
from tests.support.waiting import wait_until

ONE_NODE = {"n1": "cpus=2,ram=1GiB"}
LINES = 40_000


def lose_node(cluster: RealCluster, name: str) -> None:
    """Its processes are killed and its disk is gone, as when a machine burns."""
    cluster.kill(name)
    end_keeper(cluster.folder / name)
    (cluster.folder / name).rename(cluster.folder / f"{name}-gone")


def ends_in_place_for_files(cluster: RealCluster, end: bytes) -> bool:
    """Whether two files are there, one of which has this end: a file on its way is there before its end is."""
    kept = [path.read_bytes() for path in cluster.kept_files()]
    return len(kept) == 2 and any(each.endswith(end) for each in kept)


def test_the_log_of_an_ended_attempt_outlives_its_node(tmp_path: Path) -> None:
    with a_real_cluster(tmp_path, ONE_NODE) as cluster:
        script = f"seq {LINES}; echo trouble >&2"
        id = cluster.client.submit(command=["sh", "-c", script], split_output=True).task_ids[0]
        silent = cluster.client.submit(command=["true"]).task_ids[0]
        bad = ["sh", "-c", "echo bad >&2"]
        only_err = cluster.client.submit(command=bad, split_output=True).task_ids[0]
        one = cluster.client.submit(command=bad).task_ids[0]
        for each in (id, silent, only_err, one):
            cluster.wait_task(each, "Completed")
        wait_until(
            lambda: len(cluster.kept_files()) == 5,
            what="both logs of one, one with its mark, and one log are copied",
        )
        whole = cluster.output(id)
        lose_node(cluster, "n1")
        wait_until(lambda: cluster.client.node("n1").status != "Online", what="the node is away")

        assert whole == "".join(f"{number}\n" for number in range(1, LINES + 1))
        assert cluster.output(id) == whole
        assert cluster.output(id, "stderr") == "trouble\n"
        assert (cluster.output(only_err), cluster.output(only_err, "stderr")) == ("", "bad\n")
        assert cluster.output(one) == "bad\n"
        with pytest.raises(BadRequest, match="has one log with both streams"):
            cluster.output(one, "stderr")
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
        log = Path(log_path(tmp_path / "n1" / "logs", id, 0, 1, "stdout"))
        wait_until(lambda: "ended" in log.read_text(), what="the task has ended")
        cluster.kill("n1")
        cluster.start_coordinator()
        cluster.wait_ready("coordinator")
        cluster.start_runner("n1")
        cluster.wait_task(id, "Completed")
        wait_until(lambda: len(cluster.kept_files()) == 1, what="its log is copied")
        wait_until(lambda: log.stat().st_mode & 0o777 == 0o400, what="it is marked as copied")
        log.unlink()
        assert cluster.output(id) == "begun\nended\n"


def test_a_log_with_a_gap_is_copied_with_its_gap(tmp_path: Path) -> None:
    cluster = RealCluster(tmp_path)
    cluster.node_settings = {"n1": {"runner.log_max_bytes": 1 << 20}}
    try:
        cluster.start(ONE_NODE)
        script = "print('begin'); print('a' * (8 << 20)); print('end')"
        id = cluster.client.submit(command=[sys.executable, "-c", script]).task_ids[0]
        cluster.wait_task(id, "Completed")
        wait_until(lambda: ends_in_place_for_files(cluster, b"end\n"), what="both parts are copied, whole")
        before = cluster.output(id)
        lose_node(cluster, "n1")
        wait_until(lambda: cluster.client.node("n1").status != "Online", what="the node is away")
        assert "bytes of this log were not kept" in before
        assert (before[:5], before[-4:]) == ("begin", "end\n")
        assert cluster.output(id) == before
    finally:
        cluster.stop()


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


LARGE = 'import json, os; json.dump({"losses": list(range(8000))}, open(os.environ["PHALANX_RESULT"], "w"))'


def run_cli(cluster: RealCluster, *argv: str) -> subprocess.CompletedProcess[bytes]:
    """The command line against this cluster."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PHALANX_")}
    env |= {
        "PHALANX_ADDRESS": cluster.address("coordinator"),
        "PHALANX_TOKEN_FILE": str(cluster.folder / "token"),
        "XDG_CONFIG_HOME": str(cluster.folder / "none"),
        "XDG_STATE_HOME": str(cluster.folder / "none"),
    }
    return subprocess.run(
        [sys.executable, "-m", "phalanx", *argv],
        capture_output=True,
        env=env,
        cwd=cluster.folder,
        timeout=60,
        check=False,
    )


def test_a_large_result_and_artifacts_are_there_when_the_end_is_and_outlive_the_node(tmp_path: Path) -> None:
    with a_real_cluster(tmp_path, ONE_NODE) as cluster:
        script = (
            f"{LARGE}; d = os.environ['PHALANX_ARTIFACTS']; os.makedirs(d + '/logs/a'); "
            "open(d + '/model.bin', 'wb').write(bytes(3_000_000)); open(d + '/logs/a/ü.txt', 'w').write('hello')"
        )
        id = cluster.client.submit(command=[sys.executable, "-c", script]).task_ids[0]
        small = cluster.client.submit(command=["sh", "-c", 'echo "[1]" > $PHALANX_RESULT']).task_ids[0]
        cluster.wait_task(id, "Completed")
        lose_node(cluster, "n1")  # at once: nothing is on its way any more

        losses = {"losses": list(range(8000))}
        assert cluster.client.task(id).result == losses
        assert cluster.client.result(id) == losses
        assert [task.result for task in cluster.client.tasks(id).items] == [None]
        assert cluster.client.tasks(id).items[0].result_bytes > 4096
        assert json.loads(run_cli(cluster, "results", id, "-o", "json").stdout)[0]["result"] == losses
        found = cluster.client.files(id)
        assert [(each.path, each.size) for each in found.files] == [
            ("model.bin", 3_000_000),
            ("logs/a/ü.txt", 5),
        ]
        assert b"".join(cluster.client.file(id, "model.bin")) == bytes(3_000_000)
        with pytest.raises(NotFound, match="no artifact 'other'"):
            list(cluster.client.file(id, "other"))

        listed = run_cli(cluster, "files", id)
        assert b"model.bin" in listed.stdout and listed.returncode == 0
        assert run_cli(cluster, "cp", f"{id}:logs/a/ü.txt", "here.txt").returncode == 0
        assert (tmp_path / "here.txt").read_text() == "hello"
        assert run_cli(cluster, "cp", "-r", f"{id}:", "all").returncode == 0
        assert (tmp_path / "all/model.bin").stat().st_size == 3_000_000
        assert (tmp_path / "all/logs/a/ü.txt").read_text() == "hello"
        assert run_cli(cluster, "cp", "-r", f"{id}:logs", "some").returncode == 0
        assert (tmp_path / "some/a/ü.txt").read_text() == "hello"
        refused = run_cli(cluster, "cp", f"{id}:../../token", "x")
        assert refused.returncode == 2 and b"none of them . or .." in refused.stderr
        assert run_cli(cluster, "cp", f"{id}:none", "x").returncode == 5
        assert cluster.client.task(small).status in ("Completed", "Pending", "Assigned", "Running")


def test_a_damaged_result_or_artifact_is_detected_and_said(tmp_path: Path) -> None:
    with a_real_cluster(tmp_path, ONE_NODE) as cluster:
        script = f"{LARGE}; open(os.environ['PHALANX_ARTIFACTS'] + '/a.txt', 'w').write('hello')"
        id = cluster.client.submit(command=[sys.executable, "-c", script]).task_ids[0]
        cluster.wait_task(id, "Completed")
        for path in cluster.kept_files():
            if path.name in ("result.json", "a.txt"):
                path.write_bytes(path.read_bytes()[:-1] + b"!")
        with pytest.raises(Unavailable, match="is not what the task wrote") as refused:
            cluster.client.result(id)
        assert refused.value.reason == "FileDamaged"
        view = cluster.client.task(id)
        assert view.result is None and "is not what the task wrote" in view.result_error
        said = run_cli(cluster, "results", id)
        assert b"is not what the task wrote" in said.stderr
        copied = run_cli(cluster, "cp", f"{id}:a.txt", "a.txt")
        assert copied.returncode == 69 and b"is not what the task wrote" in copied.stderr
        assert not (tmp_path / "a.txt").exists()


def test_hostile_artifacts_are_left_out_and_named(tmp_path: Path) -> None:
    script = """
import os
os.chdir(os.environ["PHALANX_ARTIFACTS"])
os.symlink("/etc/passwd", "passwd")
os.symlink("/etc", "etc")
os.mkfifo("fifo")
open("huge", "wb").truncate(1 << 42)
open("two\\nlines", "w").write("x")
open(b"\\xff", "w").write("x")
os.makedirs("/".join(["d"] * 100))
open("/".join(["d"] * 100) + "/deep", "w").write("x")
open("good", "w").write("x")
"""
    with a_real_cluster(tmp_path, ONE_NODE) as cluster:
        id = cluster.client.submit(command=[sys.executable, "-c", script]).task_ids[0]
        ended = cluster.wait_task(id, "Completed")
        assert "7 of its artifacts were not kept" in ended.message
        found = cluster.client.files(id)
        assert [each.path for each in found.files] == ["good"]
        assert found.left_out_count == 7
        told = "\n".join(found.left_out)
        for said in ("'passwd': a link", "'etc': a link", "'fifo': not a regular file", "'huge': 4398046511104 bytes",
                     r"'two\nlines': path", "'\\udcff': path", "too deep"):  # fmt: skip
            assert said in told
        listed = run_cli(cluster, "files", id)
        assert b"7 not kept" in listed.stderr
        assert not list((tmp_path / "n1" / "logs").rglob("*.artifacts"))


def test_many_files_are_bounded(tmp_path: Path) -> None:
    script = "import os\nos.chdir(os.environ['PHALANX_ARTIFACTS'])\n"
    script += "for n in range(30_000): open(f'{n:06}', 'w').close()"
    with a_real_cluster(tmp_path, ONE_NODE, lost_after_s=30.0) as cluster:
        id = cluster.client.submit(command=[sys.executable, "-c", script]).task_ids[0]
        other = cluster.client.submit(command=["sh", "-c", "sleep 0.1; echo ok"]).task_ids[0]
        cluster.wait_task(other, "Completed")
        ended = cluster.wait_task(id, "Completed", within_s=120.0)
        assert "20000 of its artifacts were not kept" in ended.message
        found = cluster.client.files(id)
        assert (len(found.files), found.left_out_count) == (10_000, 20_000)
        assert cluster.client.node("n1").status == "Online"


def test_a_result_that_cannot_be_kept_fails_its_task_and_artifacts_come_later(tmp_path: Path) -> None:
    """The place for files is a bucket that does not exist yet."""
    bucket = f"later-{os.getpid()}"
    settings = {"coordinator.files": f"s3://{bucket}", "coordinator.files_endpoint": shared_s3().endpoint}
    cluster = RealCluster(tmp_path, settings=settings)
    cluster.environment = dict(CREDENTIALS)
    cluster.prelude = "import phalanx.runner.endings as e; e.HOLD_S = 1.0; "
    try:
        cluster.start(ONE_NODE)
        result = cluster.client.submit(command=[sys.executable, "-c", LARGE], max_retries=0).task_ids[0]
        script = "echo hello > $PHALANX_ARTIFACTS/a.txt"
        artifacts = cluster.client.submit(command=["sh", "-c", script]).task_ids[0]
        flow = cluster.client.workflow("late")
        flow.stage("give", ["sh", "-c", script])
        flow.stage("take", ["/bin/echo", "${give.artifacts.a.txt}"])
        run = flow.submit()
        failed = cluster.wait_task(result, "Failed")
        assert failed.reason == "bad_result" and "could not be kept: the place for files" in failed.message
        late = cluster.wait_task(artifacts, "Completed")
        assert late.message == "its artifacts are not in the place for files yet"
        wait_until(lambda: "from the place" in run.view().stages[1].reason, 60.0, "the stage waits for them")
        shared_s3().asked(bucket, "PUT")
        wait_until(lambda: cluster.client.files(artifacts).files, 60.0, "the artifacts have come")
        assert b"".join(cluster.client.file(artifacts, "a.txt")) == b"hello\n"
        assert run.wait(60.0).status == "Completed"
    finally:
        cluster.stop()


def test_artifacts_and_a_large_result_survive_a_restart_of_the_runner_while_they_are_sent(
    tmp_path: Path,
) -> None:
    with a_real_cluster(tmp_path, ONE_NODE, lost_after_s=60.0) as cluster:
        script = (
            f"{LARGE}; import time; open(os.environ['PHALANX_ARTIFACTS'] + '/a.txt', 'w').write('hello'); "
            f"\nwhile not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.05)"
            f"\nopen({str(tmp_path / 'gone')!r}, 'w').close()"
        )
        id = cluster.client.submit(command=[sys.executable, "-c", script]).task_ids[0]
        cluster.wait_task(id, "Running")
        cluster.kill("coordinator")
        (tmp_path / "go").touch()
        wait_until((tmp_path / "gone").exists, what="the task has ended")
        cluster.kill("n1")
        cluster.start_coordinator()
        cluster.wait_ready("coordinator")
        cluster.start_runner("n1")
        cluster.wait_task(id, "Completed")
        assert cluster.client.result(id) == {"losses": list(range(8000))}
        assert b"".join(cluster.client.file(id, "a.txt")) == b"hello"
