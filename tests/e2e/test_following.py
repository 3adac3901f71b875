"""Commands and clients that survive the end of the leader: no output and no exit code is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from phalanx.api.schema.jobs import TaskView
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.waiting import wait_until

NAMES = ("a", "b", "c")
NODE = {"n1": "cpus=4,ram=8GiB"}
# Writes a line, waits until a file appears, writes another, and ends with its own exit code.
SCRIPT = 'i=0; while [ ! -e "$0" ]; do i=$((i+1)); echo line $i; sleep 0.1; done; echo the end; exit 7'


@contextmanager
def three(folder: Path) -> Iterator[RealCluster]:
    settings: dict[str, object] = {"coordinator.lease_s": 2}
    with a_real_cluster(folder, NODE, coordinators=NAMES, settings=settings) as cluster:
        yield cluster


def begin(cluster: RealCluster, *words: str) -> subprocess.Popen[bytes]:
    """A command of the command line that knows all three."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PHALANX_", "KRISHIV_"))}
    env |= {
        "XDG_CONFIG_HOME": str(cluster.folder / "none"),
        "PHALANX_ADDRESS": ",".join(cluster.address(name) for name in NAMES),
        "PHALANX_TOKEN_FILE": str(cluster.folder / "token"),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "phalanx", *words],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )


def a_running_task(cluster: RealCluster) -> TaskView:
    def running() -> TaskView | None:
        found = cluster.client.jobs(status="Running").items
        return cluster.client.task(found[0].id) if found else None

    return wait_until(running, 20.0, "a task runs")


def depose(cluster: RealCluster, number: int) -> str:
    """End the leader, or freeze it, and wait until another leads."""
    before = cluster.leader()
    cluster.kill(before, number)
    return wait_until(
        lambda: next((n for n in NAMES if n != before and cluster.status_of(n, "/leaderz") == 200), None),
        20.0,
    )


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_run_shows_all_output_and_the_exit_code_though_the_leader_is_gone(tmp_path: Path, number: int):
    with three(tmp_path) as cluster:
        flag = tmp_path / "flag"
        command = begin(cluster, "run", "--", "sh", "-c", SCRIPT, str(flag))
        a_running_task(cluster)
        depose(cluster, number)
        flag.touch()
        out, err = command.communicate(timeout=60)
        assert command.returncode == 7, err
        lines = out.decode().splitlines()
        assert lines[-1] == "the end"
        assert lines[:-1] == [f"line {i}" for i in range(1, len(lines))]


def test_wait_and_logs_go_on_with_the_next_leader(tmp_path: Path):
    with three(tmp_path) as cluster:
        flag = tmp_path / "flag"
        id = cluster.client.submit(command=["sh", "-c", SCRIPT, str(flag)], max_retries=0).task_ids[0]
        cluster.wait_task(id, "Running")
        with begin(cluster, "wait", id) as waiting, begin(cluster, "logs", "-f", id) as logs:
            assert logs.stdout is not None
            lines = [logs.stdout.readline()]
            depose(cluster, signal.SIGKILL)
            flag.touch()
            assert waiting.wait(60) == 7
            lines += logs.stdout.readlines()
        assert lines == [*(b"line %d\n" % i for i in range(1, len(lines))), b"the end\n"]


def test_a_submit_in_the_vacancy_is_accepted_once(tmp_path: Path):
    with three(tmp_path) as cluster:
        cluster.kill(cluster.leader(), signal.SIGKILL)
        command = begin(cluster, "submit", "--wait", "--", "true")
        _, err = command.communicate(timeout=60)
        assert command.returncode == 0, err
        assert len(cluster.client.jobs().items) == 1


def test_a_watch_sees_every_event_once_across_two_leaders(tmp_path: Path):
    with three(tmp_path) as cluster:
        seen: list[int] = []
        enough = threading.Event()

        def watch() -> None:
            for event in cluster.client.watch(after=0):
                seen.append(event.revision)
                if event.event == "AttemptEnded":
                    enough.set()
                    return

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        wait_until(lambda: len(seen) > 0, 20.0, "the watch has begun")
        depose(cluster, signal.SIGKILL)
        cluster.client.submit(command=["true"])
        assert enough.wait(60)
        assert seen == sorted(set(seen))


def test_a_runner_joins_the_next_leader_within_a_second_or_so(tmp_path: Path):
    with three(tmp_path) as cluster:
        after = depose(cluster, signal.SIGKILL)
        wait_until(
            lambda: (
                [each.status for each in cluster.clients[after].nodes()] == ["Online"]
                and _is_joined(cluster, after)
            ),
            5.0,
            "the runner has joined",
        )


def _is_joined(cluster: RealCluster, name: str) -> bool:
    epoch = cluster.clients[name].cluster().epoch
    return f"joined node='n1' epoch={epoch}" in (cluster.folder / "n1.log").read_text()
