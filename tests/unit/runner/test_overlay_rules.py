"""The firewall of task networks, as commands for nft."""

from __future__ import annotations

from msgspec import structs

from phalanx.runner.overlay_owners import NodeTasks
from phalanx.runner.overlay_rules import NOBODY, FirewallNames, Rules, ruleset

NAMES = FirewallNames("t", "l", "v")
SUBNET, BLOCKS = "10.128.0.0/12", ["10.128.0.0/22"]


def rules_for(owners: dict[str, str], here: NodeTasks = NOBODY, marks: dict[str, int] | None = None) -> Rules:
    return ruleset(NAMES, SUBNET, {}, owners, BLOCKS, here, marks)


def from_node(rules: Rules) -> list[str]:
    """What the chain for the node's own processes says before it drops."""
    at = rules.chains.index("chain from_node {")
    return list(rules.chains[at + 1 : rules.chains.index("}", at)])


def test_each_task_has_its_source_and_its_owner_in_the_table():
    rules = ruleset(
        FirewallNames("phalanx_ab", "phxabt", "phxabv"),
        SUBNET,
        {"phxabt1": "10.128.0.2", "phxabt2": "10.128.0.3"},
        {"10.128.0.2": "ada", "10.128.0.3": "eve", "10.128.4.2": "ada"},
        ["10.128.0.0/22", "10.128.4.0/22"],
    )
    text = rules.whole()
    assert 'add element inet phalanx_ab source { "phxabt1" . 10.128.0.2, "phxabt2" . 10.128.0.3 }' in text
    assert "allowed { 10.128.0.2 . 1, 10.128.0.3 . 2, 10.128.4.2 . 1 }" in text
    assert "owner { 10.128.0.2 : 1, 10.128.0.3 : 2, 10.128.4.2 : 1 }" in text
    assert "nodes { 10.128.0.1, 10.128.4.1 }" in text
    assert text.startswith("table inet phalanx_ab {}\ndelete table inet phalanx_ab\n")


def test_an_address_without_a_known_owner_is_allowed_to_nobody():
    rules = ruleset(NAMES, SUBNET, {"l": "10.128.0.2"}, {}, BLOCKS)
    assert rules.elements["allowed"] == frozenset()


def test_between_tasks_the_owner_decides_also_about_flows_that_were_there_before():
    chains = rules_for({"10.128.0.2": "ada"}).chains
    [accepted] = [line for line in chains if line.startswith('oifname "l*"') and "established" in line]
    assert f"ip saddr != {SUBNET}" in accepted


def test_tasks_of_the_nodes_own_network_are_known_by_their_cgroups():
    here = NodeTasks({2: {"unified/phalanx-n1/a": "ada"}, 3: {"unified/phalanx-n1/x/b": "eve"}}, {})
    rules = rules_for({"10.128.0.2": "ada", "10.128.4.2": "eve"}, here)
    assert rules.elements["cgroups2"] == {'"unified/phalanx-n1/a" : 1'}
    assert rules.elements["cgroups3"] == {'"unified/phalanx-n1/x/b" : 2'}
    assert from_node(rules)[2:] == [
        "meta mark set socket cgroupv2 level 2 map @cgroups2",
        "meta mark set socket cgroupv2 level 3 map @cgroups3",
        "ip daddr . meta mark @allowed accept",
        "drop",
    ]


def test_they_are_known_by_their_accounts_where_these_tell_them_apart():
    rules = rules_for({"10.128.0.2": "ada"}, NodeTasks({}, {1000: "ada"}))
    assert rules.elements["accounts"] == {"1000 : 1"}
    assert "meta mark set meta skuid map @accounts" in from_node(rules)


def test_who_is_not_known_reaches_nothing():
    assert from_node(rules_for({"10.128.0.2": "ada"})) == [
        "icmp type { echo-reply, destination-unreachable, time-exceeded, parameter-problem } accept",
        "meta mark set 0",
        "ip daddr . meta mark @allowed accept",
        "drop",
    ]


def test_the_port_of_the_network_itself_is_closed_to_accounts_and_no_packet_of_another_node_is_from_here():
    text = ruleset(NAMES, SUBNET, {}, {}, ["10.128.4.0/22", "10.128.0.0/22"]).whole()
    output = text[text.index("chain output") :].split("\n}")[0]
    assert "udp dport 8473 meta skuid != 0 meta mark 0 drop" in output
    assert 'iifname "v" ip saddr 10.128.4.0/22 drop' in text
    assert 'iifname "v" meta nfproto ipv6 drop' in text


def test_only_what_changed_is_told_to_the_kernel():
    marks: dict[str, int] = {}
    former = rules_for({"10.128.0.2": "eve", "10.128.0.3": "eve"}, marks=marks)
    rules = rules_for({"10.128.0.2": "ada", "10.128.0.3": "eve"}, marks=marks)
    assert rules.change(former) == (
        "delete element inet t allowed { 10.128.0.2 . 1 }\ndelete element inet t owner { 10.128.0.2 : 1 }\n"
        "add element inet t allowed { 10.128.0.2 . 2 }\nadd element inet t owner { 10.128.0.2 : 2 }\n"
    )
    assert rules.change(structs.replace(former, table="other")) is None


def test_a_cgroup_that_is_gone_cannot_be_named_any_more():
    owners = {"10.128.0.2": "ada"}
    former = rules_for(owners, NodeTasks({1: {"a": "ada", "b": "ada"}}, {}))
    rules = rules_for(owners, NodeTasks({1: {"b": "ada"}}, {}))
    assert rules.change(former) == 'flush map inet t cgroups1\nadd element inet t cgroups1 { "b" : 1 }\n'
