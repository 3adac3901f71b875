"""What survives: processes killed with -9, nodes that fall silent, runners that report less than they should."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest

from phalanx.api.schema.jobs import TaskView
from phalanx.errors import PhalanxError, Unavailable
from tests.e2e.silent_runner import SilentRunner
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.waiting import wait_until

LONG = ["/bin/sleep", "300"]
KILLS = int(os.environ.get("KILLS", "20"))  # `make soak` has 50


def test_case_19_a_killed_runner_loses_neither_the_task_nor_its_exit_code(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    waits = f"until test -e {gate}; do sleep 0.05; done; exit 7"
    with a_real_cluster(tmp_path / "c", lost_after_s=20.0) as cluster:
        id = cluster.client.submit(targets=["n1"], shell=waits, max_retries=0).task_ids[0]
        cluster.wait_task(id, "Running")
        cluster.kill("n1")
        wait_until(lambda: cluster.client.node("n1").status == "Unreachable", 2.0)
        cluster.start_runner("n1")
        cluster.wait_online("n1")
        assert cluster.client.task(id).status == "Running"
        gate.touch()
        task = cluster.wait_task(id, "Failed")
        assert (task.exit_code, task.attempt, task.losses) == (7, 1, 0)


def test_case_19_an_exit_while_the_runner_is_dead_is_told_truly(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    waits = f"until test -e {gate}; do sleep 0.05; done; echo bye; exit 9"
    with a_real_cluster(tmp_path / "c", lost_after_s=20.0) as cluster:
        id = cluster.client.submit(targets=["n2"], shell=waits, max_retries=0).task_ids[0]
        cluster.wait_task(id, "Running")
        cluster.kill("n2")
        gate.touch()
        wait_until(lambda: _output_file(cluster.folder / "n2") == b"bye\n")
        cluster.start_runner("n2")
        task = cluster.wait_task(id, "Failed")
        assert (task.exit_code, task.reason, task.attempt) == (9, "exited", 1)
        assert cluster.output(id) == "bye\n"


def test_a_restarted_coordinator_keeps_running_tasks_and_raises_its_epoch(tmp_path: Path) -> None:
    with a_real_cluster(tmp_path, lost_after_s=20.0) as cluster:
        id = cluster.client.submit(targets=["n1"], shell="echo $$; exec sleep 300").task_ids[0]
        cluster.wait_task(id, "Running")
        pid = wait_until(lambda: cluster.output(id).strip())
        epoch = cluster.client.cluster().epoch
        cluster.kill("coordinator")
        cluster.start_coordinator()
        cluster.wait_online("n1", "n2")
        assert cluster.client.cluster().epoch > epoch
        assert cluster.client.task(id).status == "Running"
        os.kill(int(pid), 0)


def test_case_17_a_runner_that_never_confirms_loses_the_task(tmp_path: Path) -> None:
    with (
        a_real_cluster(tmp_path, nodes={}, heartbeat_s=0.2, lost_after_s=5.0) as cluster,
        SilentRunner(cluster, "ghost"),
    ):
        cluster.wait_online("ghost")
        id = cluster.client.submit(targets=["ghost"], command=["/bin/true"]).task_ids[0]
        wait_until(lambda: _told(cluster, id, "did not confirm start"), 10.0)
        assert cluster.client.task(id).losses >= 1


def test_case_18_a_silent_node_is_lost_with_its_tasks_paused_ones_too(tmp_path: Path) -> None:
    with a_real_cluster(tmp_path, heartbeat_s=0.3, lost_after_s=2.0) as cluster:
        ids = [cluster.client.submit(targets=["n2"], command=LONG).task_ids[0] for _ in range(2)]
        for id in ids:
            cluster.wait_task(id, "Running")
        cluster.client.pause(ids[1])
        cluster.kill("n2", signal.SIGSTOP)
        wait_until(lambda: cluster.client.node("n2").status == "Offline", 10.0)
        tasks = [cluster.client.task(id) for id in ids]
        assert [(task.status, task.losses) for task in tasks] == [("Pending", 1)] * 2
        cluster.kill("n2", signal.SIGCONT)
        for id in ids:
            assert cluster.wait_task(id, "Running").attempt == 2


def test_case_21_what_runs_there_but_is_over_here_is_stopped(tmp_path: Path) -> None:
    with a_real_cluster(tmp_path, lost_after_s=20.0) as cluster:
        id = cluster.client.submit(targets=["n1"], shell="echo $$; exec sleep 300").task_ids[0]
        cluster.wait_task(id, "Running")
        pid = int(wait_until(lambda: cluster.output(id).strip()))
        cluster.kill("n1")
        cluster.client.cancel(id)
        assert _alive(pid)
        cluster.start_runner("n1")
        wait_until(lambda: not _alive(pid), what="the process is stopped")
        wait_until(lambda: cluster.client.node("n1").cores_free == 8)


@pytest.mark.timeout(300)
def test_kills_during_an_array(tmp_path: Path) -> None:
    """Every accepted task ends exactly once, exit codes are true, nothing leaks."""
    chance = random.Random(20261115)
    seen = tmp_path / "seen"
    seen.mkdir()
    # A task writes its name once it has done its work, and exits with its index modulo 5.
    work = (
        "sleep 0.$((PHALANX_ARRAY_INDEX % 4)); "
        'echo $PHALANX_ATTEMPT >> "$SEEN/$PHALANX_ARRAY_INDEX"; '
        "exit $((PHALANX_ARRAY_INDEX % 5))"
    )
    nodes = {"n1": "cpus=3,ram=8GiB", "n2": "cpus=3,ram=8GiB"}
    with a_real_cluster(tmp_path / "c", nodes, heartbeat_s=0.5, lost_after_s=60.0) as cluster:
        reply = cluster.client.submit(
            shell=work, array=f"1-{6 * KILLS}", env={"SEEN": str(seen)}, max_retries=0, request_id="kills"
        )
        job = reply.task_ids[0]
        for _ in range(KILLS):
            _kill_something(cluster, chance, job)
        cluster.wait_online("n1", "n2")
        wait_until(lambda: _is_over(cluster, job), 120.0, "the array is over")
        tasks = _all_tasks(cluster, job)
        assert len(tasks) == 6 * KILLS
        for task in tasks:
            assert task.index is not None
            expected = task.index % 5
            assert (task.status, task.exit_code) == ("Completed" if expected == 0 else "Failed", expected), (
                task
            )
            attempts = (seen / str(task.index)).read_text().split()
            assert attempts.count(str(task.attempt)) == 1, "the attempt that counts ran once"
        wait_until(lambda: all(node.cores_free == 3 for node in cluster.client.nodes()), what="nothing leaks")
        assert not _task_processes(job)


def _kill_something(cluster: RealCluster, chance: random.Random, job: str) -> None:
    """One kill -9 at a random moment: of the coordinator, of a runner, or of both; then start it again."""
    victims = chance.choice([["coordinator"], ["n1"], ["n2"], ["coordinator", "n1"], ["coordinator", "n2"]])
    done = _progress(cluster, job)
    pause = chance.choice([0, 0, 1, 3, 6])
    wait_until(lambda: _progress(cluster, job) >= done + pause or _is_over(cluster, job), 60.0, "progress")
    for name in victims:
        cluster.kill(name)
    for name in victims:
        if name == "coordinator":
            cluster.start_coordinator()
        else:
            cluster.start_runner(name)


def _progress(cluster: RealCluster, job: str) -> int:
    try:
        counts = cluster.client.job(job).counts
    except PhalanxError:
        return -1
    return counts.completed + counts.failed


def _is_over(cluster: RealCluster, job: str) -> bool:
    return _progress(cluster, job) == 6 * KILLS


def _all_tasks(cluster: RealCluster, job: str) -> list[TaskView]:
    cursor: str | None = None
    found: list[TaskView] = []
    while True:
        page = cluster.client.tasks(job, cursor=cursor, limit=100)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found


def _told(cluster: RealCluster, id: str, words: str) -> bool:
    try:
        return any(words in line.text for line in cluster.client.story(id).items)
    except Unavailable:
        return False


def _output_file(folder: Path) -> bytes:
    files = [path for path in (folder / "logs").rglob("*") if path.is_file() and path.stat().st_size]
    return files[0].read_bytes() if files else b""


def _alive(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def _task_processes(job: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if f"PHALANX_JOB_ID={job}".encode() in (entry / "environ").read_bytes():
                    found.append(entry.name)
            except OSError:
                continue
    return found
