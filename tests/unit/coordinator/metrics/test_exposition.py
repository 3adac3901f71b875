"""What one scrape shows, and that its size is bounded by nodes and declared queues."""

from __future__ import annotations

import inspect

import pytest
from msgspec import structs
from prometheus_client.parser import text_string_to_metric_families

from phalanx.api.server.limits import TimeSlices
from phalanx.clock import SystemClock
from phalanx.coordinator.metrics import survey as under_test
from phalanx.coordinator.metrics.board import MetricsBoard
from phalanx.coordinator.metrics.families import COUNTERS, GAUGES, HISTOGRAMS, REQUEUE_REASONS
from phalanx.coordinator.metrics.recorder import Recorder
from phalanx.core.cluster.inputs import Drain, SetElastic, SetQuota
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.units import Gate
from phalanx.core.model.job import After
from phalanx.core.model.queues import Quota
from tests.support.builders import a_gang, a_group, a_job
from tests.support.dispatch_cluster import DispatchCluster, a_flow, a_machine
from tests.tidy.source import ROOT
from tests.unit.coordinator.metrics.recorded import a_recorded_cluster
from tests.unit.coordinator.metrics.views import FakeRequests

pytestmark = pytest.mark.anyio
# By name, and the values of its labels in the order of their names.
Samples = dict[tuple[str, tuple[str, ...]], float]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def scrape(state: ClusterState, recorder: Recorder) -> Samples:
    clock = SystemClock()
    board = MetricsBoard(FakeRequests(state), recorder, clock, TimeSlices(clock))
    board.count_request("jobs", 200)
    families = text_string_to_metric_families((await board.metrics()).decode())
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


async def test_gauges_are_what_the_state_holds():
    cluster = a_recorded_cluster(n1={"cores": 4, "gpus": 2}, n2={"cores": 4})
    running = a_job(gpus=1, cores=2)
    cluster.submit(running)
    cluster.started("n1", (running.id, 0, 1))
    cluster.submit(a_job(array="0-9", cores=3))
    cluster.submit(a_job(after=(After(running.id),)))
    cluster.give(Drain("n2", "test"))
    found = await scrape(cluster.state, cluster.recorder)
    assert found["phalanx_tasks", ("Running",)] == 1
    assert found["phalanx_tasks", ("Assigned",)] == 1
    assert found["phalanx_tasks", ("Pending",)] == 10
    assert found["phalanx_ready_tasks", ()] == 9
    assert found["phalanx_jobs", ("default", "Pending")] == 1
    assert found["phalanx_unplaced_jobs", ("dependency", "default", "held")] == 1
    assert found["phalanx_unplaced_jobs", ("no_room", "default", "capacity_wait")] == 0
    assert found["phalanx_nodes", ("Online",)] == 1
    assert found["phalanx_nodes", ("Drained",)] == 1
    assert found["phalanx_devices", ()] == 2
    assert found["phalanx_devices_allocated", ()] == 1
    assert found["phalanx_gpu_allocated", ("n1",)] == 1
    assert found["phalanx_cores", ()] == 8
    assert found["phalanx_cores_allocated", ()] == 5
    assert found["phalanx_allocations", ()] == 2
    assert found["phalanx_http_requests_total", ("jobs", "200")] == 1
    assert found["phalanx_queue_wait_seconds_count", ()] == 2


async def test_why_jobs_wait():
    cluster = a_recorded_cluster(n1={"cores": 4})
    cluster.give(SetQuota("small", Quota(tasks=0), "eve"))
    cluster.submit(a_job(queue="small"), allow_infeasible=True)
    cluster.submit(a_job(cores=4))
    cluster.submit(a_job(cores=4))
    cluster.submit(a_gang(a_group(2, cores=4)), allow_infeasible=True)
    found = await scrape(cluster.state, cluster.recorder)
    assert found["phalanx_unplaced_jobs", ("quota", "small", "policy_wait")] == 1
    assert found["phalanx_unplaced_jobs", ("no_room", "default", "capacity_wait")] == 2


async def test_disabled_nodes_are_counted():
    cluster = a_recorded_cluster(n1={"cores": 4}, n2={"cores": 4})
    cluster.give(SetElastic("n1", False, user="eve"))
    found = await scrape(cluster.state, cluster.recorder)
    assert (found["phalanx_nodes_disabled", ()], found["phalanx_nodes_active", ()]) == (1, 1)


async def test_a_job_that_runs_as_a_part_of_another_is_in_progress():
    stages: list[dict[str, object]] = [
        {"name": f"s{at}", "spec": {"taskType": "rag", "data": at}} for at in range(3)
    ]
    cluster = DispatchCluster(None, {"a": a_machine(8)})
    cluster.run(a_flow(*stages))
    found = await scrape(cluster.state, Recorder())
    assert found["phalanx_unplaced_jobs", ("merged", "default", "in_progress")] == 2


def test_every_gate_of_a_job_has_a_cause():
    """As `JobState.closed_gates` returns them; the others are of tasks, groups and gangs."""
    source = inspect.getsource(JobState.closed_gates)
    assert {gate for gate in Gate if f"Gate.{gate.name})" in source} == set(under_test.WAITS)


async def test_the_number_of_series_is_bounded(monkeypatch: pytest.MonkeyPatch):
    """More queues and nodes than have labels, and users, names and tags that never have any."""
    monkeypatch.setattr(under_test, "QUEUES_MAX", 3)
    monkeypatch.setattr(under_test, "NODES_MAX", 2)
    cluster = a_recorded_cluster(n1={"cores": 1})
    before = len(await scrape(cluster.state, cluster.recorder))
    for number in range(8):
        cluster.give(SetQuota(f"q{number}", Quota(), "eve"))
        job = a_job("n1", queue=f"q{number}", name=f"name-{number}", tags=(("task-type", f"t{number}"),))
        cluster.submit(structs.replace(job, user=f"user-{number}"))
        cluster.add_node(f"more-{number}", cores=0)
    found = await scrape(cluster.state, cluster.recorder)
    queues = {labels[0] for name, labels in found if name == "phalanx_jobs"}
    assert queues == {"default", "q0", "q1", "q2", "other"}
    assert found["phalanx_jobs", ("other", "Pending")] == 5
    nodes = {labels for name, labels in found if name == "phalanx_gpu_allocated"}
    assert len(nodes) == 2
    assert len(found) - before <= 2 * 1 + 4 * (6 + 8)  # a node's series, and those of each queue
    assert not [labels for _, labels in found if any("name-" in each or "user-" in each for each in labels)]


def test_every_metric_is_documented_and_has_a_plain_name():
    page = (ROOT / "docs/operations/metrics.md").read_text()
    rows = [(row.name, row.help) for row in GAUGES]
    rows += [(f"{row.name}_total", row.help) for row in COUNTERS]
    rows += [(row.name, row.help) for row in HISTOGRAMS]
    for name, text in rows:
        assert f"`{name}`" in page, f"docs/operations/metrics.md does not name {name}"
        assert text in page, f"docs/operations/metrics.md does not say of {name}: {text}"
        assert name.startswith("phalanx_")


def test_the_reasons_of_requeues_are_in_the_documentation():
    page = (ROOT / "docs/operations/metrics.md").read_text()
    told = page[page.index("`phalanx_task_requeued_total` has the reason") :].partition(
        "`phalanx_unplaced_jobs`"
    )[0]
    assert {reason for reason in REQUEUE_REASONS if f"`{reason}`" not in told} == set()
