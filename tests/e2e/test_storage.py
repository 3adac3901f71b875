"""A full disk and a read-only folder: a clear message, nothing accepted is lost, and work continues when it can."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.errors import PhalanxError, Unavailable
from tests.support.real_cluster import RealCluster, a_real_cluster, free_ports
from tests.support.waiting import wait_until


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of 8 MiB."""
    folder = tmp_path / "coordinator"
    folder.mkdir(parents=True)
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "phalanx-test", str(folder)],
        capture_output=True,
        check=False,
    )
    if mount.returncode:
        pytest.skip(f"this user may not mount a tmpfs: {mount.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_refuses_clearly_keeps_what_was_accepted_and_recovers(small_disk: Path) -> None:
    with a_real_cluster(small_disk.parent, {"n1": "cpus=2,ram=4GiB"}, lost_after_s=4.0) as cluster:
        running = cluster.client.submit(command=["/bin/sleep", "300"]).task_ids[0]
        cluster.wait_task(running, "Running")
        filler = small_disk / "filler"
        _fill(filler)
        with pytest.raises(Unavailable, match="cannot write") as caught:
            _submit_until_refused(cluster)
        assert "free some space" in caught.value.hint
        with pytest.raises(Unavailable):
            cluster.client.ready()
        # Longer than the lease: heartbeats need no disk, so the task must not be declared lost meanwhile.
        wait_until(lambda: cluster.client.cluster().nodes_online == 1, 2.0)
        seen = cluster.client.node("n1").last_seen_at or 0.0
        wait_until(lambda: (cluster.client.node("n1").last_seen_at or 0.0) > seen + 5.0, 15.0)
        assert cluster.client.task(running).status == "Running"
        filler.unlink()
        id = wait_until(lambda: _try_submit(cluster), 15.0)
        cluster.wait_task(id, "Completed")
        assert cluster.client.task(running).status == "Running"
        accepted = {job.id for job in cluster.client.jobs(limit=1000).items}
        cluster.kill("coordinator")
        cluster.start_coordinator()
        cluster.wait_online("n1")
        assert accepted <= {job.id for job in cluster.client.jobs(limit=1000).items}


def test_a_state_folder_that_cannot_be_written_is_said_clearly(tmp_path: Path) -> None:
    folder = tmp_path / "file"
    folder.write_text("not a folder")
    settings = f'{{"coordinator.state_dir": "{folder}/x", "coordinator.token_file": "{folder}/x/token"}}'
    script = (
        "import sys, json; from phalanx.config import load; from phalanx.coordinator.main import run; "
        "sys.exit(run(load(json.loads(sys.argv[1]))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, settings], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 1
    assert str(folder) in done.stderr
    assert "Traceback" not in done.stderr


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return


def _submit_until_refused(cluster: RealCluster) -> None:
    for _ in range(2000):
        cluster.client.submit(command=["/bin/true"], env={"FILL": "x" * 4000})


def _try_submit(cluster: RealCluster) -> str | None:
    try:
        return cluster.client.submit(command=["/bin/true"]).task_ids[0]
    except PhalanxError:
        return None


def test_on_a_full_disk_coordinator_and_runner_can_be_restarted(small_disk: Path) -> None:
    """XW16: what exists is served, the runner finds its tasks, and all continue by themselves when there is space."""
    for part in ("n1", "coordinator"):  # all of it on the small disk
        (small_disk / part).mkdir()
    with a_real_cluster(small_disk, {"n1": "cpus=2,ram=4GiB"}, lost_after_s=60.0) as cluster:
        running = cluster.client.submit(command=["/bin/sleep", "300"]).task_ids[0]
        attempt = cluster.wait_task(running, "Running")
        _fill(small_disk / "filler")
        for part in ("coordinator", "n1"):
            cluster.kill(part)
        cluster.node_settings["n1"] = {"runner.health_disk_free_bytes": 0}  # or it gets no work for a minute
        cluster.start_coordinator()
        cluster.start_runner("n1")
        wait_until(lambda: cluster.status_of("coordinator", "/readyz") == 200, 20.0, "it reads what is there")
        assert cluster.client.task(running).status == "Running"
        with pytest.raises(PhalanxError, match="full"):
            cluster.clients["coordinator"].submit(command=["/bin/true"])
        assert [part for part, each in cluster.processes.items() if each.poll() is not None] == []
        (small_disk / "filler").unlink()
        id = wait_until(lambda: _try_submit(cluster), 30.0)
        cluster.wait_task(id, "Completed")
        assert cluster.client.task(running).status == "Running"
        assert cluster.client.task(running).attempt == attempt.attempt


def test_the_command_line_restarts_a_coordinator_on_a_full_disk(small_disk: Path) -> None:
    """The same as people start it, with all that the command writes about itself."""
    port, link = free_ports(2)
    command = [
        *(sys.executable, "-m", "phalanx", "coordinator", "--state", str(small_disk)),
        *("--port", str(port), "--link-port", str(link)),
    ]

    def is_up() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    first = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    wait_until(is_up, 20.0, "it listens")
    _fill(small_disk / "filler")
    first.kill()
    first.wait(10)
    again = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: is_up() or again.poll() is not None, 20.0)
        assert again.poll() is None, again.stderr.read() if again.stderr else ""
    finally:
        again.kill()
        _, told = again.communicate(timeout=10)
    assert "no space left" in told
