"""Tasks in containers of a real Docker of our own: the life of a task over Docker's API instead of podman's."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phalanx.errors import PhalanxError
from phalanx.runner.containers.runtime import DOCKER
from phalanx.runner.keeper import lookup, service
from tests.e2e.test_containers import MIB, ended, processes, submit, up
from tests.support.docker import Docker, a_docker, why_not
from tests.support.podman import IMAGE
from tests.support.real_cluster import RealCluster
from tests.support.terminal import run_phalanx
from tests.support.waiting import wait_until

LEASE = 8.0
pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "never")


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Docker]:
    with a_docker(tmp_path_factory.mktemp("docker")) as docker:
        docker.busybox()
        yield docker


@pytest.fixture(scope="module")
def cluster(docker: Docker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    folder = tmp_path_factory.mktemp("containers")
    (folder / "data").mkdir()
    (folder / "data/seen").write_text("seen\n")
    cluster = RealCluster(folder, lost_after_s=LEASE, settings={"coordinator.breaker_failures": 0})
    cluster.node_settings = {
        "n1": {
            "runner.pretend": None,
            "runner.container_socket": str(docker.socket),
            "runner.container_mounts": str(folder / "data"),
            "runner.pids_max": 40,
        }
    }
    try:
        cluster.start({"n1": "real"})
        yield cluster
    finally:
        docker.remove_all()
        cluster.stop()


def test_output_exit_code_environment_and_rights(cluster: RealCluster, docker: Docker):
    assert cluster.client.node("n1").containers.startswith("docker ")
    script = (
        "echo out; echo err >&2; echo $PHALANX_NODE $GREETING; pwd; grep CapBnd /proc/self/status; exit 7"
    )
    id = submit(cluster, script, env={"GREETING": "hello"}, cwd="/data", split_output=True)
    view = cluster.wait_task(id, "Completed", "Failed")
    assert (view.reason, view.exit_code) == ("exited", 7), view.message
    assert cluster.output(id) == "out\nn1 hello\n/data\nCapBnd:\t00000000000004fb\n"
    assert cluster.output(id, "stderr") == "err\n"
    assert docker.containers() == []


def test_mounts_and_result(cluster: RealCluster):
    script = "cat /mnt/seen; touch /mnt/new 2>/dev/null || echo ro; echo 42 > $PHALANX_RESULT"
    id = submit(cluster, script, mounts=[f"{cluster.folder}/data:/mnt:ro"])
    assert cluster.wait_task(id, "Completed", "Failed").status == "Completed", cluster.output(id)
    assert cluster.client.task(id).result == 42
    assert cluster.output(id) == "seen\nro\n"


def test_standard_input_reaches_it_and_ends(cluster: RealCluster):
    data = os.urandom(MIB)
    run = ("run", "-c", "0", "--image", IMAGE, "--", "/bin/sh", "-c", "cat | sha256sum")
    done = run_phalanx(cluster, *run, stdin=data)
    assert done.stdout.split()[:1] == [hashlib.sha256(data).hexdigest().encode()], done.stderr


def test_what_ignores_sigterm_and_leaves_its_group_is_gone_with_its_tree(
    cluster: RealCluster, docker: Docker
):
    script = "trap '' TERM; (trap '' TERM; sleep 97761 & sleep 97762) & while true; do sleep 97763; done"
    id = up(cluster, script, grace="1s")
    wait_until(lambda: processes("97761") and processes("97763"), 10.0, "its tree is there")
    cluster.client.cancel(id)
    cluster.wait_task(id, "Cancelled")
    wait_until(lambda: not any(map(processes, ("97761", "97762", "97763"))), 10.0, "its tree is gone")
    wait_until(lambda: docker.containers() == [], 10.0, "the container is removed")


def test_memory_beyond_the_limit_is_reported_with_limit_and_peak(cluster: RealCluster):
    reason, message, _ = ended(cluster, "x=a; while true; do x=$x$x; done", memory=16 * MIB)
    assert (reason, "its limit of 16 MiB" in message, "(peak " in message) == ("oom", True, True), message


def test_exec_is_inside_and_a_cancelled_first_process_without_handler_ends(
    cluster: RealCluster, docker: Docker
):
    id = up(cluster, "exec sleep 1000", grace="30s")
    done = cluster.client.exec(id, ["/bin/sh", "-c", "cat /proc/1/cmdline; echo; echo $PHALANX_NODE"])
    lines = done.stdout.decode().splitlines()
    assert (lines[0].split("\0")[:2], lines[1]) == (["sleep", "1000"], "n1"), done.stderr
    cluster.client.cancel(id)
    assert cluster.wait_task(id, "Cancelled").reason == "cancelled"
    wait_until(lambda: docker.containers() == [], 10.0, "the container is removed")


def test_what_docker_cannot_do_is_named(cluster: RealCluster, docker: Docker):
    reason, message, _ = ended(cluster, "true", "127.0.0.1:1/refused")
    assert (reason, "refused" in message) == ("refused", True), message
    with pytest.raises(PhalanxError) as refused:
        submit(cluster, "true", f"rootfs:{docker.folder}/busybox", targets=["n1"])
    assert refused.value.reason == "NoContainers"


def test_mounts_for_users_with_accounts_are_refused_before_they_are_placed(
    cluster: RealCluster, docker: Docker
):
    state = Path(tempfile.mkdtemp(prefix="phalanx-docker-"))  # unlike those of pytest, others can reach it
    state.chmod(0o711)
    cluster.node_settings["n2"] = {
        **cluster.node_settings["n1"],
        "runner.state_dir": str(state),
        "runner.accounts": "admin=daemon",
    }
    try:
        cluster.start_runner("n2", "real")
        cluster.wait_online("n2")
        wanted: dict[str, Any] = {"mounts": [f"{cluster.folder}/data:/mnt"]}
        with pytest.raises(PhalanxError, match="only podman mounts files for users with accounts") as refused:
            submit(cluster, "true", targets=["n2"], **wanted)
        assert refused.value.reason == "NoContainers"
        id = submit(cluster, "true", **wanted)
        assert cluster.wait_task(id, "Completed", "Failed").node == "n1"
    finally:
        cluster.kill("n2", signal.SIGTERM)
        shutil.rmtree(state)


def test_a_runner_that_is_killed_finds_its_container_again(cluster: RealCluster, docker: Docker):
    id = up(cluster, "sleep 4; echo down; exit 9")
    cluster.kill("n1")
    cluster.start_runner("n1")
    view = cluster.wait_task(id, "Completed", "Failed", within_s=30.0)
    assert (view.exit_code, view.attempt, cluster.output(id)) == (9, 1, "up\ndown\n")
    wait_until(lambda: docker.containers() == [], 10.0, "the container is removed")


def test_what_runner_and_keeper_left_ends_with_the_lease_and_is_removed_alone(
    cluster: RealCluster, docker: Docker
):
    body = {"Image": IMAGE, "Entrypoint": ["/bin/true"], "Labels": {"io.phalanx.node": "another"}}
    docker.runtime.call("POST", f"{DOCKER}/containers/create?name=another", body)
    id = up(cluster, "trap '' TERM; while true; do sleep 96543; done")
    assert len(docker.containers()) == 2
    keepers = lookup.keepers(str(cluster.folder / "n1"), service.LOCK)
    cluster.kill("n1")
    for pid in keepers:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not processes("96543"), LEASE + 10.0, "what it ran is gone")
    cluster.client.cancel(id)  # or it would run again
    cluster.start_runner("n1")
    wait_until(lambda: docker.containers() == ["another"], 20.0, "the next runner removes what is its own")
    docker.remove_all()
