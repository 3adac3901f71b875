"""Attached runs: no output and no input is lost, what signals do, and what becomes of a task without its client."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from phalanx.api.schema.jobs import TaskView
from tests.support.forked import ForkedCommand
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.terminal import a_terminal, command_environment, phalanx_words, run_phalanx
from tests.support.waiting import wait_until

LINES = 1_500_000
OUTPUT = "".join(f"{number}\n" for number in range(1, LINES + 1)).encode()  # 11 MiB
LOG_BYTES = 4 << 20
MEMORY_BYTES = 48 << 20  # that coordinator and runner may grow by


class Abandoned(NamedTuple):
    """Two tasks whose clients were killed: one waits for its reader, one reads its input."""

    writer: str
    writer_flag: Path
    reader: str


ABANDONED: dict[Path, Abandoned] = {}  # by the folder of their cluster


@pytest.fixture(scope="module")
def abandoned(cluster: RealCluster) -> Abandoned:
    return ABANDONED[cluster.folder]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    cluster = RealCluster(tmp_path_factory.mktemp("attached"), heartbeat_s=0.5)
    cluster.node_settings = {name: {"runner.log_max_bytes": LOG_BYTES} for name in ("n1", "n2")}
    try:
        cluster.start({"n1": "cpus=8,gpus=2,ram=8GiB", "n2": "cpus=8,ram=8GiB"})
        # What becomes of these takes seconds, so they are begun before all tests.
        ABANDONED[cluster.folder] = abandon(cluster)
        yield cluster
    finally:
        cluster.stop()


@contextmanager
def attached(cluster: RealCluster, *words: str, stdin: int | None = None) -> Iterator[ForkedCommand]:
    """`phalanx run`, whose output nobody reads yet."""
    _, _, _, *spoken = phalanx_words(cluster, "run", *words)
    with Path(os.devnull).open("rb") as null:
        given = null.fileno() if stdin is None else stdin
        client = ForkedCommand(spoken, command_environment(cluster), given)
    try:
        yield client
    finally:
        client.process.kill()


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


def abandon(cluster: RealCluster) -> Abandoned:
    flag = cluster.folder / "flag"
    give, take = os.pipe()
    with (
        attached(cluster, "-n", "killed", "--", *write_then_exit(flag)) as writer,
        attached(
            cluster, "-n", "unfinished", "--nodes", "n2", "--", "sh", "-c", "wc -c", stdin=give
        ) as reader,
    ):
        os.close(give)
        os.write(take, b"half")
        written = wait_unread(cluster, "killed").id
        count = cluster.folder / "n2" / "inputs"
        wait_until(lambda: [path for path in count.glob("*") if path.stat().st_size], 20.0, "input came")
        writer.process.kill()
        reader.process.kill()
        os.close(take)
        task = task_of(cluster, "unfinished")
        assert task is not None
        return Abandoned(written, flag, task.id)


def write_then_exit(flag: Path) -> tuple[str, ...]:
    return "sh", "-c", f"seq 1 {LINES}; touch {flag}; exit 5"


def test_a_task_waits_for_a_frozen_client_and_all_of_its_output_arrives(cluster: RealCluster, tmp_path: Path):
    flag = tmp_path / "flag"
    before = {name: resident_bytes(process.pid) for name, process in cluster.processes.items()}
    with attached(cluster, "-n", "frozen", "--", *write_then_exit(flag)) as client:
        task = wait_unread(cluster, "frozen")
        client.process.send_signal(signal.SIGSTOP)
        reply = cluster.client.why(task.id)
        assert (reply.status, reply.dominant.code) == ("Running", "OutputUnread")
        (job,) = cluster.client.jobs(name="frozen").items
        assert (job.unread, job.paused, task.paused) == (1, 0, False)
        for name, process in cluster.processes.items():
            assert resident_bytes(process.pid) < before[name] + MEMORY_BYTES
        assert not flag.exists()
        client.process.send_signal(signal.SIGCONT)
        out, err = client.communicate(60)
    assert out == OUTPUT
    assert client.process.returncode == 5, err


def test_nothing_is_lost_when_the_coordinator_is_killed_while_the_task_waits(
    cluster: RealCluster, tmp_path: Path
):
    with attached(cluster, "-n", "failover", "--", *write_then_exit(tmp_path / "flag")) as client:
        wait_unread(cluster, "failover")
        cluster.kill("coordinator", signal.SIGKILL)
        cluster.start_coordinator()
        out, err = client.communicate(60)
    assert out == OUTPUT
    assert client.process.returncode == 5, err


def test_a_stopped_task_can_be_paused_resumed_and_cancelled(cluster: RealCluster, tmp_path: Path):
    flag = tmp_path / "flag"
    with attached(cluster, "-n", "paused", "--", *write_then_exit(flag)) as client:
        task = wait_unread(cluster, "paused")
        cluster.client.pause(task.id)
        cluster.client.resume(task.id)
        wait_unread(cluster, "paused")
        cluster.client.cancel(task.id)
        out, _ = client.communicate(60)
    assert client.process.returncode == 1
    assert not flag.exists()
    assert OUTPUT.startswith(out)


def test_standard_input_is_given_to_the_task_and_ends(cluster: RealCluster):
    assert run_phalanx(cluster, "run", "--", "cat", stdin=b"in\n").stdout == b"in\n"
    late = run_phalanx(cluster, "run", "--tasks", "2", "--", "sh", "-c", "sort /dev/stdin", stdin=b"b\na\n")
    assert late.stdout == b"0: a\n0: b\n", late.stderr


def test_input_passes_a_killed_runner_and_a_killed_coordinator_whole(
    cluster: RealCluster, abandoned: Abandoned, tmp_path: Path
):
    cluster.wait_task(
        abandoned.reader, "Completed"
    )  # a runner that is killed does not know that its client left
    flag, data = tmp_path / "flag", os.urandom(1 << 20) * 20
    (tmp_path / "data").write_bytes(data)
    before = {name: resident_bytes(process.pid) for name, process in cluster.processes.items()}
    wait_then_sum = f"until [ -e {flag} ]; do sleep 0.1; done; sha256sum"
    with subprocess.Popen(["cat", tmp_path / "data"], stdout=subprocess.PIPE) as source:
        assert source.stdout is not None
        with attached(
            cluster,
            "-n",
            "fed",
            "--nodes",
            "n1",
            "--",
            "sh",
            "-c",
            wait_then_sum,
            stdin=source.stdout.fileno(),
        ) as client:
            source.stdout.close()
            wait_until(lambda: any((cluster.folder / "n1" / "inputs").glob("*")), 20.0, "input is counted")
            for name, process in cluster.processes.items():
                assert resident_bytes(process.pid) < before[name] + MEMORY_BYTES
            cluster.kill("n1", signal.SIGKILL)
            cluster.start_runner("n1")
            cluster.kill("coordinator", signal.SIGKILL)
            cluster.start_coordinator()
            flag.touch()
            out, err = client.communicate(60)
    assert (client.process.returncode, out.split()[:1]) == (0, [hashlib.sha256(data).hexdigest().encode()]), (
        err
    )
    assert list((cluster.folder / "n1" / "inputs").iterdir()) == []


def test_a_second_attempt_has_the_input_from_its_beginning_or_not_at_all(
    cluster: RealCluster, tmp_path: Path
):
    def fail_once(name: str) -> tuple[str, ...]:
        flag = tmp_path / name
        return (
            "run",
            "--retries",
            "1",
            "--",
            "sh",
            "-c",
            f"wc -c; [ -e {flag} ] || {{ touch {flag}; exit 3; }}",
        )

    done = run_phalanx(cluster, *fail_once("small"), stdin=b"0123456789")
    assert (done.returncode, done.stdout.split()) == (0, [b"10", b"10"]), done.stderr
    done = run_phalanx(cluster, *fail_once("large"), stdin=bytes(3 << 20))
    assert (done.returncode, done.stdout.split()) == (1, [b"3145728"])
    assert b"attempt 2 cannot have its input: more than 1 MiB of it was read" in done.stderr


def test_an_attempt_on_another_node_is_read_and_has_its_input_when_the_first_is_lost(tmp_path: Path):
    flag, given = tmp_path / "flag", tmp_path / "given"
    given.write_bytes(b"0123456789")
    script = f"echo on $PHALANX_NODE; wc -c; until [ -e {flag} ]; do sleep 0.1; done; echo end"
    with (
        a_real_cluster(tmp_path, dict.fromkeys(("n1", "n2"), "cpus=4,ram=8GiB"), 0.5, 2.0) as cluster,
        given.open("rb") as data,
        attached(cluster, "-n", "moved", "--", "sh", "-c", script, stdin=data.fileno()) as client,
    ):
        task = wait_until(lambda: task_of(cluster, "moved"), 20.0, "it is there")
        wait_until(lambda: b"10" in b"".join(cluster.client.logs(task.id)), 20.0, "it has its input")
        lost = cluster.client.task(task.id).node
        assert lost is not None
        cluster.kill(lost, signal.SIGKILL)
        wait_until(lambda: cluster.client.task(task.id).attempt == 2, 20.0, "it is tried again")
        flag.touch()
        out, err = client.communicate(60)
    other = {"n1": "n2", "n2": "n1"}[lost]
    assert out.decode().split()[-4:] == ["on", other, "10", "end"], err
    assert client.process.returncode == 0


def test_a_terminal_is_told_of_an_eviction_gives_input_if_asked_and_cancels_with_ctrl_c(cluster: RealCluster):
    with a_terminal(cluster, "run", "-i", "-n", "typed", "--", "cat") as terminal:
        task = wait_until(lambda: task_of(cluster, "typed"), 20.0, "it is there")
        terminal.type("one\n")
        terminal.expect("one\r\none\r\n")  # as typed, and as shown
        cluster.client.evict(task.id)
        terminal.expect(r"attempt 1 was evicted at \d\d:\d\d:\d\d.*evicted by user admin")
        terminal.expect("attempt 2 on n. begins")
        terminal.expect("one\r\n")  # once more from the beginning
        terminal.type(b"\x03")
        terminal.expect("cancelled")
        assert terminal.exit_code() == 130
    assert cluster.wait_task(task.id, "Cancelled").attempt == 2


def test_a_closed_terminal_cancels(cluster: RealCluster):
    with a_terminal(
        cluster, "run", "-n", "closed", "--", "sh", "-c", "cat; echo begun; exec sleep 600"
    ) as terminal:
        terminal.expect("begun")  # it reads nothing from a terminal unless asked
        terminal.close()
        assert terminal.exit_code() == 128 + signal.SIGHUP
        task = task_of(cluster, "closed")
        assert task is not None
        cluster.wait_task(task.id, "Cancelled")


def test_a_task_whose_client_was_killed_goes_on(cluster: RealCluster, abandoned: Abandoned):
    ended = cluster.wait_task(abandoned.writer, "Failed", within_s=30.0)
    assert abandoned.writer_flag.exists()
    assert (ended.exit_code, ended.attempt) == (5, 1)
    story = [line.event for line in cluster.client.story(abandoned.writer).items]
    assert "TaskPaused" not in story


def test_the_input_of_a_task_whose_client_was_killed_ends(cluster: RealCluster, abandoned: Abandoned):
    cluster.wait_task(abandoned.reader, "Completed", within_s=30.0)
    assert cluster.output(abandoned.reader) == "4\n"
