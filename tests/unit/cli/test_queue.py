"""`phalanx queue`: limits set, lifted and shown."""

from __future__ import annotations

import pytest
from msgspec import json

from phalanx.api.schema.queues import (
    ApprovalSpec,
    ApprovalView,
    QueueUserView,
    QueueView,
    QuotaSpec,
    QuotaView,
    UsageView,
    UserLimitsSpec,
    UserLimitsView,
)
from tests.support.fake_client import Cli, FakeClient, a_queue


def test_list_shows_what_is_held_of_what_may_be(cli: Cli, cluster: FakeClient):
    lines = cli("queue", "list").out.splitlines()
    assert lines[1].split("  ")[0] == "default"
    assert "16/64" in lines[1] and "4/8" in lines[1] and "1 TiB" in lines[1]
    assert "/" not in lines[2]


def test_list_shows_limits_of_users_where_there_are_any(
    cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch
):
    assert "USER LIMITS" not in (said := cli("queue", "list")).out
    assert said.err == ""
    quota = QuotaView(
        None, None, None, 4, each_user=UserLimitsView(gpus=2), by_user={"bob": UserLimitsView(gpus=3)}
    )
    monkeypatch.setattr(
        cluster, "queues", lambda: [a_queue(), a_queue("lab", quota=quota, used=UsageView(0, 0, 0, 0))]
    )
    lines = cli("queue", "list").out.splitlines()
    assert "USER LIMITS" in lines[0]
    assert "0/4" in lines[2] and lines[2].endswith("each 2 gpus; bob 3 gpus")


def test_how_high_users_may_raise_priorities_is_told_of_one_queue(cli: Cli, cluster: FakeClient):
    assert "1000 for users; queue set --priority-max changes it" in cli("queue", "show", "default").out


def test_list_in_json_is_the_views(cli: Cli, cluster: FakeClient):
    told = json.decode(cli("queue", "list", "-o", "json").out, type=list[QueueView])
    assert [queue.name for queue in told] == ["default", "lab"]


def test_a_quota_is_set_and_lifted(cli: Cli, cluster: FakeClient):
    assert cli("queue", "set", "lab", "--gpus", "8", "--memory", "2TiB").code == 0
    assert cli("queue", "unset", "lab").code == 0
    assert cluster.asked == [
        ("queues",),
        ("set_quota", "lab", QuotaSpec(gpus=8, memory="2TiB")),
        ("set_quota", "lab", None),
    ]


def test_a_quota_may_hold_parts_of_cores(cli: Cli, cluster: FakeClient):
    assert cli("queue", "set", "lab", "--cores", "7.5").code == 0
    assert cluster.asked[-1] == ("set_quota", "lab", QuotaSpec(cores=7.5))


def test_one_queue_is_shown(cli: Cli, cluster: FakeClient):
    assert "Waiting:           3" in cli("queue", "show", "default").out
    assert json.decode(cli("queue", "show", "default", "-o", "json").out, type=QueueView) == a_queue()


def test_what_is_left_out_stays_and_none_takes_a_limit_away(cli: Cli, cluster: FakeClient):
    assert cli("queue", "set", "default", "--users", "ada, bob", "--cores", "none").code == 0
    kept = QuotaSpec(memory=1 << 40, gpus=8, users=["ada", "bob"])
    assert cluster.asked[-1] == ("set_quota", "default", kept)


def test_limits_of_users_and_approvals_are_set(cli: Cli, cluster: FakeClient):
    line = "--user-running 10 --user-gpus 8 --user-submitted 1000 --for-user bob:gpus=16,memory=1TiB"
    assert (
        cli("queue", "set", "lab", *line.split(), "--approvers", "eve", "--approval-within", "24h").code == 0
    )
    assert cluster.asked[-1][2] == QuotaSpec(
        each_user=UserLimitsSpec(running=10, gpus=8, submitted=1000),
        by_user={"bob": UserLimitsSpec(gpus=16, memory="1TiB")},
        approval=ApprovalSpec(["eve"], "24h"),
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--user-gpus", "one"], "'one' is not a whole number"),
        (["--tasks", "-1"], "'-1' is not a whole number"),
        (["--for-user", "gpus=1"], "is not USER:LIMITS"),
        (["--for-user", "bob:gpu=1"], "'gpu=1' is not one of running, cores, memory, gpus, submitted"),
        (["--no-approval", "--approvers", "eve"], "--no-approval takes neither"),
    ],
)
def test_a_limit_that_cannot_be_read_is_named(cli: Cli, cluster: FakeClient, words: list[str], said: str):
    done = cli("queue", "set", "lab", *words)
    assert done.code == 2
    assert said in done.err
    assert not any(call[0] == "set_quota" for call in cluster.asked)


def test_a_queue_shows_its_users_with_their_limits_in_80_columns(cli: Cli, cluster: FakeClient):
    limits = UserLimitsView(running=10, memory_bytes=1 << 40, gpus=8, submitted=1000)
    used = UsageView(9, 143.5, 1020 << 30, 8)
    quota = QuotaView(users=["alice", "bob"], each_user=limits, approval=ApprovalView(["carol"], 86_400.0))
    cluster.queue = lambda name: a_queue(  # type: ignore[method-assign]
        name, quota=quota, submitted=777, users=[QueueUserView("alice.anderson", used, 777, limits)]
    )
    lines = cli("queue", "show", "lab").out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any("by carol, operators and admins" in line for line in lines)
    assert lines[-1].split() == ["alice.anderson", "9/10", "143.5", "1020", "GiB/1", "TiB", "8/8", "777/1000"]
