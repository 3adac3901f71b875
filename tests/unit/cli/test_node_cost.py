"""`phalanx node show`: the price of a node, where its runner says one."""

from __future__ import annotations

from msgspec import structs

from phalanx.cli.node import node_lines
from phalanx.coordinator.views_cluster import node_view
from phalanx.core.cluster.inputs import Hello
from tests.support.builders import Cluster, a_capacity


def shown(price: float | None) -> list[str]:
    cluster = Cluster()
    cluster.give(Hello("n1", "a", "origin", structs.replace(a_capacity(), cost_per_hour=price), []))
    view = node_view(cluster.state, cluster.state.nodes["n1"])
    assert view.cost_per_hour == price
    return [line for line in node_lines(view) if line.startswith("Cost")]


def test_a_price_is_shown_and_none_is_not():
    assert [line.split(maxsplit=1)[1] for line in shown(2.5)] == ["2.5 an hour"]
    assert [line.split(maxsplit=1)[1] for line in shown(0.0)] == ["0 an hour"]
    assert shown(None) == []
