"""Elastic nodes in a running cluster: toggled over FlowMesh's path and by the command line, and by the cluster itself.

Automatic scaling has the shortest intervals that its settings allow; `elastic_defaults.py` has the defaults. The
operator's program is a shell script.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.elastic_defaults import broken_waits, node_times
from tests.support.real_cluster import RealCluster
from tests.support.waiting import wait_until

NODES = dict.fromkeys(("n1", "n2", "n3"), "cpus=2,ram=4GiB")
QUICK = {
    "ENABLE_ELASTIC_SCALING": "true",
    "ELASTIC_AUTO_DISABLE_IDLE_SEC": "2",
    "ELASTIC_AUTO_POLL_INTERVAL_SEC": "5",
    "ELASTIC_AUTO_TOGGLE_COOLDOWN_SEC": "30",
}


def toggle(cluster: RealCluster, worker: str, enabled: bool) -> tuple[int, dict[str, Any]]:
    """The status and the document that FlowMesh's path answers with."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{cluster.port}/workers/{worker}/elastic",
        json.dumps({"enabled": enabled}).encode(),
        {"Authorization": f"Bearer {cluster.user_token}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def a_script(folder: Path) -> tuple[str, Path]:
    """A program that keeps each document as a line."""
    told = folder / "told.jsonl"
    script = folder / "power"
    script.write_text(f'#!/bin/sh\ncat >> "{told}"\n', encoding="utf-8")
    script.chmod(0o755)
    return str(script), told


def said(file: Path) -> list[tuple[str, str]]:
    """The events that the program was given, with their nodes."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [(each["event"], (each["node"] or {}).get("name", "")) for each in map(json.loads, lines)]


def disabled(cluster: RealCluster) -> list[str]:
    return [node.name for node in cluster.client.nodes() if node.elastic_disabled]


def test_a_node_is_toggled_by_hand_and_the_program_is_given_each_change(tmp_path: Path) -> None:
    script, told = a_script(tmp_path)
    cluster = RealCluster(tmp_path, settings={"elastic.command": script})
    try:
        cluster.start({name: NODES[name] for name in ("n1", "n2")})
        runs = cluster.client.submit(targets=["n1"], command=["sleep", "300"]).task_ids[0]
        cluster.wait_task(runs, "Running")
        assert toggle(cluster, "n1", False) == (
            200,
            {"worker_id": "n1", "enabled": False, "elastic_disabled": True},
        )
        assert toggle(cluster, "n9", False)[0] == 404
        waits = cluster.client.submit(targets=["n1"], command=["true"]).task_ids[0]
        elsewhere = cluster.client.submit(command=["true"]).task_ids[0]
        assert cluster.wait_task(elsewhere, "Completed").node == "n2"
        why = cluster.client.why(waits).dominant
        assert (why.code, cluster.client.task(runs).status) == ("NodeDisabled", "Running")
        cluster.client.set_elastic("n1", enabled=True, reason="it is needed")
        cluster.wait_task(waits, "Completed")
        wait_until(lambda: said(told) == [("disabled", "n1"), ("enabled", "n1")], 15.0, "both are told")
    finally:
        cluster.stop()


def test_a_node_that_was_not_left_alone_and_a_poll_that_enabled_two_are_named() -> None:
    """What the next test and `elastic_defaults.py` ask of the times in stories."""
    off = {"n1": [100.0], "n2": [100.0], "n3": [100.0]}
    assert broken_waits(off, {"n1": [160.0], "n2": [190.0], "n3": [220.0]}, 60.0, 30.0) == []
    on = {"n1": [159.0], "n2": [190.0], "n3": [191.0]}
    assert broken_waits(off, on, 60.0, 30.0) == [
        "n1 was enabled 59.0 s after it was disabled",
        "two nodes were enabled 1.0 s after each other",
    ]


def test_a_feature_that_is_off_refuses(tmp_path: Path) -> None:
    cluster = RealCluster(tmp_path)
    cluster.environment = {"ENABLE_ELASTIC_SCALING": "false"}
    try:
        cluster.start({"n1": NODES["n1"]})
        status, problem = toggle(cluster, "n1", False)
        assert (status, problem["reason"]) == (400, "ElasticOff")
    finally:
        cluster.stop()


@pytest.mark.timeout(150)
def test_an_idle_pool_shrinks_keeps_that_over_a_restart_and_grows_again(tmp_path: Path) -> None:
    script, told = a_script(tmp_path)
    cluster = RealCluster(tmp_path, settings={"elastic.command": script})
    cluster.environment = QUICK
    try:
        cluster.start(NODES)
        wait_until(lambda: len(disabled(cluster)) == 2, 30.0, "two are disabled")
        names = disabled(cluster)
        notes = {node.name: node.note for node in cluster.client.nodes()}
        assert all(notes[name].startswith("disabled automatically after") for name in names)
        # Notices are not durable: one that is under way when the coordinator is killed is lost.
        wait_until(lambda: len(said(told)) == 2, 15.0, "both were told")
        cluster.kill("coordinator")
        cluster.start_coordinator()
        wait_until(cluster.is_ready, 30.0, "the coordinator is back")
        assert disabled(cluster) == names
        ids = [cluster.client.submit(command=["sleep", "300"], cores=2).task_ids[0] for _ in range(3)]
        nodes = {cluster.wait_task(id, "Running", within_s=80.0).node for id in ids}
        assert nodes == set(NODES)
        assert disabled(cluster) == []
        toggles = {node.name: node.toggled_at for node in cluster.client.nodes() if node.name in names}
        assert all(at is not None for at in toggles.values())
        wait_until(
            lambda: sorted(said(told)[2:]) == [("enabled", name) for name in sorted(names)], 15.0, "told"
        )
        assert sorted(said(told)[:2]) == [("disabled", name) for name in sorted(names)]
        times = {name: node_times(cluster, name) for name in names}
        off, on = (
            {name: each[kind] for name, each in times.items()} for kind in ("NodeDisabled", "NodeEnabled")
        )
        assert [len(each) for each in (*off.values(), *on.values())] == [1, 1, 1, 1]
        assert broken_waits(off, on, cooldown_s=30.0, poll_s=5.0) == []
        text = "\n".join(line.text for line in cluster.client.story(names[0], of="nodes").items)
        assert "is disabled automatically after" in text
        assert "is enabled automatically, since" in text
    finally:
        cluster.stop()
