"""`phalanx queue`: limits set, lifted and shown."""

from __future__ import annotations

from msgspec import json

from phalanx.api.schema.cluster import QueueView, QuotaSpec
from tests.support.fake_client import Cli, FakeClient, a_queue


def test_list_shows_what_is_held_of_what_may_be(cli: Cli, cluster: FakeClient):
    lines = cli("queue", "list").out.splitlines()
    assert lines[1].split("  ")[0] == "default"
    assert "16/64" in lines[1] and "4/8" in lines[1] and "1 TiB" in lines[1]
    assert "/" not in lines[2]


def test_list_in_json_is_the_views(cli: Cli, cluster: FakeClient):
    told = json.decode(cli("queue", "list", "-o", "json").out, type=list[QueueView])
    assert [queue.name for queue in told] == ["default", "lab"]


def test_a_quota_is_set_and_lifted(cli: Cli, cluster: FakeClient):
    assert cli("queue", "set", "lab", "--gpus", "8", "--memory", "2TiB").code == 0
    assert cli("queue", "unset", "lab").code == 0
    assert cluster.asked == [
        ("set_quota", "lab", QuotaSpec(gpus=8, memory="2TiB")),
        ("set_quota", "lab", None),
    ]


def test_a_quota_may_hold_parts_of_cores(cli: Cli, cluster: FakeClient):
    assert cli("queue", "set", "lab", "--cores", "7.5").code == 0
    assert cluster.asked == [("set_quota", "lab", QuotaSpec(cores=7.5))]


def test_one_queue_is_shown(cli: Cli, cluster: FakeClient):
    assert "Waiting:  3" in cli("queue", "show", "default").out
    assert json.decode(cli("queue", "show", "default", "-o", "json").out, type=QueueView) == a_queue()
