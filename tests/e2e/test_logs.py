"""Logs are available: of every attempt, wherever it ran, in the order in which they were written."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

from phalanx import AsyncClient
from phalanx.cli.job_logs import JobLogs
from phalanx.cli.task_log import LogOptions, TaskLog
from phalanx.errors import BadRequest, NotFound, Unavailable
from tests.support.real_cluster import RealCluster, a_real_cluster, end_keeper
from tests.support.terminal import command_environment, phalanx_words
from tests.support.waiting import wait_until

WRITES = "for i in $(seq 300); do echo out $i; echo err $i >&2; done"
READERS_THAT_LEAVE = 6
IN_ORDER = "".join(f"out {number}\nerr {number}\n" for number in range(1, 301))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    nodes = {"n1": "cpus=2,ram=1GiB", "n2": "cpus=1,ram=1GiB"}
    with a_real_cluster(tmp_path_factory.mktemp("logs"), nodes) as cluster:
        yield cluster


def test_one_log_has_both_streams_in_their_order(cluster: RealCluster) -> None:
    """Also of the members of a gang, whose logs are made at the barrier."""
    alone = cluster.client.submit(command=["sh", "-c", WRITES]).task_ids[0]
    gang = cluster.client.submit(command=["sh", "-c", WRITES], tasks=2).task_ids[0]
    for id in (alone, f"{gang}.0", f"{gang}.1"):
        cluster.wait_task(id, "Completed")
        assert cluster.output(id) == IN_ORDER
        with pytest.raises(BadRequest, match="one log with both streams") as refused:
            cluster.output(id, "stderr")
        assert (refused.value.reason, "--split-output" in refused.value.hint) == ("OneLog", True)


def test_a_job_with_split_output_has_two(cluster: RealCluster) -> None:
    id = cluster.client.submit(command=["sh", "-c", WRITES], split_output=True).task_ids[0]
    cluster.wait_task(id, "Completed")
    for stream, word in (("stdout", "out"), ("stderr", "err")):
        assert cluster.output(id, stream) == "".join(f"{word} {number}\n" for number in range(1, 301))


def shown(cluster: RealCluster, id: str, said: list[bytes] | None = None, **options: object) -> list[str]:
    """The lines that `phalanx logs` shows, and what it says between them; `said` has them while they come."""
    said = [] if said is None else said
    log = TaskLog(cluster.client, id, LogOptions(**options), lambda text: said.append(text.encode() + b"\n"))  # type: ignore[arg-type]
    said.extend(log.all_attempts() if options.get("follow") else log.attempt(None))
    return b"".join(said).decode().splitlines()


def test_two_logs_are_shown_in_the_order_in_which_they_were_written(cluster: RealCluster) -> None:
    """Right to 50 ms: here the writes are 80 ms apart. Also by one who follows, and begins in the middle."""
    script = "for i in 1 2 3 4 5 6; do echo out $i; sleep 0.08; echo err $i >&2; sleep 0.08; done"
    script += "; until test -e $0; do sleep 0.05; done; echo out 7; sleep 0.08; echo err 7 >&2"
    go = cluster.folder / "go"
    id = cluster.client.submit(command=["sh", "-c", script, str(go)], split_output=True).task_ids[0]
    wait_until(lambda: "err 6" in cluster.output(id, "stderr"), what="the first six are there")
    lines: list[str] = []
    said: list[bytes] = []
    reader = Thread(target=lambda: lines.extend(shown(cluster, id, said, follow=True)))
    reader.start()
    wait_until(lambda: len(said) == 12, what="the follower shows them")
    go.touch()
    cluster.wait_task(id, "Completed")
    reader.join(20)
    expected = [f"{word} {number}" for number in range(1, 8) for word in ("out", "err")]
    assert shown(cluster, id) == expected
    assert lines == expected


def test_each_line_has_its_time_and_what_came_since_is_shown(cluster: RealCluster) -> None:
    script = "date +%s; sleep 1.2; date +%s; date +%s >&2; sleep 1.2; date +%s; sleep 0.4"
    id = cluster.client.submit(command=["sh", "-c", script]).task_ids[0]
    cluster.wait_task(id, "Completed")
    times = cluster.client.log_times(id)
    lines = cluster.output(id).splitlines(keepends=True)
    assert (times.attempt, times.split_output, times.rows[-1].stdout) == (1, False, sum(map(len, lines)))
    offset = 0
    for line in lines:
        at = next(row.at for row in times.rows if row.stdout > offset)
        assert abs(at - int(line)) <= 1.5, "right to 1 s; the task's own clock has whole seconds"
        offset += len(line)
    assert (
        shown(cluster, id, since=f"{times.now - times.rows[0].at - 0.1:.3f}s")
        == cluster.output(id).split()[1:]
    )
    assert len(shown(cluster, id, timestamps=True)[0]) == 26 + 10


def test_tasks_of_a_job_are_shown_with_their_index(cluster: RealCluster) -> None:
    job = cluster.client.submit(command=["sh", "-c", "echo $PHALANX_ARRAY_INDEX"], array="1-40").task_ids[0]
    cluster.client.wait(job, timeout=30)
    found = b"".join(JobLogs(cluster.client, job, None, LogOptions()).lines()).decode()
    assert found.splitlines() == [f"{number:>2}| {number}" for number in range(1, 41)]


def test_following_goes_on_over_an_eviction(cluster: RealCluster) -> None:
    script = 'echo "attempt $PHALANX_ATTEMPT"; [ "$PHALANX_ATTEMPT" = 2 ] || sleep 600'
    id = cluster.client.submit(command=["sh", "-c", script], max_retries=2).task_ids[0]
    cluster.wait_task(id, "Running")
    lines: list[str] = []
    said: list[list[bytes]] = [[], [], []]
    readers = [
        Thread(target=lambda: lines.extend(shown(cluster, id, said[0], follow=True))),
        Thread(target=lambda: said[1].extend(cluster.client.handle(id).follow())),
        Thread(target=lambda: asyncio.run(followed(cluster, id, said[2]))),
    ]
    for reader in readers:
        reader.start()
    wait_until(lambda: all(said), what="all have read what the first attempt has written")
    cluster.client.evict(id)
    node = cluster.wait_task(id, "Completed").node
    for reader in readers:
        reader.join(20)
    told = [line for line in lines if "has ended" not in line]
    assert told == ["attempt 1", f"--- attempt 2 on {node} ---", "attempt 2"]
    assert [b"".join(each).decode().splitlines() for each in said[1:]] == [told, told], "so do both clients"
    assert b"".join(cluster.client.logs(id, attempt=1, follow=True)) == b"attempt 1\n"


async def followed(cluster: RealCluster, id: str, said: list[bytes]) -> None:
    async with AsyncClient(cluster.address("coordinator"), cluster.user_token) as client:
        async for piece in client.logs(id, follow=True):
            said.append(piece)  # noqa: PERF401 (while it comes)


def test_following_goes_on_elsewhere_when_the_node_is_gone_and_closes_no_connection(tmp_path: Path) -> None:
    with a_real_cluster(tmp_path, heartbeat_s=0.3, lost_after_s=2.0) as cluster:
        script = 'echo "attempt $PHALANX_ATTEMPT"; [ "$PHALANX_ATTEMPT" = 2 ] || sleep 600'
        id = cluster.client.submit(command=["sh", "-c", script]).task_ids[0]
        first = cluster.wait_task(id, "Running").node
        assert first is not None
        lines: list[str] = []
        said: list[bytes] = []
        reader = Thread(target=lambda: lines.extend(shown(cluster, id, said, follow=True)))
        reader.start()
        wait_until(lambda: b"attempt 1" in b"".join(said), what="the follower has read")
        cluster.kill(first, signal.SIGSTOP)
        node = cluster.wait_task(id, "Completed").node
        assert node != first
        reader.join(20)
        assert not reader.is_alive()
        told = [line for line in lines if "has ended" not in line]
        assert told[0] == "attempt 1"
        assert f"--- attempt 1: the log cannot be read: node {first} is offline" in told[1]
        assert told[2:] == [f"--- attempt 2 on {node} ---", "attempt 2"]
        with pytest.raises(Unavailable) as refused:
            list(cluster.client.logs(id, attempt=1))
        assert refused.value.reason == "LogAway"


def test_the_log_of_an_earlier_attempt_is_read_where_it_ran(cluster: RealCluster) -> None:
    """P2: attempt 1 ran on one node, attempt 2 on another; both can be read, and one that never was is refused."""
    script = 'echo "attempt $PHALANX_ATTEMPT" >&2; [ "$PHALANX_ATTEMPT" = 2 ] || sleep 600'
    id = cluster.client.submit(command=["sh", "-c", script], max_retries=2).task_ids[0]
    first = cluster.wait_task(id, "Running").node
    assert first is not None
    wait_until(lambda: "attempt 1" in cluster.output(id), what="the first attempt has written")
    cluster.client.drain(first, "so that the next attempt runs elsewhere")
    cluster.client.evict(id)
    ended = cluster.wait_task(id, "Completed")
    assert ended.attempt == 2
    assert ended.node != first
    logs = [b"".join(cluster.client.logs(id, attempt=number)).decode() for number in (1, 2)]
    assert logs == ["attempt 1\n", "attempt 2\n"]

    folder: Path = cluster.folder
    mine = f"{first}/logs/*/{id}.0.1.stdout"
    wait_until(
        lambda: all(log.stat().st_mode & 0o777 == 0o400 for log in folder.glob(mine)), what="it is copied"
    )
    for each in (folder / first / "logs", folder / "coordinator" / "files"):
        for left in each.rglob("*"):
            if left.is_file():
                left.unlink()
    with pytest.raises(NotFound, match="no log of attempt 1"):
        list(cluster.client.logs(id, attempt=1))
    cluster.client.undrain(first)


def test_nothing_is_lost_or_doubled_when_processes_are_killed_while_logs_are_copied(tmp_path: Path) -> None:
    """The runner, then the coordinator, then both, with kill -9; then the node is gone, and the copies are read."""
    tasks, text = 40, "".join(f"{number}\n" for number in range(1, 20_001))
    files, logs = tmp_path / "coordinator" / "files", tmp_path / "n1" / "logs"

    def copied() -> list[str]:
        return [each.name for each in files.rglob("*") if each.is_file() and "#" not in each.name]

    def marked() -> int:
        with suppress(FileNotFoundError):  # folders are removed meanwhile
            return count_marked()
        return -1

    def count_marked() -> int:
        return sum(each.stat().st_mode & 0o777 == 0o400 for each in logs.rglob("*.stdout"))

    with a_real_cluster(tmp_path, {"n1": "cpus=40,ram=1GiB"}, lost_after_s=60.0) as cluster:
        script = f"echo begun >&2; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; seq 20000"
        job = cluster.client.submit(command=["sh", "-c", script], array=f"1-{tasks}").task_ids[0]
        wait_until(lambda: cluster.client.job(job).counts.running == tasks, what="all run")
        wait_until(lambda: cluster.client.log_times(f"{job}.1").rows, what="it has written")
        begun_at = cluster.client.log_times(f"{job}.1").rows[0].at
        wait_until(
            lambda: cluster.client.log_times(f"{job}.1").now > begun_at + 1.5, what="a while has passed"
        )
        (tmp_path / "go").touch()
        for number, killed in enumerate((["n1"], ["coordinator"], ["n1", "coordinator"])):
            least = 4 * number
            wait_until(lambda: len(copied()) > least, what=f"copies before {killed}")  # noqa: B023
            for name in killed:
                cluster.kill(name)
            if "coordinator" in killed:
                cluster.start_coordinator()
                cluster.wait_ready("coordinator")
            if "n1" in killed:
                cluster.start_runner("n1")
        wait_until(lambda: marked() == tasks, 30.0, "all are copied")
        assert sorted(copied()) == ["0"] * tasks + ["times"] * tasks
        cluster.kill("n1")
        end_keeper(tmp_path / "n1")
        (tmp_path / "n1").rename(tmp_path / "gone")
        wait_until(lambda: cluster.client.node("n1").status != "Online", what="the node is away")
        for index in range(1, tasks + 1):
            assert cluster.output(f"{job}.{index}") == f"begun\n{text}"
        times = cluster.client.log_times(f"{job}.1")
        assert (abs(times.rows[0].at - begun_at) < 1.0, times.rows[0].stdout) == (True, len("begun\n"))
        assert times.rows[-1].at > begun_at + 1.4


def test_a_reader_that_has_enough_ends_logs_as_it_ends_other_programs(cluster: RealCluster) -> None:
    """Threads that search the logs of other tasks with RE2 still run then; they aborted the process."""
    writes = "for i in $(seq 3000); do echo step $i diverged; done"
    id = cluster.client.submit(command=["sh", "-c", writes], array="1-4").task_ids[0].partition(".")[0]
    assert cluster.client.wait(id, timeout=20).status == "Completed"
    for _ in range(READERS_THAT_LEAVE):
        logs = subprocess.Popen(
            phalanx_words(cluster, "logs", id, "--grep", "diverged"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=command_environment(cluster),
        )
        assert logs.stdout is not None and logs.stderr is not None
        assert logs.stdout.readline() == b"1| step 1 diverged\n"
        logs.stdout.close()
        with logs.stderr:
            assert (logs.stderr.read(), logs.wait(30)) == (b"", 128 + signal.SIGPIPE)
