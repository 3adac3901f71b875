"""The firewall of task networks, as text."""

from __future__ import annotations

from phalanx.runner.overlay_owners import NodeTasks
from phalanx.runner.overlay_rules import ruleset


def test_each_task_has_its_source_and_its_owner_in_the_table():
    text = ruleset(
        "phalanx_ab",
        "10.128.0.0/12",
        {"phxabt1": "10.128.0.2", "phxabt2": "10.128.0.3"},
        {"10.128.0.2": "ada", "10.128.0.3": "eve", "10.128.4.2": "ada"},
        ["10.128.0.0/22", "10.128.4.0/22"],
        "phxabt",
        "phxabv",
    )
    assert 'elements = { "phxabt1" . 10.128.0.2, "phxabt2" . 10.128.0.3 }' in text
    assert "elements = { 10.128.0.2 . 1, 10.128.0.3 . 2, 10.128.4.2 . 1 }" in text
    assert "elements = { 10.128.0.2 : 1, 10.128.0.3 : 2, 10.128.4.2 : 1 }" in text
    assert "elements = { 10.128.0.1, 10.128.4.1 }" in text
    assert text.startswith("table inet phalanx_ab {}\ndelete table inet phalanx_ab\n")


def test_an_address_without_a_known_owner_is_allowed_to_nobody():
    text = ruleset("t", "10.128.0.0/12", {"l": "10.128.0.2"}, {}, ["10.128.0.0/22"], "l", "v")
    assert "set allowed { type ipv4_addr . mark; }" in text


def test_between_tasks_the_owner_decides_also_about_flows_that_were_there_before():
    text = ruleset("t", "10.128.0.0/12", {"l": "10.128.0.2"}, {}, ["10.128.0.0/22"], "l", "v")
    [accepted] = [
        line for line in text.splitlines() if line.startswith('oifname "l*"') and "established" in line
    ]
    assert "ip saddr != 10.128.0.0/12" in accepted


def test_tasks_of_the_node_s_own_network_are_known_by_their_cgroups():
    here = NodeTasks({2: {"unified/phalanx-n1/a": "ada"}, 3: {"unified/phalanx-n1/x/b": "eve"}}, {})
    owners = {"10.128.0.2": "ada", "10.128.4.2": "eve"}
    text = ruleset("t", "10.128.0.0/12", {}, owners, ["10.128.0.0/22"], "l", "v", here)
    assert 'map cgroups2 { type cgroupsv2 : mark; elements = { "unified/phalanx-n1/a" : 1 } }' in text
    assert 'map cgroups3 { type cgroupsv2 : mark; elements = { "unified/phalanx-n1/x/b" : 2 } }' in text
    chain = text[text.index("chain from_node") :].split("\n}")[0].splitlines()
    assert chain[3:] == [
        "meta mark set socket cgroupv2 level 2 map @cgroups2",
        "meta mark set socket cgroupv2 level 3 map @cgroups3",
        "ip daddr . meta mark @allowed accept",
        "drop",
    ]


def test_they_are_known_by_their_accounts_where_these_tell_them_apart():
    owners = {"10.128.0.2": "ada"}
    here = NodeTasks({}, {1000: "ada"})
    text = ruleset("t", "10.128.0.0/12", {}, owners, ["10.128.0.0/22"], "l", "v", here)
    assert "map accounts { type uid : mark; elements = { 1000 : 1 } }" in text
    assert "meta mark set meta skuid map @accounts" in text


def test_who_is_not_known_reaches_nothing():
    text = ruleset("t", "10.128.0.0/12", {}, {"10.128.0.2": "ada"}, ["10.128.0.0/22"], "l", "v")
    chain = text[text.index("chain from_node") :].split("\n}")[0].splitlines()
    assert chain[1:] == [
        "icmp type { echo-reply, destination-unreachable, time-exceeded, parameter-problem } accept",
        "meta mark set 0",
        "ip daddr . meta mark @allowed accept",
        "drop",
    ]


def test_the_port_of_the_network_itself_is_closed_to_accounts_and_no_packet_of_another_node_is_from_here():
    text = ruleset("t", "10.128.0.0/12", {}, {}, ["10.128.4.0/22", "10.128.0.0/22"], "l", "v")
    output = text[text.index("chain output") :].split("\n}")[0]
    assert "udp dport 8473 meta skuid != 0 meta mark 0 drop" in output
    assert 'iifname "v" ip saddr 10.128.4.0/22 drop' in text
    assert 'iifname "v" meta nfproto ipv6 drop' in text
