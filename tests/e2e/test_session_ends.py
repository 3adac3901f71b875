"""How sessions end without their command's end: each party killed or stopped, a token revoked, nothing happening."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import phalanx
from phalanx.errors import Unauthorized, Unavailable
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.terminal import command_environment, phalanx_words, run_phalanx
from tests.support.waiting import wait_until

SCRIPT = "trap '' HUP; echo $$; while :; do sleep 0.1; done"
NODE = {"n1": "cpus=4,ram=4GiB"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RealCluster]:
    with a_real_cluster(tmp_path, NODE, settings={"coordinator.session_idle_s": 3600.0}) as found:
        yield found


def a_session(cluster: RealCluster) -> tuple[str, subprocess.Popen[bytes], int]:
    """A task, `phalanx exec` beside it, and the pid of what that runs."""
    id = cluster.client.submit(command=["sleep", "1000"]).task_ids[0]
    cluster.wait_task(id, "Running")
    process = subprocess.Popen(
        phalanx_words(cluster, "exec", id, "--", "sh", "-c", SCRIPT),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env=command_environment(cluster),
    )
    assert process.stdout is not None
    return id, process, int(process.stdout.readline())


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize(
    ("number", "words"), [(signal.SIGKILL, b"was cut"), (signal.SIGTERM, b"coordinator stops")]
)
def test_a_coordinator_that_ends_is_said_and_its_sessions_end(
    cluster: RealCluster, number: int, words: bytes
):
    id, process, pid = a_session(cluster)
    cluster.kill("coordinator", number)
    _, err = process.communicate(timeout=20)
    assert process.returncode == Unavailable.exit_code
    assert words in err
    wait_until(lambda: is_gone(pid), what="its command is gone")
    cluster.start_coordinator()
    wait_until(cluster.is_ready, 60, "the coordinator is back")
    cluster.wait_task(id, "Running", within_s=30)
    cluster.wait_online("n1")
    wait_until(
        lambda: run_phalanx(cluster, "exec", id, "--", "true").returncode == 0, 30, "another one is opened"
    )


def test_a_python_client_gets_the_reason(cluster: RealCluster):
    id = cluster.client.submit(command=["sleep", "1000"]).task_ids[0]
    cluster.wait_task(id, "Running")
    with cluster.client.exec_session(id, ["sh", "-c", SCRIPT]) as session:
        assert session.read() is not None
        cluster.kill("coordinator")
        with pytest.raises(Unavailable) as cut:
            session.wait()
    assert cut.value.reason == "SessionCut"


def test_a_runner_that_is_killed_is_said_and_its_commands_end(cluster: RealCluster):
    id, process, pid = a_session(cluster)
    cluster.kill("n1")
    _, err = process.communicate(timeout=20)
    assert process.returncode == Unavailable.exit_code
    assert b"connection to the node was lost" in err
    wait_until(lambda: is_gone(pid), what="its command is gone")
    away = run_phalanx(cluster, "exec", id, "--", "true")
    assert (away.returncode, b"n1 is not connected" in away.stderr) == (Unavailable.exit_code, True)
    cluster.start_runner("n1")
    cluster.wait_online("n1")
    wait_until(
        lambda: run_phalanx(cluster, "exec", id, "--", "true").returncode == 0,
        30,
        "the adopted task is entered",
    )
    done = cluster.client.exec(id, ["sh", "-c", "echo $PHALANX_TASK_ID"])
    assert done.stdout.decode().strip() == id


def test_a_revoked_token_ends_its_sessions(cluster: RealCluster):
    made = cluster.client.create_token(phalanx.TokenRequest(name="bob", role="operator"))
    id = cluster.client.submit(command=["sleep", "1000"]).task_ids[0]
    cluster.wait_task(id, "Running")
    with (
        phalanx.Client(cluster.address("coordinator"), made.token) as bob,
        bob.exec_session(id, ["sh", "-c", SCRIPT]) as session,
    ):
        piece = session.read()
        assert piece is not None
        pid = int(piece[1])
        cluster.client.revoke_token(made.record.id)
        with pytest.raises(Unauthorized, match="no longer accepted"):
            session.wait()
    wait_until(lambda: is_gone(pid), what="its command is gone")


def test_a_session_in_which_nothing_happens_is_ended(tmp_path: Path):
    with a_real_cluster(tmp_path, NODE, settings={"coordinator.session_idle_s": 1.0}) as cluster:
        _, process, pid = a_session(cluster)
        _, err = process.communicate(timeout=20)
        assert process.returncode == Unavailable.exit_code
        assert b"nothing happened in this session for 1 s" in err
        wait_until(lambda: is_gone(pid), what="its command is gone")


def test_a_standby_names_the_leader_and_a_failover_ends_the_session_with_words(tmp_path: Path):
    with a_real_cluster(tmp_path, NODE, coordinators=("c1", "c2")) as cluster:
        id, process, pid = a_session(cluster)
        cluster.kill(cluster.leader())
        _, err = process.communicate(timeout=20)
        assert process.returncode == Unavailable.exit_code
        assert b"was cut" in err
        wait_until(lambda: is_gone(pid), what="its command is gone")
        cluster.leader(within_s=30)
        wait_until(
            lambda: run_phalanx(cluster, "exec", id, "--", "true").returncode == 0,
            40,
            "the next leader opens one",
        )
