"""`phalanx show`, `cancel`, `pause`, `resume`, `logs` and `wait`."""

from __future__ import annotations

import re

import pytest
from msgspec import json, yaml

from phalanx.api.schema.jobs import CancelReply, JobView, TaskView
from tests.support.fake_client import ID, Cli, FakeClient, a_job, a_task

SECOND = ID[:-1] + "z"


def test_show_tells_a_job_and_its_only_task(cli: Cli, cluster: FakeClient):
    cluster.held = [a_job(exit_code=3, status="Failed", reason="exited")]
    cluster.kept_tasks = [a_task(message="exited with 3", stderr_tail="Traceback\x1b[31m\nboom", devices=[1])]
    out = cli("show", ID[:12]).out
    assert "Failed (exited)" in out
    assert "Devices:" in out
    assert out.endswith("Last lines of its log:\n  Traceback\n  boom\n")


def test_show_aligns_what_it_says_of_the_only_task_with_the_rest(cli: Cli, cluster: FakeClient):
    cluster.held, cluster.kept_tasks = [a_job()], [a_task(message="it runs", attempt=1)]
    lines = cli("show", ID).out.splitlines()
    assert len({len(line) - len(line.partition(":")[2].lstrip()) for line in lines}) == 1, lines


def test_show_has_the_parameters_and_the_command_of_a_task(cli: Cli, cluster: FakeClient):
    cluster.held = [a_job(tasks=2, command=["train", "--lr={lr}"], params={"lr": "0.1,0.2", "seed": "1..5"})]
    cluster.kept_tasks = [a_task(f"{ID}.2", params={"lr": "0.2", "seed": "1"}, index=2)]
    assert re.search(r"Parameters: +lr=0.1,0.2; seed=1..5\n", cli("show", ID).out)
    out = cli("show", f"{ID}.2").out
    assert re.search(r"Parameters: +lr=0.2 seed=1\n", out)
    assert re.search(r"Command: +train --lr=0.2\n", out)
    listed = cli("ps", "--tasks", ID).out
    assert ("PARAMETERS" in listed, "lr=0.2 seed=1" in listed) == (True, True)


def test_show_in_json_is_the_view(cli: Cli, cluster: FakeClient):
    cluster.held = [a_job()]
    cluster.kept_tasks = [a_task(f"{ID}.4")]
    assert json.decode(cli("show", ID, "-o", "json").out, type=JobView) == a_job()
    assert json.decode(cli("show", f"{ID}.4", "-o", "json").out, type=TaskView) == a_task(f"{ID}.4")


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_show_of_a_job_with_one_task_has_what_is_said_of_that(cli: Cli, cluster: FakeClient, output: str):
    cluster.held = [a_job()]
    cluster.kept_tasks = [a_task(message="it runs", devices=[1], attempt=2, node="n1")]
    shown = yaml.decode(cli("show", ID, "-o", output).out)
    assert (shown["node"], shown["attempt"], shown["devices"]) == ("n1", 2, [1])
    assert (shown["message"], shown["conditions"]) == ("it runs", [])
    assert shown["command"] == ["python", "train.py"]


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_a_terminal_obeys_nothing_of_json_and_yaml(cli: Cli, cluster: FakeClient, output: str):
    name = "a\x1b[31m\x9b2J\x7f\u202eb\u2066c\u200bd\u061c é"
    cluster.held = [a_job(name=name, command=["sh", "-c", "true\n\tfalse"])]
    cluster.kept_tasks = [a_task(message=name)]
    for words in (["show", ID], ["ps"]):
        out = cli(*words, "-o", output).out
        assert not re.search(
            r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069]", out
        )
        shown = yaml.decode(out)
        job = shown if isinstance(shown, dict) else shown[0]
        assert (job["name"], job["command"]) == (name, ["sh", "-c", "true\n\tfalse"])


def test_show_of_a_stranger(cli: Cli, cluster: FakeClient):
    said = cli("show", "nobody")
    assert (said.code, said.out) == (5, "")
    assert said.err == "error: no job nobody\nhint: phalanx ps lists them\n"


def test_cancel_goes_on_after_one_that_fails(cli: Cli, cluster: FakeClient):
    cluster.held = [a_job(ID), a_job(SECOND)]
    said = cli("cancel", ID, "nobody", SECOND)
    assert said.code == 5
    assert [line.split()[0] for line in said.out.splitlines()] == [ID, SECOND]
    assert said.err == "error: no job nobody\nhint: phalanx ps lists them\n"


def test_cancel_in_json(cli: Cli, cluster: FakeClient):
    cluster.held = [a_job(ID)]
    assert json.decode(cli("cancel", ID, "-o", "json").out, type=list[CancelReply]) == [CancelReply(ID, 1, 1)]


def test_pause_and_resume(cli: Cli, cluster: FakeClient):
    assert cli("pause", ID).out == f"{ID} paused\n"
    assert cli("task", "resume", ID).out == f"{ID} resumed\n"
    assert cluster.verbs() == ["pause", "resume"]


def test_a_job_that_is_held_back_is_released_as_a_whole(cli: Cli, cluster: FakeClient):
    cluster.held, cluster.is_held = [a_job()], True
    assert cli("resume", f"{ID}.3").out == f"{ID} released\n"
    assert cluster.verbs() == ["resume", "release"]


def test_wait_ends_with_the_first_bad_code(cli: Cli, cluster: FakeClient):
    cluster.ends = [
        a_job(status="Completed", exit_code=0),
        a_job(SECOND, status="Failed", reason="exited", exit_code=9),
        a_job(status="Failed", reason="exited", exit_code=4),
    ]
    said = cli("wait", ID, SECOND, ID)
    assert said.code == 9
    assert said.err.count("\n") == 3


def test_wait_says_how_long_it_ran_as_ps_does(cli: Cli, cluster: FakeClient):
    cluster.ends = [a_job(status="Completed", submitted_at=1000.0, started_at=1005.3, ended_at=1006.3)]
    assert cli("wait", ID).err.endswith("Completed after 1.0s\n")
    cluster.ends = [a_job(status="Cancelled", started_at=None, ended_at=1006.3)]
    assert cli("wait", ID).err.endswith(" Cancelled\n")


def test_wait_can_tell_the_outcome_only(cli: Cli, cluster: FakeClient):
    cluster.ends = [a_job(status="Failed", reason="exited", exit_code=75)]
    assert cli("wait", ID, "--exit-code", "outcome").code == 1


def test_several_waits_in_json_are_a_list(cli: Cli, cluster: FakeClient):
    cluster.ends = [a_job(status="Completed", exit_code=0)]
    assert len(json.decode(cli("wait", ID, ID, "-o", "json").out)) == 2
    assert json.decode(cli("wait", ID, "-o", "json").out)["id"] == ID
