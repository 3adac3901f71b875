"""Usage of real tasks: known amounts of processor time, memory and I/O, live and in sum, and reports over them."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from phalanx.api.schema.cluster import TokenRequest
from phalanx.api.schema.usage import TaskUsage
from phalanx.client.client import Client
from phalanx.errors import Forbidden
from tests.support import known_load
from tests.support.forked import run_command
from tests.support.nvml_stub import NvmlStub
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.waiting import wait_until

NODE = {"n1": "cpus=8,ram=8GiB"}
Settings = dict[str, dict[str, object]]
SOON: Settings = {"n1": {"runner.usage_interval_s": 1.0}}
RARELY: Settings = {"n1": {"runner.usage_interval_s": 3600.0}}
MIB = 1 << 20


def cluster_of(folder: Path, node_settings: Settings) -> RealCluster:
    cluster = RealCluster(folder)
    cluster.node_settings = node_settings
    return cluster


def phalanx(cluster: RealCluster, *words: str, token: str = "") -> str:
    """The command line, as a user runs it."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PHALANX_")}
    env |= {
        "PHALANX_ADDRESS": cluster.address("coordinator"),
        "PHALANX_TOKEN": token or cluster.user_token,
        "XDG_CONFIG_HOME": str(cluster.folder / "none"),
    }
    done = run_command(words, env)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def usage_of(cluster: RealCluster, id: str) -> TaskUsage:
    return cluster.client.usage(id).tasks[0]


def usage_once(cluster: RealCluster, id: str, holds: Callable[[TaskUsage], object], what: str) -> TaskUsage:
    """The task, once something is so of its usage."""

    def there() -> TaskUsage | None:
        found = usage_of(cluster, id)
        return found if holds(found) else None

    return wait_until(there, 40.0, what)


def sampled(cluster: RealCluster, id: str, points: int = 1) -> TaskUsage:
    return usage_once(cluster, id, lambda found: len(found.points) >= points, f"{points} samples")


def memory_now(found: TaskUsage) -> int:
    return 0 if found.now is None else found.now.memory_bytes


def has_written(cluster: RealCluster, id: str, text: str) -> None:
    wait_until(lambda: cluster.output(id) == text, 30.0, f"{id} has written {text!r}")


def test_a_running_task_is_measured_and_summed_up_when_it_ends(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, SOON)
    try:
        cluster.start(NODE)
        go = tmp_path / "go"
        client = cluster.client
        busy = client.submit(command=known_load.cpu(1.5, until=str(go)), cores=2).task_ids[0]
        large = client.submit(command=known_load.memory(150, 1, str(go)), cores=1, memory="1GiB").task_ids[0]
        disk = client.submit(command=known_load.io(str(tmp_path / "file"), 24, str(go))).task_ids[0]
        for id in (busy, large, disk):
            has_written(cluster, id, "used\n")
            sampled(cluster, id, 2)
        now = usage_once(
            cluster,
            busy,
            lambda found: found.summary is not None and found.summary.cpu_s > 1.3,
            "a sample after all of it was used",
        )
        assert now.summary is not None
        assert now.summary.cpu_s == pytest.approx(1.5, rel=0.15)
        held = usage_once(
            cluster, large, lambda found: memory_now(found) > 300 * MIB, "both processes are seen"
        )
        assert held.now is not None
        assert held.now.memory_bytes < 400 * MIB
        assert held.now.processes == 2
        assert (held.node, held.status, held.memory_bytes) == ("n1", "Running", 1 << 30)
        text = phalanx(cluster, "usage", busy)
        assert "Cores now:" in text
        assert "cores   " in text
        go.touch()

        views = {id: cluster.wait_task(id, "Completed") for id in (busy, large, disk)}
        used = views[busy].usage
        assert used is not None
        assert used.cpu_s == pytest.approx(1.5, rel=0.15)
        ran_s = (views[busy].ended_at or 0.0) - (views[busy].started_at or 0.0)
        assert used.cpu_efficiency == pytest.approx(used.cpu_s / (2 * ran_s), rel=0.01)
        used = views[large].usage
        assert used is not None
        assert 300 * MIB < used.memory_peak_bytes < 400 * MIB  # of both, which no single process had
        assert used.memory_share == pytest.approx(used.memory_peak_bytes / (1 << 30))
        used = views[disk].usage
        assert used is not None
        if used.written_bytes:  # a filesystem in memory has no disk behind it
            assert used.written_bytes == pytest.approx(24 * MIB, rel=0.15)
        assert "CPU used:" in phalanx(cluster, "show", busy)
        assert json.loads(phalanx(cluster, "show", busy, "-o", "json"))["usage"]["cpu_s"] == pytest.approx(
            1.5, rel=0.15
        )
    finally:
        cluster.stop()


def test_a_task_that_ends_before_it_is_sampled_has_a_true_summary(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, RARELY)
    try:
        cluster.start(NODE)
        none = str(tmp_path)  # it exists, so they do not wait
        client = cluster.client
        busy = client.submit(command=known_load.cpu(0.4, children=1, until=none)).task_ids[0]
        large = client.submit(command=known_load.memory(100, until=none)).task_ids[0]
        used = cluster.wait_task(busy, "Completed").usage
        assert used is not None
        assert used.cpu_s == pytest.approx(0.8, rel=0.2)
        used = cluster.wait_task(large, "Completed").usage
        assert used is not None
        assert 100 * MIB < used.memory_peak_bytes < 130 * MIB
        failed = client.submit(command=["sh", "-c", "exit 3"], max_retries=0).task_ids[0]
        used = cluster.wait_task(failed, "Failed").usage
        assert used is not None
        assert used.memory_peak_bytes > 0
    finally:
        cluster.stop()


PEAK = """
import os, sys, time
pids = []
for _ in range(2):
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        held = bytearray(os.urandom(1 << 20)) * 100
        os.write(write, b".")
        while not os.path.exists(sys.argv[1]):
            time.sleep(0.02)
        os._exit(0)
    os.read(read, 1)
    pids.append(pid)
print("used", flush=True)
for pid in pids:
    os.waitpid(pid, 0)
print("small", flush=True)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.02)
"""


def test_a_restart_of_the_runner_keeps_what_was_measured(tmp_path: Path) -> None:
    """The most that both children held together was seen only by the first runner."""
    cluster = cluster_of(tmp_path, SOON)
    try:
        cluster.start(NODE)
        one, two = tmp_path / "one", tmp_path / "two"
        id = cluster.client.submit(command=[sys.executable, "-c", PEAK, str(one), str(two)]).task_ids[0]
        has_written(cluster, id, "used\n")
        usage_once(cluster, id, lambda found: memory_now(found) > 200 * MIB, "it was sampled")
        cluster.kill("n1", signal.SIGTERM)
        one.touch()
        cluster.start_runner("n1")
        cluster.wait_online("n1")
        has_written(cluster, id, "used\nsmall\n")
        after = sampled(cluster, id)
        assert after.now is not None
        assert after.now.memory_bytes < 100 * MIB
        two.touch()
        used = cluster.wait_task(id, "Completed").usage
        assert used is not None
        assert used.memory_peak_bytes > 200 * MIB
    finally:
        cluster.stop()


def test_arrays_have_a_table_and_reports_have_rows_for_those_who_may_see_them(tmp_path: Path) -> None:
    with a_real_cluster(tmp_path, NODE) as cluster:
        client = cluster.client
        admin_array = client.submit(command=["true"], array="1-3", name="sweep").task_ids[0]
        ada = client.create_token(TokenRequest(name="ada", role="user")).token
        with Client(cluster.address("coordinator"), ada) as hers:
            job = hers.submit(command=known_load.cpu(0.3, until=str(tmp_path))).task_ids[0]
            cluster.wait_task(job, "Completed")
            wait_until(lambda: client.job(admin_array).status == "Completed", what="the array is done")

            reply = client.usage(admin_array)
            assert [task.status for task in reply.tasks] == ["Completed"] * 3
            assert (reply.totals.tasks, reply.totals.attempts) == (3, 3)
            page = client.usage(admin_array, limit=2)
            assert (len(page.tasks), page.next_cursor) == (2, "2")
            assert [task.id for task in client.usage(admin_array, cursor="2").tasks] == [f"{admin_array}.3"]
            number = client.job(admin_array).number
            assert f"{number}.2  Completed  n1" in phalanx(cluster, "usage", admin_array)

            own = hers.report()
            assert [row.key for row in own.rows] == ["ada"]
            with pytest.raises(Forbidden, match="takes the role"):
                hers.report(user="someone-else")
        report = client.report()
        rows = {row.key: row for row in report.rows}
        assert rows.keys() > {"ada"}
        assert rows["ada"].usage.core_hours_used == pytest.approx(0.3 / 3600, rel=0.3)
        assert report.total.usage.tasks == 4
        assert report.total.usage.cost > 0
        by_job = client.report("job", user="ada")
        assert [(row.key, row.user, row.queue) for row in by_job.rows] == [(job, "ada", "default")]
        assert client.report(until=1.0).rows == []

        assert "core-hours" not in phalanx(cluster, "report")
        assert "CORE-HOURS" in phalanx(cluster, "report")
        read = list(csv.reader(io.StringIO(phalanx(cluster, "report", "--by", "queue", "-o", "csv"))))
        assert read[0][:3] == ["queue", "jobs", "tasks"]
        assert read[1][:3] == ["default", "2", "4"]
        since = json.loads(phalanx(cluster, "report", "--since", "1h", "-o", "json"))
        assert since["total"]["jobs"] == 2
        past = json.loads(phalanx(cluster, "report", "--until", "2020-01-01", "-o", "json"))
        assert past["total"]["jobs"] == 0


def test_devices_that_are_held_and_idle_are_told_in_nodes_why_usage_and_metrics(tmp_path: Path) -> None:
    """With a stub of NVML's library behind the real binding: two devices, of which one does nothing."""
    nvml = NvmlStub(tmp_path / "nvml")
    cluster = cluster_of(
        tmp_path,
        {
            "n1": {
                "runner.pretend": None,
                "runner.usage_interval_s": 1.0,
                "runner.idle_device_after_s": 5.0,
                "runner.idle_device_use": 0.1,
            }
        },
    )
    cluster.environment = nvml.environment
    try:
        nvml.says((90, 4096 * MIB), (0, 10 * MIB))
        cluster.start({"n1": "real"})
        client = cluster.client
        assert [device.kind for device in client.node("n1").devices] == ["h100", "h100"]
        go = tmp_path / "go"
        text = f"import os\nprint('pid', os.getpid(), flush=True)\n{known_load.waiting(str(go))}"
        id = client.submit(command=[sys.executable, "-c", text], gpus=2).task_ids[0]
        wait_until(lambda: client.node("n1").devices[1].idle_s, 40.0, "n1 says that it is idle")
        node = client.node("n1")
        assert node.devices[0].idle_s == 0.0
        assert node.devices[1].idle_s >= 5.0
        assert "1 GPU held and idle" in node.note
        assert "1 GPU held and idle" in phalanx(cluster, "nodes")
        reply = client.why(id)
        [reason] = [each for each in reply.others if each.code == "DevicesIdle"]
        assert reason.numbers["devices"] == [1]
        task = usage_of(cluster, id)
        assert [device.use for device in task.devices] == [0.9, 0.0]
        assert [device.memory_bytes for device in task.devices] == [4096 * MIB, 10 * MIB]
        assert task.points[-1].device_use == pytest.approx(0.45)
        assert "GPU 1:" in phalanx(cluster, "usage", id)
        pid = int((wait_until(lambda: cluster.output(id).split()))[1])
        nvml.says((90, 4096 * MIB), (0, 10 * MIB), pid=pid, own_bytes=7 * MIB)
        own = usage_once(cluster, id, lambda found: found.devices[1].memory_is_own, "NVML tells its process")
        assert own.devices[1].memory_bytes == 7 * MIB
        wait_until(lambda: metric(cluster, 'phalanx_gpu_idle_allocated_seconds_total{queue="default"}') > 0.0)
        assert metric(cluster, 'phalanx_gpu_idle_allocated{node="n1"}') == 1.0

        nvml.says((90, 4096 * MIB), (95, 10 * MIB))
        wait_until(lambda: not client.node("n1").note, 40.0, "it is used again")
        assert [each.code for each in client.why(id).others] == []
        go.touch()
        used = cluster.wait_task(id, "Completed").usage
        assert used is not None
        assert used.device_use is not None
        assert 0.3 < used.device_use < 0.95
        assert used.device_idle_s >= 5.0
        assert used.device_memory_peak_bytes == 4106 * MIB
        assert client.report().total.usage.device_hours_idle > 0
    finally:
        cluster.stop()


def metric(cluster: RealCluster, name: str) -> float:
    request = urllib.request.Request(cluster.address("coordinator") + "/metrics")
    request.add_header("Authorization", f"Bearer {cluster.user_token}")
    with urllib.request.urlopen(request, timeout=5.0) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(f"{name} "):
                return float(line.rpartition(" ")[2])
    return 0.0
