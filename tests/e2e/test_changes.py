"""Jobs that begin later, are held and changed, on real processes: also while the coordinator is killed."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread

from phalanx.clock import SystemClock
from phalanx.errors import BadRequest, Conflict, PhalanxError
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.terminal import run_phalanx
from tests.support.waiting import wait_until

JOBS = 12
LIMIT_MAX = 7


class Changes(Thread):
    """Holds, changes and releases jobs, one after another, and notes what was answered."""

    def __init__(self, cluster: RealCluster, jobs: list[str], array: str) -> None:
        super().__init__(daemon=True)
        self.held: set[str] = set()
        self.priority: dict[str, int] = {}
        self.at_once: int | None = None  # of the array, as it was answered last
        self.begun, self._end = Event(), Event()
        self._cluster, self._jobs, self._array = cluster, jobs, array

    def run(self) -> None:
        number = 0
        while not self._end.is_set():
            number += 1
            self._limit(number % LIMIT_MAX + 1)
            for job in self._jobs:
                self._try(job, number)
                self.begun.set()

    def stop(self) -> None:
        self._end.set()
        self.join(60)
        assert not self.is_alive()

    def _limit(self, at_once: int) -> None:
        self.at_once = None
        try:
            self._cluster.client.update(self._array, at_once=at_once)
            self.at_once = at_once
        except PhalanxError:  # nobody leads just now
            return

    def _try(self, job: str, number: int) -> None:
        client = self._cluster.client
        try:
            self.priority.pop(job, None)
            client.update(job, priority=-number)
            self.priority[job] = -number
            if job in self.held:
                self.held.discard(job)
                client.release(job)
            else:
                client.hold(job, f"round {number}")
                self.held.add(job)
        except Conflict:  # an answer was lost, and what it was about has been done
            self.held.discard(job)
        except PhalanxError:  # nobody leads just now
            self.held.discard(job)


def test_what_was_answered_is_kept_when_the_coordinator_is_killed_and_nothing_runs_twice(
    tmp_path: Path,
) -> None:
    with a_real_cluster(tmp_path / "cluster", lost_after_s=20.0) as cluster:
        client = cluster.client
        out = tmp_path / "ran"
        jobs = [
            client.submit(shell=f"echo {each} $PHALANX_ATTEMPT >> {out}", begin="+1h", cores=4).task_ids[0]
            for each in range(JOBS)
        ]
        assert client.why(jobs[0]).dominant.code == "BeginTime"
        array = client.submit(command=["true"], array=f"0-{LIMIT_MAX + 1}%1", begin="1h").task_ids[0]
        changes = Changes(cluster, jobs, array)
        changes.start()
        for _ in range(2):
            changes.begun.clear()
            assert changes.begun.wait(30)
            cluster.kill("coordinator")
            cluster.start_coordinator()
            cluster.wait_ready("coordinator")
        changes.begun.clear()
        assert changes.begun.wait(30)
        changes.stop()
        views = {job: client.job(job) for job in jobs}
        assert {job: views[job].priority for job in changes.priority} == changes.priority
        assert [job for job in changes.held if views[job].held is None] == []
        kept = client.job(array)
        assert changes.at_once in (None, kept.groups[0].at_once)
        assert kept.array == f"0-{LIMIT_MAX + 1}%{kept.groups[0].at_once}"
        client.cancel(array)
        assert not out.exists()
        for number, (job, view) in enumerate(views.items()):
            # One priority for all: the more urgent one would evict others, and what is evicted runs again.
            client.update(job, begin="now", priority=0)
            if view.held is not None:
                client.release(job)
            if number == JOBS // 2:  # some run, others wait
                cluster.kill("coordinator")
                cluster.start_coordinator()
                cluster.wait_ready("coordinator")
        for job in jobs:
            cluster.wait_task(job, "Completed", within_s=60)
        assert sorted(out.read_text().splitlines()) == sorted(f"{each} 1" for each in range(JOBS))
        another_limit(cluster)


def another_limit(cluster: RealCluster) -> None:
    """A running task has its new time limit at once, longer or shorter."""
    client = cluster.client
    long, short = (
        client.submit(command=["sleep", "600"], time_limit=limit).task_ids[0] for limit in ("2s", "1h")
    )
    for job in (long, short):
        cluster.wait_task(job, "Running")
    client.update(long, time_limit="none")
    began = client.task(short).started_at or 0.0
    wait_until(lambda: SystemClock().now() > began + 1.0, 20.0, "a second has passed")
    refused = run_phalanx(cluster, "update", short, "--time-limit", "1")
    assert refused.returncode == BadRequest.exit_code
    assert "--time-limit 1 is 1 second; write 1m for minutes" in refused.stderr.decode()
    assert (
        "1 running task would end at once, as Failed: the time limit of 1.0s has passed"
        in refused.stderr.decode()
    )
    assert client.task(short).status == "Running"
    for words in (("2h",), ("1s", "--yes")):
        assert run_phalanx(cluster, "update", short, "--time-limit", *words).returncode == 0
    assert cluster.wait_task(short, "Failed").reason == "timeout"
    began = client.task(long).started_at or 0.0
    wait_until(lambda: SystemClock().now() > began + 3.0, 20.0, "its first limit is over")
    assert client.task(long).status == "Running"
    client.cancel(long)
