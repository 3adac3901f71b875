"""A running coordinator: both forms of the metrics, the files and the dashboard, against what happened."""

from __future__ import annotations

import json
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.real_cluster import RealCluster
from tests.support.waiting import wait_until
from tests.tidy.source import ROOT

DASHBOARD = ROOT / "deploy/grafana/phalanx.json"
NAME = re.compile(r"\bphalanx_[a-z_]+")
Sample = tuple[str, tuple[tuple[str, str], ...]]


class MeasuredCluster(RealCluster):
    """A cluster with FlowMesh's variables set, and its metrics."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.metrics_dir = folder / "metrics"
        self.environment = {
            "HOST_METRICS_DIR": str(self.metrics_dir),
            "HOST_METRICS_ENABLE_DENSITY_PLOT": "true",
            "HOST_METRICS_DENSITY_BUCKET_SEC": "30",
            "WORKER_COST_PER_HOUR": "3.6",
        }

    def get(self, path: str) -> str:
        request = urllib.request.Request(self.address(self.coordinators[0]) + path)
        request.add_header("Authorization", f"Bearer {self.user_token}")
        with urllib.request.urlopen(request, timeout=10.0) as answer:
            return str(answer.read().decode())

    def samples(self) -> dict[Sample, float]:
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(self.get("/metrics"))
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float:
        return self.samples()[f"phalanx_{name}", tuple(sorted(labels.items()))]

    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.get("/v1/metrics.json"))
        return found

    def file(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.metrics_dir / name).read_text())
        return found

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.metrics_dir / "events.log").read_text().splitlines()]


class Measured:
    """What happened on a cluster, and what its metrics said right after it."""

    def __init__(self, cluster: MeasuredCluster) -> None:
        self.cluster = cluster
        self.jobs = some_work(cluster)
        self.report = cluster.report()
        self.samples = cluster.samples()

    def value(self, name: str, **labels: str) -> float:
        return self.samples[f"phalanx_{name}", tuple(sorted(labels.items()))]


def some_work(cluster: MeasuredCluster) -> dict[str, str]:
    """An array, a job that always fails, one that was to start after it, and a cancelled one; by name, their ids."""
    client = cluster.client
    done = client.submit(command=["/bin/true"], array="0-4", tags={"task-type": "sft"}).task_ids[0]
    tags = {"task-type": "inference"}
    failed = client.submit(command=["/bin/false"], max_attempts=3, tags=tags).task_ids[0]
    after = client.submit(command=["/bin/true"], after=[failed]).task_ids[0]
    cancelled = client.submit(command=["/bin/sleep", "600"], gpus=1).task_ids[0]
    for id in (done, failed, after):
        client.wait(id)
    cluster.wait_task(cancelled, "Running")
    client.cancel(cancelled)
    wait_until(lambda: cluster.value("allocations") == 0, what="the sleep has ended")
    wait_until(lambda: cluster.report()["counters"]["worker_heartbeats"], what="a heartbeat was heard")
    return {"done": done, "failed": failed, "after": after, "cancelled": cancelled}


@contextmanager
def a_measured_cluster(folder: Path) -> Iterator[MeasuredCluster]:
    made = MeasuredCluster(folder)
    try:
        made.start({"n1": "cpus=8,gpus=2,type=h100,memory=80GiB,ram=16GiB", "n2": "cpus=4,ram=32GiB"})
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    with a_measured_cluster(tmp_path_factory.mktemp("metrics")) as cluster:
        yield Measured(cluster)


def test_the_counters_are_what_happened(measured: Measured):
    assert measured.value("task_submitted_total") == 8
    assert measured.value("task_ended_total", status="Completed") == 5
    assert measured.value("task_ended_total", status="Failed") == 2
    assert measured.value("task_ended_total", status="Cancelled") == 1
    assert measured.value("task_requeued_total", reason="worker_failed") == 2
    assert measured.value("task_started_total") == 5 + 3 + 1
    assert measured.value("node_registered_total") == 2
    assert measured.value("coordinator_leader") == 1
    assert measured.value("coordinator_epoch") == 1
    assert measured.value("devices") == 2
    assert measured.value("nodes", state="Online") == 2
    assert measured.value("http_requests_total", route="jobs", status="200") >= 4


def test_both_forms_agree(measured: Measured):
    counters = measured.report["counters"]
    assert counters["tasks_submitted"] == measured.value("task_submitted_total")
    assert counters["tasks_succeeded"] == measured.value("task_ended_total", status="Completed")
    assert counters["tasks_failed"] == measured.value("task_ended_total", status="Failed")
    assert counters["tasks_cancelled"] == measured.value("task_ended_total", status="Cancelled")
    assert counters["tasks_requeued_by_reason"] == {"worker_failed": 2}
    assert counters["tasks_requeued"] == 2
    assert counters["workers_registered"] == measured.value("node_registered_total")
    assert counters["workers_unregistered"] == measured.value("node_unregistered_total") == 0
    assert 0 < counters["worker_heartbeats"] <= measured.value("node_heartbeats_total")


def test_the_report_has_the_form_of_the_seed(measured: Measured):
    report = measured.report
    timings = report["task_timings"]
    assert timings["training"]["execution_count"] == timings["training"]["queue_count"] == 5
    assert timings["inference"]["execution_count"] == 1
    assert timings["overall"]["total_count"] == 6
    assert timings["training"]["total_avg_sec"] == pytest.approx(timings["training"]["total_total_sec"] / 5)
    assert report["completed_tasks"] == [f"{measured.jobs['done']}.{index}" for index in range(5)]
    assert report["active_workers_count"] == 2
    assert report["elastic_disabled_workers"] == []
    totals, each = report["workers"]["totals"], report["workers"]["workers"]
    assert set(each) == {"n1", "n2"}
    assert totals["workers_with_energy"] == 2
    assert totals["gpu_memory_total_bytes"] == 2 * 80 * 2**30
    assert totals["accrued_cost_usd"] == pytest.approx(sum(n["accrued_cost_usd"] for n in each.values()))
    assert each["n1"]["cost_per_hour"] == 3.6 == measured.cluster.client.node("n1").cost_per_hour
    assert each["n1"]["accrued_cost_usd"] == pytest.approx(each["n1"]["uptime_sec"] * 0.001)
    watts = each["n1"]["estimated_energy_kwh"] * 3_600_000 / each["n1"]["uptime_sec"]
    assert watts == pytest.approx(8 * 5 + 2 * 700)


def test_c28_a_disabled_node_costs_nothing_until_it_is_enabled(measured: Measured):
    """By both forms: n1, which alone has devices, stands still while n2 goes on."""
    cluster = measured.cluster

    def worker(report: dict[str, Any], name: str) -> dict[str, Any]:
        found: dict[str, Any] = report["workers"]["workers"][name]
        return found

    def lasted(name: str, since: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The report once a node has counted for so many seconds more."""

        def there() -> dict[str, Any] | None:
            found = cluster.report()
            grown = worker(found, name)["uptime_sec"] - worker(since, name)["uptime_sec"]
            return found if grown > seconds else None

        return wait_until(there, what=f"{name} counts for {seconds} s")

    cluster.client.set_elastic("n1", enabled=False)
    try:
        before = cluster.report()
        assert (before["elastic_disabled_workers"], before["active_workers_count"]) == (["n1"], 1)
        assert cluster.value("nodes_active") == 1
        wait_until(lambda: cluster.value("nodes_disabled") == 1, what="the next look at the state")
        joules = cluster.value("estimated_energy_joules_total", part="gpu")
        later = lasted("n2", before, 1.0)
        assert worker(later, "n1") == worker(before, "n1")
        counted_s, cost = (
            cluster.value(f"{name}_total") for name in ("node_counted_seconds", "accrued_cost_usd")
        )
        last = cluster.report()
        stands_s = worker(before, "n1")["uptime_sec"]
        n2_s = [worker(report, "n2")["uptime_sec"] for report in (later, last)]
        assert n2_s[0] <= counted_s - stands_s <= n2_s[1]
        assert n2_s[0] <= cost / 0.001 - stands_s <= n2_s[1]
        assert cluster.value("estimated_energy_joules_total", part="gpu") == joules > 0
    finally:
        cluster.client.set_elastic("n1", enabled=True)
    after = lasted("n1", last, 0.5)
    assert (after["elastic_disabled_workers"], after["active_workers_count"]) == ([], 2)
    n1 = worker(after, "n1")
    assert n1["accrued_cost_usd"] == pytest.approx(n1["uptime_sec"] * 0.001)
    grown = {
        name: worker(after, name)["uptime_sec"] - worker(before, name)["uptime_sec"] for name in ("n1", "n2")
    }
    assert grown["n1"] < grown["n2"] - 1.0
    assert cluster.value("estimated_energy_joules_total", part="gpu") > joules


def test_no_series_is_added_by_more_jobs_users_and_names(measured: Measured):
    """Only these labels, whose values come from closed lists, nodes and declared queues."""
    before, cluster = set(measured.samples), measured.cluster
    for number in range(20):
        tags, env = {"task-type": f"type-{number}", "team": f"t{number}"}, {"N": str(number)}
        name = f"job-{number}"
        id = cluster.client.submit(
            command=["/bin/sh", "-c", "exit $N"], name=name, tags=tags, env=env, max_attempts=1
        )
        cluster.client.wait(id.task_ids[0])
    after = set(cluster.samples())
    added = {each for each in after - before if not each[0].startswith("phalanx_http_requests")}
    assert added == set()
    labels = {name for _, labels in after for name, _ in labels}
    closed = {
        "status",
        "state",
        "queue",
        "reason",
        "cause",
        "node",
        "part",
        "route",
        "version",
        "le",
        "strategy",
    }
    assert labels <= closed
    text = cluster.get("/metrics")
    for secret in (measured.jobs["done"], "job-1", "type-1", "/bin", cluster.user_token):
        assert secret not in text


def test_a_scraper_needs_a_token_that_may_read(measured: Measured):
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(measured.cluster.address("coordinator") + "/metrics", timeout=5.0)
    assert refused.value.code == 401
    refused.value.close()


def test_every_metric_of_the_dashboard_exists(measured: Measured):
    there = {name for name, _ in measured.samples}
    document = json.loads(DASHBOARD.read_text())
    queries = [target["expr"] for panel in document["panels"] for target in panel["targets"]]
    queries += [variable["query"]["query"] for variable in document["templating"]["list"][1:]]
    queries += [each["expr"] for each in document["annotations"]["list"]]
    asked = {name for query in queries for name in NAME.findall(query)}
    assert len(asked) > 20
    assert asked <= there, asked - there
    families = {re.sub(r"_(bucket|sum|count|created)$", "", name) for name in there}
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in asked}
    assert shown == families, "the dashboard shows every metric"


def test_a_cascade_in_a_workflow_is_counted_and_can_be_traced(measured: Measured):
    """The seed's helpers: TASK_REQUEUED with its reason, TASK_FAILED for the task and for all that it takes along."""
    cluster = measured.cluster
    before = cluster.report()["counters"]
    flow = cluster.client.workflow("cascade")
    first = flow.stage("first", ["/bin/false"], max_retries=1)
    flow.stage("second", ["/bin/true"], after=[first])
    flow.stage("third", ["/bin/true"], after=["second"])
    other = flow.stage("other", ["/bin/true"])
    flow.stage("skipped", ["/bin/true"], when=(other, "x", "y"))
    flow.stage("unresolved", ["/bin/echo", other.result["x"]])
    run = flow.submit()
    assert run.wait(timeout=30).status == "Failed"
    counters = cluster.report()["counters"]
    names = ("tasks_submitted", "tasks_failed", "tasks_succeeded", "tasks_requeued")
    grown = {name: counters[name] - before[name] for name in names}
    assert grown["tasks_submitted"] == 6
    assert (grown["tasks_failed"], grown["tasks_succeeded"], grown["tasks_requeued"]) == (4, 2, 1)
    jobs = {id: name for name, id in run.jobs.items()}

    def lines() -> list[dict[str, Any]]:
        written = cluster.lines() if (cluster.metrics_dir / "events.log").exists() else []
        return [line for line in written if line["job_id"] in jobs and line["type"] != "TASK_STARTED"]

    wait_until(lambda: len(lines()) == 13, what="all of it is written")
    ends = {jobs[line["job_id"]]: line for line in lines() if line["type"] != "TASK_SUBMITTED"}
    assert {name: line["type"] for name, line in ends.items()} == {
        **dict.fromkeys(("first", "second", "third", "unresolved"), "TASK_FAILED"),
        **dict.fromkeys(("other", "skipped"), "TASK_SUCCEEDED"),
    }
    assert [line["reason"] for line in lines() if line["type"] == "TASK_REQUEUED"] == ["worker_failed"]
    causes = {name: jobs.get(line.get("dependency_failure", ""), "") for name, line in ends.items()}
    assert causes == dict.fromkeys(ends, "") | {"second": "first", "third": "second"}
    reasons = {name: line.get("reason") for name, line in ends.items()}
    assert (reasons["third"], reasons["skipped"], reasons["unresolved"]) == (
        "dependency",
        "condition_not_met",
        "reference",
    )


def test_the_files(tmp_path: Path):
    with a_measured_cluster(tmp_path) as cluster:
        work = some_work(cluster)
        events = cluster.metrics_dir / "events.log"
        wait_until(lambda: events.exists() and cluster.lines(), what="events.log is written")
        cluster.kill("coordinator", signal.SIGTERM)
        check_files(cluster, work)


def check_files(cluster: MeasuredCluster, work: dict[str, str]) -> None:
    """After the coordinator was stopped."""
    lines = [line for line in cluster.lines() if line["job_id"] == work["failed"]]
    assert [line["type"] for line in lines] == [
        *("TASK_SUBMITTED", "TASK_STARTED", "TASK_REQUEUED", "TASK_STARTED", "TASK_REQUEUED"),
        *("TASK_STARTED", "TASK_FAILED"),
    ]
    assert {line["reason"] for line in lines if line["type"] == "TASK_REQUEUED"} == {"worker_failed"}
    (ended,) = [line for line in cluster.lines() if line["job_id"] == work["after"]][1:]
    assert (ended["type"], ended["reason"], ended["dependency_failure"]) == (
        "TASK_FAILED",
        "dependency",
        work["failed"],
    )
    final, last = cluster.file("final_report.json"), cluster.file("metrics.json")
    assert "finalized_at" in final and "finalized_at" not in last
    assert final["counters"] == last["counters"]
    submitted = sum(line.get("tasks", 1) for line in cluster.lines() if line["type"] == "TASK_SUBMITTED")
    assert final["counters"]["tasks_submitted"] == submitted
    density = cluster.file("task_worker_density.json")
    buckets = density["task_density_buckets"]
    assert density["bucket_seconds"] == 30
    assert sum(bucket["count"] for bucket in buckets) == submitted
    assert all(bucket["tasks_per_minute"] == bucket["count"] * 2 for bucket in buckets)
    assert buckets[-1]["count"] == 0
    assert density["worker_count_series"][-1]["active_workers"] == 2
