"""`phalanx node show`: the price of a node and what it holds tasks to, where its runner says so."""

from __future__ import annotations

import re

from msgspec import structs

from phalanx.cli.node import _table, node_lines
from phalanx.coordinator.views_cluster import node_view
from phalanx.core.cluster.inputs import Hello
from phalanx.core.model.resources import Capacity, Isolation
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


def held(capacity: Capacity) -> dict[str, str]:
    cluster = Cluster()
    cluster.give(Hello("n1", "a", "origin", capacity, []))
    lines = node_lines(node_view(cluster.state, cluster.state.nodes["n1"]))
    words = [re.split(r"  +", line, maxsplit=1) for line in lines]
    return {
        each[0].rstrip(":"): each[-1]
        for each in words
        if each[0].rstrip(":") in ("Enforces", "Does not enforce", "Because")
    }


def test_what_a_node_holds_tasks_to_is_shown_with_what_it_does_not():
    weak = Isolation("affinity", "", "limit", "", "none", "watched", "n1: Permission denied")
    said = held(structs.replace(a_capacity(), isolation=weak))
    assert [*said.values()] == [
        "CPUs (affinity), memory (limit), scratch folders (watched)",
        "CPUs, CPU time, number of processes",
        "n1: Permission denied",
    ]
    assert held(structs.replace(a_capacity(), isolation=Isolation()))["Enforces"] == "nothing"
    assert held(a_capacity()) == {}


def test_a_table_of_nodes_says_what_is_not_held_where_memory_is_not():
    cluster = Cluster()
    cluster.give(Hello("n1", "a", "o1", structs.replace(a_capacity(), isolation=Isolation("affinity")), []))
    full = Isolation("cpuset", "quota", "limit", "limit", "none")
    cluster.give(Hello("n2", "a", "o2", structs.replace(a_capacity(), devices=(), isolation=full), []))
    n1, n2 = (node_view(cluster.state, cluster.state.nodes[name]) for name in ("n1", "n2"))
    assert "ISOLATION" not in _table([n2], wide=False).headings
    weak = _table([n1, n2], wide=False)
    assert [row[weak.headings.index("ISOLATION")] for row in weak.rows] == [
        "without CPUs, CPU time, memory, number of processes, devices",
        "full",
    ]
