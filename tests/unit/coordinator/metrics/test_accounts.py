"""Cost and energy: the time that a node counts, times its price and its nominal power."""

from __future__ import annotations

import pytest
from msgspec import structs

from phalanx.api.schema.metrics import MetricsReport
from phalanx.coordinator.metrics.accounts import power_of
from phalanx.coordinator.metrics.recorder import Recorder
from phalanx.coordinator.metrics.report import metrics_report
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import Drain, Hello, RemoveNode, SetElastic
from phalanx.core.cluster.state import Timers
from phalanx.core.model.resources import Capacity
from phalanx.store.protocol import Loaded
from tests.support.builders import a_capacity, a_job
from tests.unit.coordinator.metrics.recorded import RecordedCluster


def a_priced_cluster(**prices: float | None) -> RecordedCluster:
    cluster = RecordedCluster()
    for name, price in prices.items():
        capacity = structs.replace(a_capacity(cores=10), cost_per_hour=price)
        cluster.give(Hello(name, "a", f"origin-{name}", capacity, []))
    return cluster


def passing(cluster: RecordedCluster, seconds: float, *alive: str) -> None:
    """Time in which only these are heard of."""
    for _ in range(int(seconds // 10)):
        cluster.now += 10.0
        for name in alive:
            cluster.beat(name, *cluster.state.nodes[name].attempts)
        cluster.wait(0.0)


def cost(cluster: RecordedCluster, name: str) -> float:
    cluster.recorder.accounts.settle(cluster.now)
    return cluster.recorder.accounts.by_node[name].cost


def report(cluster: RecordedCluster) -> MetricsReport:
    return metrics_report(cluster.recorder, cluster.state, cluster.now, "a", 0)


def test_an_hour_costs_the_price_and_one_where_none_is_said():
    cluster = a_priced_cluster(n1=3.6, n2=None)
    passing(cluster, 3600.0, "n1", "n2")
    assert cost(cluster, "n1") == pytest.approx(3.6)
    assert cost(cluster, "n2") == pytest.approx(1.0)
    assert cluster.recorder.accounts.total().cost == pytest.approx(4.6)


def test_a_lost_node_costs_nothing_from_its_loss_on():
    cluster = a_priced_cluster(n1=3600.0, n2=0.0)
    passing(cluster, 100.0, "n1", "n2")
    assert cost(cluster, "n1") == pytest.approx(100.0)
    passing(cluster, 600.0, "n2")
    assert cost(cluster, "n1") == pytest.approx(100.0 + 40.0)  # the silence until it was declared lost
    assert cluster.recorder.accounts.active == 1
    cluster.give(RemoveNode("n1", "eve"))
    assert cluster.recorder.accounts.total().cost == pytest.approx(140.0)
    assert "n1" not in metrics_report(cluster.recorder, cluster.state, cluster.now, "a", 0).workers.workers


def test_c28_a_disabled_node_is_listed_and_its_cost_and_energy_stand_still_until_it_is_enabled():
    cluster = a_priced_cluster(n1=3600.0, n2=0.0)
    cluster.submit(job := a_job("n1"))  # what runs there goes on, and costs nothing meanwhile
    passing(cluster, 100.0, "n1", "n2")
    before = report(cluster)
    assert before.elastic_disabled_workers == []
    cluster.give(SetElastic("n1", enabled=False, user="ann"))
    passing(cluster, 500.0, "n1", "n2")
    assert cluster.state.jobs[job.id].live[0].node == "n1"
    disabled = report(cluster)
    assert (disabled.elastic_disabled_workers, disabled.active_workers_count) == (["n1"], 1)
    n1 = disabled.workers.workers["n1"]
    assert n1.elastic_disabled
    assert n1 == structs.replace(before.workers.workers["n1"], elastic_disabled=True)
    assert [n1.accrued_cost_usd, n1.uptime_sec] == pytest.approx([100.0, 100.0])
    assert n1.estimated_energy_kwh == pytest.approx(100 * 50 / 3.6e6)
    assert disabled.workers.totals.accrued_cost_usd == pytest.approx(100.0)
    assert disabled.workers.workers["n2"].uptime_sec == pytest.approx(600.0)
    cluster.give(SetElastic("n1", enabled=True, user="ann"))
    passing(cluster, 50.0, "n1", "n2")
    after = report(cluster)
    assert (after.elastic_disabled_workers, after.active_workers_count) == ([], 2)
    n1 = after.workers.workers["n1"]
    assert [n1.accrued_cost_usd, n1.uptime_sec] == pytest.approx([150.0, 150.0])
    assert n1.estimated_energy_kwh == pytest.approx(150 * 50 / 3.6e6)


def test_a_coordinator_that_takes_over_counts_no_node_that_is_disabled():
    cluster = a_priced_cluster(n1=3600.0, n2=0.0)
    cluster.give(SetElastic("n1", enabled=False, user="ann"))
    state = decode_state(encode_state(cluster.state), Timers())
    successor = Recorder()
    successor.resume(Loaded(encode_state(state), state.revision, []), state, cluster.now)
    found = metrics_report(successor, state, cluster.now + 100.0, "b", 0)
    assert (found.elastic_disabled_workers, found.active_workers_count) == (["n1"], 1)
    assert found.workers.workers["n1"].accrued_cost_usd == 0.0
    assert found.workers.workers["n2"].uptime_sec == pytest.approx(100.0)


def test_a_drained_node_costs_what_it_costs():
    cluster = a_priced_cluster(n1=3600.0)
    cluster.give(Drain("n1", "a fan"))
    passing(cluster, 100.0, "n1")
    assert cost(cluster, "n1") == pytest.approx(100.0)
    assert report(cluster).elastic_disabled_workers == []


def test_energy_is_nominal_power_and_says_when_it_is_not_whole():
    known = power_of(a_capacity(cores=10, gpus=2, kind="h100"))
    assert (known.cpu_watts, known.gpu_watts, known.is_whole) == (50.0, 1400.0, True)
    unknown = power_of(a_capacity(cores=10, gpus=2, kind="z9000"))
    assert (unknown.gpu_watts, unknown.is_whole) == (0.0, False)
    cluster = RecordedCluster()
    cluster.add_node("n1", cores=10, gpus=2)
    passing(cluster, 3600.0, "n1")
    totals = metrics_report(cluster.recorder, cluster.state, cluster.now, "a", 0).workers.totals
    assert totals.cpu_energy_kwh == pytest.approx(0.05)
    assert totals.gpu_energy_kwh == pytest.approx(1.4)
    assert totals.estimated_energy_kwh == pytest.approx(1.45)


def test_the_price_is_kept_in_images_and_checked():
    cluster = a_priced_cluster(n1=2.5)
    again = decode_state(encode_state(cluster.state), Timers())
    assert again.nodes["n1"].capacity.cost_per_hour == 2.5
    for wrong in (-1.0, 2e6, float("nan")):
        with pytest.raises(ValueError, match="cost_per_hour"):
            Capacity(1, 1, cost_per_hour=wrong)
