"""The firewall of task networks, as text."""

from __future__ import annotations

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
    assert "elements = { 10.128.0.2 . 1, 10.128.0.3 . 2 }" in text
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
