"""Cost and energy: the time that a node counts, times its price and its nominal power."""

from __future__ import annotations

import pytest
from msgspec import structs

from phalanx.coordinator.metrics import accounts as under_test
from phalanx.coordinator.metrics.accounts import power_of
from phalanx.coordinator.metrics.report import metrics_report
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import Drain, Hello, RemoveNode
from phalanx.core.cluster.nodes import NodeState
from phalanx.core.cluster.state import Timers
from phalanx.core.model.resources import Capacity
from tests.support.builders import a_capacity
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
            cluster.beat(name)
        cluster.wait(0.0)


def cost(cluster: RecordedCluster, name: str) -> float:
    cluster.recorder.accounts.settle(cluster.now)
    return cluster.recorder.accounts.by_node[name].cost


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


def test_a_node_that_does_not_count_is_shown_as_disabled_and_its_cost_stands_still(
    monkeypatch: pytest.MonkeyPatch,
):
    """Which nodes count is decided in one function; here, drained ones do not."""

    def undrained(node: NodeState) -> bool:
        return not node.lost and node.drain_reason is None

    monkeypatch.setattr(under_test, "is_counted", undrained)
    cluster = a_priced_cluster(n1=3600.0)
    passing(cluster, 100.0, "n1")
    cluster.give(Drain("n1", "elastic"))
    passing(cluster, 100.0, "n1")
    report = metrics_report(cluster.recorder, cluster.state, cluster.now, "a", 0)
    assert report.elastic_disabled_workers == ["n1"]
    assert report.active_workers_count == 0
    assert report.workers.totals.accrued_cost_usd == pytest.approx(100.0)
    assert report.workers.workers["n1"].uptime_sec == pytest.approx(100.0)


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
