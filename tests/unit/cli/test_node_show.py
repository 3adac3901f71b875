"""`phalanx node show`: the price of a node and what it holds tasks to, where its runner says so."""

from __future__ import annotations

import re

import pytest
from msgspec import structs

from phalanx.api.schema.cluster import AccountsView
from phalanx.cli.node import _table, node_lines
from phalanx.coordinator.views_cluster import node_view
from phalanx.core.cluster.inputs import Hello
from phalanx.core.model.resources import Capacity, Isolation, TaskAccounts
from tests.support.builders import Cluster, a_capacity
from tests.support.fake_client import Cli, FakeClient, a_node


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
        if each[0].rstrip(":") in ("Enforces", "Does not enforce", "Because", "Accounts")
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


def test_a_node_says_as_whom_its_tasks_run():
    said = {
        TaskAccounts(shared="phalanx"): "all tasks run as phalanx, whoever submits them",
        TaskAccounts(mapped=True): "tasks run as the accounts of their users, never as root",
        TaskAccounts(mapped=True, root=True): "tasks run as the accounts of their users, root among them",
    }
    for accounts, line in said.items():
        assert held(structs.replace(a_capacity(), accounts=accounts)) == {"Accounts": line}
    assert held(a_capacity()) == {}


def test_a_list_of_nodes_says_where_users_share_an_account(cli: Cli, cluster: FakeClient):
    shared, mapped = AccountsView(shared="root", root=True), AccountsView(mapped=True)
    cluster.machines = [a_node(f"n{number}", accounts=shared) for number in range(1, 6)]
    cluster.machines.append(a_node("n6", accounts=mapped))
    said = cli("nodes")
    assert said.err == "Tasks of all users run as root on n1, n2, n3 and 2 more (no runner.accounts)\n"
    wide = [line.split() for line in cli("nodes", "-o", "wide").out.splitlines()]
    assert "ACCOUNTS" in wide[0]
    assert "root for all" in " ".join(wide[1])
    assert "of users" in " ".join(wide[6])
    assert cli("nodes", "-o", "json").err == ""
    cluster.machines = [a_node("n6", accounts=mapped), a_node("n7")]
    assert cli("nodes").err == ""


def test_a_table_of_nodes_says_what_is_not_held():
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


@pytest.mark.parametrize(
    ("field", "word", "lacking"),
    [("cpus", "affinity", "CPUs"), ("processes", "", "number of processes"), ("devices", "", "devices")],
)
def test_a_table_of_nodes_says_what_alone_is_not_held(field: str, word: str, lacking: str):
    full = Isolation("cpuset", "quota", "limit", "limit", "none")
    cluster = Cluster()
    has = structs.replace(a_capacity(), isolation=structs.replace(full, **{field: word}))
    cluster.give(Hello("n1", "a", "o1", has, []))
    table = _table([node_view(cluster.state, cluster.state.nodes["n1"])], wide=False)
    assert table.rows[0][table.headings.index("ISOLATION")] == f"without {lacking}"
