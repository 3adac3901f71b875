"""Attached runs: no output is lost however slow its reader, and a task whose reader is gone goes on."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from phalanx.api.schema.jobs import TaskView
from tests.support.real_cluster import RealCluster
from tests.support.terminal import command_environment, phalanx_words
from tests.support.waiting import wait_until

LINES = 2_000_000
OUTPUT = "".join(f"{number}\n" for number in range(1, LINES + 1)).encode()  # 15 MiB
LOG_BYTES = 4 << 20
MEMORY_BYTES = 48 << 20  # that coordinator and runner may grow by


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    cluster = RealCluster(tmp_path_factory.mktemp("attached"), heartbeat_s=0.5)
    cluster.node_settings = {"n1": {"runner.log_max_bytes": LOG_BYTES}}
    try:
        cluster.start({"n1": "cpus=8,gpus=2,ram=8GiB"})
        yield cluster
    finally:
        cluster.stop()


@contextmanager
def attached(
    cluster: RealCluster, *words: str, stdin: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[bytes]]:
    """`phalanx run`, whose output nobody reads yet."""
    process = subprocess.Popen(
        phalanx_words(cluster, "run", *words),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=command_environment(cluster),
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=10)


def task_of(cluster: RealCluster, name: str) -> TaskView | None:
    found = cluster.client.jobs(name=name).items
    return cluster.client.task(found[0].id) if found else None


def wait_unread(cluster: RealCluster, name: str) -> TaskView:
    """The task, once it is stopped for its reader."""

    def unread() -> TaskView | None:
        task = task_of(cluster, name)
        return task if task is not None and task.unread else None

    return wait_until(unread, 30.0, f"{name} waits for its reader")


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def write_then_exit(flag: Path) -> tuple[str, ...]:
    return "sh", "-c", f"seq 1 {LINES}; touch {flag}; exit 5"


def test_a_task_waits_for_a_frozen_client_and_all_of_its_output_arrives(cluster: RealCluster, tmp_path: Path):
    flag = tmp_path / "flag"
    before = {name: resident_bytes(process.pid) for name, process in cluster.processes.items()}
    with attached(cluster, "-n", "frozen", "--", *write_then_exit(flag)) as client:
        task = wait_unread(cluster, "frozen")
        client.send_signal(signal.SIGSTOP)
        reply = cluster.client.why(task.id)
        assert (reply.status, reply.dominant.code) == ("Running", "OutputUnread")
        (job,) = cluster.client.jobs(name="frozen").items
        assert (job.unread, job.paused, task.paused) == (1, 0, False)
        for name, process in cluster.processes.items():
            assert resident_bytes(process.pid) < before[name] + MEMORY_BYTES
        assert not flag.exists()
        client.send_signal(signal.SIGCONT)
        out, err = client.communicate(timeout=60)
    assert out == OUTPUT
    assert client.returncode == 5, err


def test_nothing_is_lost_when_the_coordinator_is_killed_while_the_task_waits(
    cluster: RealCluster, tmp_path: Path
):
    with attached(cluster, "-n", "failover", "--", *write_then_exit(tmp_path / "flag")) as client:
        wait_unread(cluster, "failover")
        cluster.kill("coordinator", signal.SIGKILL)
        cluster.start_coordinator()
        out, err = client.communicate(timeout=60)
    assert out == OUTPUT
    assert client.returncode == 5, err


def test_a_task_whose_client_was_killed_goes_on(cluster: RealCluster, tmp_path: Path):
    flag = tmp_path / "flag"
    with attached(cluster, "-n", "killed", "--", *write_then_exit(flag)) as client:
        task = wait_unread(cluster, "killed")
        client.kill()
        ended = cluster.wait_task(task.id, "Failed", within_s=30.0)
    assert flag.exists()
    assert (ended.exit_code, ended.attempt) == (5, 1)
    story = [line.event for line in cluster.client.story(task.id).items]
    assert "TaskPaused" not in story


def test_a_stopped_task_can_be_paused_resumed_and_cancelled(cluster: RealCluster, tmp_path: Path):
    flag = tmp_path / "flag"
    with attached(cluster, "-n", "paused", "--", *write_then_exit(flag)) as client:
        task = wait_unread(cluster, "paused")
        cluster.client.pause(task.id)
        cluster.client.resume(task.id)
        wait_unread(cluster, "paused")
        cluster.client.cancel(task.id)
        out, _ = client.communicate(timeout=60)
    assert client.returncode == 1
    assert not flag.exists()
    assert OUTPUT.startswith(out)
