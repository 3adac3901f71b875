"""`phalanx alloc`, end to end: resources that are held for a shell or a command, and given back."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.terminal import a_terminal, command_environment, phalanx_words, run_phalanx
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    nodes = {"n1": "cpus=8,gpus=4,type=h100,memory=80GiB,ram=16GiB"}
    with a_real_cluster(tmp_path_factory.mktemp("alloc"), nodes) as found:
        yield found


def free_gpus(cluster: RealCluster) -> int:
    return sum(device.task is None for device in cluster.client.node("n1").devices)


def test_a_command_runs_in_the_allocation_which_is_then_given_back(cluster: RealCluster):
    done = run_phalanx(
        cluster, "alloc", "--gpus", "2", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exit 5"
    )
    assert done.returncode == 5, done.stderr
    assert len(done.stdout.decode().strip().split(",")) == 2
    assert b"on n1" in done.stderr
    wait_until(lambda: free_gpus(cluster) == 4, what="the GPUs are free again")


def test_phalanx_in_an_allocation_has_the_token_of_its_user(cluster: RealCluster):
    python = sys.executable
    done = run_phalanx(cluster, "alloc", "-n", "mine", "--", python, "-m", "phalanx", "ps", "-o", "name")
    assert (done.returncode, len(done.stdout.split())) == (0, 1), done.stderr


def test_a_shell_in_a_terminal(cluster: RealCluster):
    with a_terminal(cluster, "alloc", "--gpus", "3") as terminal:
        terminal.expect(r"allocated \S+ on n1")
        terminal.expect(r"[#$] ")
        assert free_gpus(cluster) == 1
        terminal.type("echo gpus=$PHALANX_GPUS_PER_NODE; exit 3\n")
        terminal.expect("gpus=3")
        assert terminal.exit_code() == 3
    wait_until(lambda: free_gpus(cluster) == 4, what="the GPUs are free again")


def test_it_waits_for_room_and_an_interrupt_gives_up_its_place(cluster: RealCluster):
    holder = cluster.client.submit(command=["sleep", "1000"], gpus=4).task_ids[0]
    cluster.wait_task(holder, "Running")
    process = subprocess.Popen(
        phalanx_words(cluster, "alloc", "--gpus", "1", "--name", "waiting", "--", "true"),
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env=command_environment(cluster),
    )
    assert process.stderr is not None
    assert b"waits" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130
    assert [job.status for job in cluster.client.jobs(name="waiting").items] == ["Cancelled"]
    cluster.client.cancel(holder)


def test_without_a_shell_it_is_held_until_its_time_is_over(cluster: RealCluster):
    done = run_phalanx(cluster, "alloc", "--gpus", "1", "--no-shell", "--time", "4s")
    assert done.returncode == 0, done.stderr
    id = done.stdout.decode().strip()
    assert cluster.client.task(id).status == "Running"
    assert run_phalanx(cluster, "exec", id, "--", "true").returncode == 0
    cluster.wait_task(id, "Failed", "Completed", "Cancelled", within_s=30)


def test_it_is_held_while_its_client_lives(cluster: RealCluster):
    done = run_phalanx(cluster, "alloc", "--keep", "4s", "--", "sh", "-c", "sleep 9; echo held")
    assert (done.returncode, done.stdout) == (0, b"held\n"), done.stderr
    assert re.search(rb"^gave back \d+$", done.stderr, re.MULTILINE), done.stderr


def test_a_client_that_is_killed_holds_nothing_for_long(cluster: RealCluster):
    process = subprocess.Popen(
        phalanx_words(
            cluster, "alloc", "--gpus", "1", "--name", "left", "--keep", "4s", "--", "sleep", "1000"
        ),
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env=command_environment(cluster),
    )
    assert process.stderr is not None
    assert b"allocated" in process.stderr.readline()
    process.kill()
    process.communicate(timeout=10)
    (job,) = cluster.client.jobs(name="left").items
    cluster.wait_task(job.id, "Completed", within_s=40)


def test_several_tasks_are_refused(cluster: RealCluster):
    refused = run_phalanx(cluster, "alloc", "--tasks", "2")
    assert (refused.returncode, b"one task" in refused.stderr) == (2, True)
