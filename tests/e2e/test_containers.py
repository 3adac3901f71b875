"""Tasks in containers, end to end: a real podman of our own, real runners, images of busybox."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.errors import PhalanxError
from tests.support.podman import IMAGE, Podman, a_podman, why_not
from tests.support.real_cluster import RealCluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "never")
MIB = 1 << 20


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    with a_podman(tmp_path_factory.mktemp("podman")) as podman:
        podman.busybox()
        yield podman


@pytest.fixture(scope="module")
def cluster(podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    folder = tmp_path_factory.mktemp("containers")
    (folder / "data").mkdir()
    cluster = RealCluster(folder, lost_after_s=30.0)
    cluster.node_settings = {
        "n1": {
            "runner.pretend": None,
            "runner.container_socket": str(podman.socket),
            "runner.container_mounts": f"{folder}/data;{podman.folder}/busybox",
            "runner.pids_max": 40,
        },
        "n2": {"runner.container_socket": "none"},
    }
    try:
        cluster.start({"n1": "real", "n2": "cpus=4"})
        yield cluster
    finally:
        cluster.stop()


def submit(cluster: RealCluster, script: str, image: str = IMAGE, **more: object) -> str:
    command = ["/bin/sh", "-c", script]
    return cluster.client.submit(command=command, image=image, max_retries=0, **more).task_ids[0]  # type: ignore[arg-type]


def test_output_exit_code_and_environment(cluster: RealCluster, podman: Podman):
    script = "echo out; echo err >&2; echo $PHALANX_NODE $GREETING; pwd; exit 7"
    id = submit(cluster, script, env={"GREETING": "hello"}, cwd="/data")
    view = cluster.wait_task(id, "Completed", "Failed")
    assert (view.status, view.reason, view.exit_code, view.node) == ("Failed", "exited", 7, "n1"), (
        view.message
    )
    assert cluster.output(id) == "out\nn1 hello\n/data\n"
    assert cluster.output(id, "stderr") == "err\n"
    assert podman.containers() == []


def test_cancel_ends_a_first_process_that_has_no_handler(cluster: RealCluster, podman: Podman):
    id = submit(cluster, "echo up; exec sleep 1000", grace="30s")
    wait_until(lambda: cluster.output(id) == "up\n", 20.0, "it runs")
    cluster.client.cancel(id)
    assert cluster.wait_task(id, "Cancelled").reason == "cancelled"
    wait_until(lambda: podman.containers() == [], 10.0, "the container is removed")
