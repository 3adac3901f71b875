"""The read-only commands: why, story, nodes, node, cluster, version."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Literal

import pytest
from msgspec import json

from phalanx.api.schema.cluster import ClusterView, NodeView, TokenView
from phalanx.api.schema.jobs import Fix, NodeReasons, ReasonView, StoryLine, WhyReply
from phalanx.cli import pages
from phalanx.cli.output import moment, time_of_day
from phalanx.cli.shape import ClusterShape, remember
from phalanx.clock import SystemClock
from phalanx.errors import Forbidden
from tests.support.fake_client import ID, Cli, FakeClient, a_node, a_why


def test_why_tells_the_reason_the_others_the_nodes_and_the_fix(cli: Cli, cluster: FakeClient):
    cluster.answer = a_why(
        others=[ReasonView("PriorityBehind", "policy", "2 tasks go first")],
        nodes=[
            NodeReasons(8, ReasonView("WaitingCapacity", "capacity", "2 GPUs free, 4 needed"), ["n1", "n2"]),
            NodeReasons(1, ReasonView("Maintenance", "held", "drained"), ["n9"]),
        ],
        fix=Fix("it would start now with 2 GPUs", command="phalanx submit --gpus 2 -- train"),
        position=3,
        waiting=12,
    )
    assert cli("why", ID).out.splitlines() == [
        f"{ID} is Pending: 4 GPUs needed, 2 free (WaitingCapacity)",
        "  also: 2 tasks go first (PriorityBehind)",
        "  8 nodes: 2 GPUs free, 4 needed (WaitingCapacity) [n1, n2, …]",
        "  1 node: drained (Maintenance) [n9]",
        "fix: it would start now with 2 GPUs",
        "  phalanx submit --gpus 2 -- train",
        "queue position: 3 of 12 waiting tasks",
    ]


def test_why_says_nothing_twice(cli: Cli, cluster: FakeClient):
    text = "n3 is drained: bad fan"
    cluster.answer = a_why(
        dominant=ReasonView("Maintenance", "held", text),
        others=[ReasonView("NodeNotChosen", "never", "n4 is not chosen")],
        nodes=[
            NodeReasons(
                3, ReasonView("NodeNotChosen", "never", "for example: n4 is not chosen"), ["n4", "n2", "n1"]
            ),
            NodeReasons(1, ReasonView("Maintenance", "held", text), ["n3"]),
        ],
    )
    assert cli("why", ID).out.splitlines() == [
        f"{ID} is Pending: {text} (Maintenance)",
        "  3 nodes: for example: n4 is not chosen (NodeNotChosen) [n4, n2, n1]",
    ]
    assert len(cli("why", ID, "-o", "wide").out.splitlines()) == 5
    cluster.answer = a_why(
        number="76.1",
        status="Failed",
        dominant=ReasonView("EndedFailed", "progress", "76.1: exited with code 3"),
    )
    assert cli("why", ID).out == "76.1 is Failed: exited with code 3 (EndedFailed)\n"


def test_a_node_of_up_is_brought_back_by_up(cli: Cli, cluster: FakeClient, tmp_path: Path):
    fix = Fix("start the runner on n1 again", {}, "phalanx runner --join HOST:7434 --name n1")
    cluster.answer = a_why(fix=fix)
    assert "phalanx runner --join HOST:7434 --name n1" in cli("why", ID).out
    folder = tmp_path / "home" / ".local" / "state" / "phalanx"
    folder.mkdir(parents=True)
    remember(folder, ClusterShape(2, ("gpus=8",), None, ("n1", "n2")))
    assert cli("why", ID).out.splitlines()[-1] == "  phalanx up"


def test_why_of_a_node_says_whether_it_takes_work(cli: Cli, cluster: FakeClient):
    cluster.machines = [a_node("x9", status="Unhealthy", note="disk / is 99% full")]
    said = cli("why", "x9")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[0] == "x9 is a node: Unhealthy, it takes no new work (disk / is 99% full)"
    assert "phalanx story x9" in said.out
    cluster.machines = [a_node("x9", status="Offline", last_seen_at=0.0)]
    assert "takes no new work (last heard from at 1970-01-01" in cli("why", "x9").out
    cluster.machines = [a_node("x9")]
    assert cli("why", "x9").out.splitlines()[0] == "x9 is a node: Online, it takes work"
    assert cli("why", "x9", "-o", "name").out == "x9\n"
    cluster.machines = []
    assert "no job nosuch" in cli("why", "nosuch").err


def test_what_ended_has_a_next_step_rather_than_a_fix(cli: Cli, cluster: FakeClient):
    cluster.answer = a_why(status="Failed", fix=Fix("see its log", {}, f"phalanx logs {ID}"))
    assert cli("why", ID).out.splitlines()[1:] == ["next: see its log", f"  phalanx logs {ID}"]


def test_why_in_json_is_the_reply(cli: Cli, cluster: FakeClient):
    assert json.decode(cli("why", ID, "-o", "json").out, type=WhyReply) == a_why()
    assert cli("why", ID, "-o", "name").out == "WaitingCapacity\n"
    assert "epoch 1" in cli("why", ID, "-o", "wide").out


def test_a_long_reason_is_never_cut(cli: Cli, cluster: FakeClient):
    cluster.answer = a_why(dominant=ReasonView("WaitingCapacity", "capacity", "long " * 200))
    assert "long " * 200 in cli("why", ID).out


def test_story_tells_time_event_and_sentence(cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch):
    cluster.lines = [StoryLine(1, 1000.0, "JobSubmitted", "submitted: true", node="n1")]
    time, event, sentence = cli("story", ID).out.splitlines()[1].split("  ")
    assert (len(time), event, sentence) == (len(moment(1.0)), "JobSubmitted", "submitted: true")
    assert json.decode(cli("story", ID, "-o", "json").out, type=list[StoryLine]) == cluster.lines


def test_a_node_has_a_story_too(cli: Cli, cluster: FakeClient):
    cluster.lines = [StoryLine(1, 1000.0, "NodeJoined", "n1 joined")]
    assert "n1 joined" in cli("story", "n1").out
    assert cluster.asked == [("story", "n1", None), ("story", "n1", "nodes")]


def test_a_story_longer_than_its_limit_says_so(cli: Cli, cluster: FakeClient):
    cluster.lines = [StoryLine(number, 1000.0, "Event", "text") for number in range(5)]
    said = cli("story", ID, "--limit", "2", "-o", "json")
    assert json.decode(said.out, type=list[StoryLine]) == cluster.lines[-2:]
    assert "--limit" in said.err
    assert not cli("story", ID, "--limit", "5").err


def test_a_long_story_is_read_back_page_by_page(
    cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pages, "PAGE_MAX", 2)
    cluster.lines = [StoryLine(number, 1000.0 + number, "Event", "text") for number in range(1, 8)]
    for limit in (5, 7, 100):
        said = cli("story", ID, "--tail", str(limit), "-o", "json")
        assert json.decode(said.out, type=list[StoryLine]) == cluster.lines[-limit:]
        assert ("left out" in said.err) == (limit < 7)


def test_a_story_since_some_time(cli: Cli, cluster: FakeClient):
    now = SystemClock().now()
    cluster.lines = [StoryLine(at, now - 1000.0 + at, "Event", "text") for at in (1, 500, 990)]
    for since, count in (("1h", 3), ("10m", 2), ("1m", 1), ("1s", 0)):
        said = cli("story", ID, "--since", since, "-o", "json")
        assert len(json.decode(said.out, type=list[StoryLine])) == count
        assert ("nothing happened" in said.err) == (count == 0)


def test_nodes_tell_what_is_free_and_who_holds_which_device(cli: Cli, cluster: FakeClient):
    cluster.machines = [a_node(), a_node("n2", devices=[], drained=True, drain_reason="fan\x1b[5m noise")]
    lines = cli("nodes").out.splitlines()
    assert lines[1].split() == ["n1", "Online", "6/8", "8/16", "GiB", "1/2", "h100", "1", "-"]
    assert lines[2].endswith("fan noise")
    assert lines[2].split()[1] == "Draining", "tasks still run there"
    cluster.machines[1].task_count = 0
    assert cli("nodes").out.splitlines()[2].split()[1] == "Drained"
    assert f"0:{ID} 1:free" in cli("nodes", "-o", "wide").out
    assert json.decode(cli("node", "list", "-o", "json").out, type=list[NodeView]) == cluster.machines


def test_node_show(cli: Cli, cluster: FakeClient):
    out = cli("node", "show", "n1").out
    assert f"  GPU 0  h100  80 GiB  {ID}\n  GPU 1  h100  80 GiB  free\n" in out


def test_a_drain_may_have_a_reason(cli: Cli, cluster: FakeClient):
    assert cli("node", "drain", "n1").code == 0
    assert cluster.asked.pop() == ("drain", "n1", "")
    assert cli("node", "drain", "n1", "--reason", "new fan").out == (
        "n1 is draining: new fan (1 task still running there)\n"
    )
    assert cli("node", "resume", "n1").out == "n1 is schedulable again\n"
    assert cluster.asked == [("drain", "n1", "new fan"), ("undrain", "n1")]


def test_a_node_is_disabled_and_enabled(cli: Cli, cluster: FakeClient):
    off = cli("node", "elastic", "n1", "off", "--reason", "saves power")
    assert off.out == "n1 is disabled by ada: saves power; 2 tasks there still running\n"
    assert cli("node", "elastic", "n1", "on").out == "n1 is enabled\n"
    assert cli("node", "elastic", "n1", "maybe").code == 2
    assert cluster.asked == [("set_elastic", "n1", False, "saves power"), ("set_elastic", "n1", True, "")]


@pytest.mark.parametrize("word", ["cluster", "status"])
def test_the_cluster_in_a_few_lines(cli: Cli, cluster: FakeClient, word: str):
    out = cli(word).out
    assert "1 of 2 online" in out
    assert "7 pending" in out
    assert json.decode(cli(word, "-o", "json").out, type=ClusterView) == cluster.cluster()


def test_version(cli: Cli):
    assert cli("version").out.startswith("phalanx ")
    assert cli("--version").out.startswith("phalanx ")
    assert set(json.decode(cli("version", "-o", "json").out)) == {"phalanx", "python"}


def test_a_node_is_declared_lost_with_a_reason_and_removed_without(cli: Cli, cluster: FakeClient):
    said = cli("node", "lose", "n1")
    assert (said.code, "--reason" in said.err) == (2, True)
    assert cli("node", "lose", "n1", "--reason", "it burnt").out == "n1 is lost: it burnt\n"
    said = cli("node", "remove", "n1")
    assert (said.out, said.err) == ("n1 removed\n", "")
    assert cluster.asked == [("lose", "n1", "it burnt"), ("remove", "n1"), ("tokens",)]


@pytest.mark.parametrize(("kind", "name", "is_valid", "told"), [
    ("node", "n1", True, True), ("node", "n1", False, False), ("node", "n2", True, False), ("user", "n1", True, False),
])  # fmt: skip
def test_the_credential_of_a_removed_node_that_is_still_valid_is_named(
    cli: Cli, cluster: FakeClient, kind: Literal["user", "node"], name: str, is_valid: bool, told: bool
):
    cluster.credentials = [
        TokenView("abc123", kind, name, "", is_valid, not is_valid, 0.0, "ada", None, None)
    ]
    assert ("phalanx token revoke abc123" in cli("node", "remove", "n1").err) == told


def test_the_credential_of_a_removed_node_is_revoked_in_the_same_step_if_asked(cli: Cli, cluster: FakeClient):
    cluster.credentials = [TokenView("abc123", "node", "n1", "", True, False, 0.0, "ada", None, None)]
    said = cli("node", "remove", "n1", "--revoke")
    assert (said.out, "abc123 is revoked" in said.err) == ("n1 removed\n", True)
    assert cluster.asked[-1] == ("revoke_token", "abc123")
    cluster.asked.clear()
    cluster.error = Forbidden("an admin may")
    assert cli("node", "remove", "n1", "--revoke").code == 77
    assert cluster.verbs() == ["tokens"], "nothing was removed"


def test_what_is_unusual_about_a_node_is_noted(cli: Cli, cluster: FakeClient):
    until = datetime(2026, 11, 15, 11, 52, 9).astimezone().timestamp()
    note = "temporarily excluded: 5 tasks in a row failed here"
    cluster.machines = [a_node(), a_node("n2", note=note, excluded_until=until)]
    assert "NOTE" in cli("nodes").out
    assert f"{note} (until {time_of_day(until)})" in cli("nodes").out
    cluster.machines.reverse()
    assert f"{note} (until {time_of_day(until)})" in cli("node", "show", "n2").out
    cluster.machines = [a_node()]
    assert "NOTE" not in cli("nodes").out
