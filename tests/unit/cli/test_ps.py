"""`phalanx ps`: what is listed, in which order, and how."""

from __future__ import annotations

import pytest
import yaml
from msgspec import json

from phalanx.api.schema.jobs import Counts, JobView, WatchEvent
from tests.support.fake_client import ID, Cli, FakeClient, a_job, a_task

OLD, NEW, DONE = (ID[:-1] + envelope for envelope in "abc")


@pytest.fixture
def busy(cluster: FakeClient) -> FakeClient:
    cluster.held = [a_job(DONE, "Completed"), a_job(NEW, "Pending"), a_job(OLD, "Running")]
    return cluster


def ids(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines()[1:]]


def test_it_lists_what_lives_the_newest_first(cli: Cli, busy: FakeClient):
    assert ids(cli("ps").out) == [NEW, OLD]


def test_all_lists_what_has_ended_too(cli: Cli, busy: FakeClient):
    assert ids(cli("ps", "-a").out) == [DONE, NEW, OLD]


def test_a_status_may_be_written_in_any_case(cli: Cli, busy: FakeClient):
    assert ids(cli("ps", "--status", "completed", "--status", "RUNNING").out) == [DONE, OLD]


def test_queue_and_name_are_asked_for(cli: Cli, busy: FakeClient):
    cli("ps", "-a", "-q", "long", "--name", "train", "-l", "app=x,!draft")
    assert busy.asked[0][1] == {
        "status": None,
        "queue": "long",
        "name": "train",
        "selector": "app=x,!draft",
        "cursor": None,
        "limit": 1000,
    }


def test_a_list_longer_than_a_page_is_read_to_its_end(cli: Cli, cluster: FakeClient):
    cluster.held = [a_job(f"{number:026d}", "Running") for number in range(2500)]
    assert len(ids(cli("ps", "--status", "Running", "--limit", "2200").out)) == 2200
    assert [call[1]["limit"] for call in cluster.asked] == [1000, 1000, 200]


def test_into_a_pipe_goes_the_whole_list(cli: Cli, cluster: FakeClient):
    cluster.held = [a_job(f"{number:026d}", "Running") for number in range(250)]
    assert len(ids(cli("ps", "--status", "Running").out)) == 250
    assert len(ids(cli("ps", "--status", "Running", "--limit", "0").out)) == 250


def test_a_list_that_was_cut_says_so(cli: Cli, cluster: FakeClient):
    cluster.held = [a_job(f"{number:026d}", "Running") for number in range(9)]
    assert "there are more than these 5" in cli("ps", "--status", "Running", "--limit", "5", "-o", "json").err


def test_an_empty_list_still_has_its_headings(cli: Cli, cluster: FakeClient):
    said = cli("ps")
    assert (said.code, said.out) == (0, "ID  NAME  STATUS\n")


def test_json_and_yaml_are_the_views_as_they_are(cli: Cli, busy: FakeClient):
    assert json.decode(cli("ps", "-a", "-o", "json").out, type=list[JobView]) == busy.held
    assert [each["id"] for each in yaml.safe_load(cli("ps", "-o", "yaml").out)] == [NEW, OLD]
    assert cli("ps", "-o", "name").out == f"{NEW}\n{OLD}\n"


def test_the_format_may_come_from_a_variable(cli: Cli, busy: FakeClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PHALANX_OUTPUT", "name")
    assert cli("ps").out == f"{NEW}\n{OLD}\n"


def test_into_a_pipe_nothing_is_cut_or_coloured(cli: Cli, cluster: FakeClient):
    long = "--flag=" + "x" * 500
    cluster.held = [a_job(command=["train", long], reason="r" * 300)]
    out = cli("ps", "-o", "wide").out
    assert long in out
    assert "r" * 300 in out
    assert "\x1b" not in out


def test_escapes_in_what_users_wrote_are_taken_out(cli: Cli, cluster: FakeClient):
    cluster.held = [a_job(command=["echo", "\x1b[2J\x1b]52;c;ZXZpbA==\x07a\nb\u202e"], name="x\x07y\x9b31m")]
    out = cli("ps").out
    assert "echo a b\n" in out
    assert " xy " in out


def test_an_array_shows_how_far_it_is(cli: Cli, cluster: FakeClient):
    cluster.held = [a_job(tasks=10, counts=Counts(completed=3, failed=1, running=6))]
    assert "4/10 (1 failed)" in cli("ps").out


def test_the_tasks_of_a_job(cli: Cli, cluster: FakeClient):
    cluster.kept_tasks = [a_task(f"{ID}.1", node="n7", devices=[0, 3]), a_task(f"{ID}.2", paused=True)]
    lines = cli("ps", "--tasks", ID).out.splitlines()
    assert lines[1].split()[:4] == [f"{ID}.1", "Running", "n7", "0,3"]
    assert "Paused" in lines[2]


def test_watching_into_a_pipe_tells_each_change(cli: Cli, cluster: FakeClient):
    cluster.events = [
        WatchEvent(7, 1000.0, "AttemptEnded", task=f"{ID}.1", status="Failed", text="ended\x1b[1m")
    ]
    assert cli("ps", "-w").out.rstrip().endswith(f"{ID}.1  Failed  ended")
    assert json.decode(cli("ps", "-w", "-o", "json").out, type=WatchEvent) == cluster.events[0]
    assert cli("ps", "-w", "-o", "name").out == f"{ID}.1\n"
