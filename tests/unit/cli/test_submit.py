"""`phalanx submit`: the request, the output, and the exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import json

from phalanx.api.schema.documents import FailedTarget
from phalanx.api.schema.jobs import Counts
from phalanx.api.schema.submission import AcceptedTask, SubmitReply, SubmitRequest
from phalanx.errors import BadRequest
from tests.support.fake_client import ID, Cli, FakeClient, a_job

SECOND = ID[:-1] + "z"


def asked(cluster: FakeClient) -> SubmitRequest:
    (call,) = [call for call in cluster.asked if call[0] == "submit"]
    request: SubmitRequest = call[1]
    return request


def test_a_plain_command(cli: Cli, cluster: FakeClient, away: Path):
    said = cli("submit", "--", "python", "train.py", "--epochs", "3")
    assert (said.code, said.out) == (0, f"{ID}\n")
    assert asked(cluster) == SubmitRequest(
        command=["python", "train.py", "--epochs", "3"], memory="0", gpu_memory="0", cwd=str(away)
    )


def test_every_option_arrives(cli: Cli, cluster: FakeClient, away: Path):
    cli(
        *("submit", "-t", "n1:0", "--target", "n2::0,1", "-c", "4", "-m", "16GiB", "--gpus", "2"),
        *("--gpu-type", "h100", "--gpu-memory", "80GiB", "--priority", "7", "-q", "long", "--array", "1-9%3"),
        *("-n", "train", "-e", "A=1", "-e", "B=x=y", "--cwd", "sub", "--time-limit", "1h30m"),
        *(
            "--grace",
            "10s",
            "--retries",
            "5",
            "--no-queue",
            "--allow-infeasible",
            "--request-id",
            "r1",
            "--",
            "true",
        ),
    )
    assert asked(cluster) == SubmitRequest(
        command=["true"],
        targets=["n1:0", "n2::0,1"],
        cores=4,
        memory="16GiB",
        gpus=2,
        gpu_type="h100",
        gpu_memory="80GiB",
        priority=7,
        queue="long",
        array="1-9%3",
        name="train",
        env={"A": "1", "B": "x=y"},
        cwd=str(away / "sub"),
        time_limit="1h30m",
        grace="10s",
        max_retries=5,
        no_queue=True,
        allow_infeasible=True,
        request_id="r1",
    )


def test_task_submit_is_the_same_command(cli: Cli, cluster: FakeClient):
    cli("task", "submit", "-c", "2", "--", "echo", "hi")
    assert (asked(cluster).cores, asked(cluster).command) == (2, ["echo", "hi"])


@pytest.mark.parametrize("memory", ["16", "16000"])
def test_a_few_bytes_of_memory_are_refused_for_who_means_mebibytes(cli: Cli, memory: str):
    refused = cli("submit", "-m", memory, "--", "true")
    assert refused.code == 2
    assert f"{memory} without a unit is {memory} bytes" in refused.err
    assert f"write {memory}MiB" in refused.err


@pytest.mark.parametrize("memory", ["0", "16777216", "16Mi"])
def test_bytes_of_memory_may_be_many(cli: Cli, cluster: FakeClient, memory: str):
    cli("submit", "-m", memory, "--", "true")
    assert asked(cluster).memory == memory


def test_a_part_of_a_core_is_asked_for_as_it_is_written(cli: Cli, cluster: FakeClient):
    cli("submit", "--cores", "0.5", "--", "true")
    assert repr(asked(cluster).cores) == "0.5"
    refused = cli("submit", "--cores", "1e-1", "--", "true")
    assert refused.code == 2
    assert "'1e-1' is not a number of cores" in " ".join(refused.err.replace("│", "").split())


def test_a_refusal_names_the_option_and_not_the_field_of_the_api(cli: Cli, cluster: FakeClient):
    cluster.error = BadRequest("max_retries: 2000 is out of range")
    assert cli("submit", "--", "true").err == "error: --retries: 2000 is out of range\n"
    cluster.error = BadRequest("params.lr: '1..0.5' is not a range")
    assert cli("submit", "--", "true").err == "error: --param lr: '1..0.5' is not a range\n"
    assert cli("submit", "--hold", "--begin", "25:00", "--", "true").code == 2


def test_options_after_the_first_word_belong_to_the_command(cli: Cli, cluster: FakeClient):
    cli("submit", "ls", "-c", "--name")
    assert asked(cluster).command == ["ls", "-c", "--name"]


def test_a_shell_runs_only_when_asked(cli: Cli, cluster: FakeClient):
    cli("submit", "--shell", "--", "echo $HOME; false")
    assert (asked(cluster).command, asked(cluster).shell) == ([], "echo $HOME; false")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["submit"], "no command"),
        (["submit", "-c", "2", "--"], "no command"),
        (["submit", "--shell", "--", "echo", "a"], "one string"),
        (["submit", "-e", "NOT_SET_HERE", "--", "true"], "NOT_SET_HERE"),
        (["submit", "-e", "=1", "--", "true"], "NAME=VALUE"),
        (["submit", "-c", "-1", "--", "true"], "--cores"),
        (["submit", "-c", "many", "--", "true"], "--cores"),
        (["submit", "-o", "xml", "--", "true"], "--output"),
        (["submit", "--wait", "--timeout", "soon", "--", "true"], "--timeout"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(
    cli: Cli, cluster: FakeClient, words: list[str], complaint: str
):
    said = cli(*words)
    assert said.code == 2
    assert complaint in said.err
    assert cluster.asked == []


def test_with_several_targets_each_fate_is_told(cli: Cli, cluster: FakeClient):
    cluster.answer = SubmitReply(
        [ID, SECOND],
        ID,
        [AcceptedTask(ID, target="n1"), AcceptedTask(SECOND, target="n2")],
        [FailedTarget("bogus", "TargetNotFound", "Node not registered")],
    )
    said = cli("submit", "-t", "n1", "-t", "bogus", "-t", "n2", "--", "true")
    assert (said.code, said.out) == (1, f"{ID}\n{SECOND}\n")
    assert said.err == "refused bogus: Node not registered (TargetNotFound)\n"


def test_json_is_the_reply_as_it_is(cli: Cli, cluster: FakeClient):
    reply = SubmitReply([ID], ID, [AcceptedTask(ID, tasks=9)])
    cluster.answer = reply
    assert json.decode(cli("submit", "-o", "json", "--", "true").out, type=SubmitReply) == reply
    assert yaml.safe_load(cli("submit", "-o", "yaml", "--", "true").out)["accepted"] == [
        {"id": ID, "tasks": 9}
    ]


def test_names_and_a_wide_table(cli: Cli, cluster: FakeClient):
    assert cli("submit", "-o", "name", "--", "true").out == f"{ID}\n"
    assert cli("submit", "-o", "wide", "--", "true").out.split() == [
        "ID",
        "TASKS",
        "TARGET",
        "BATCH",
        *("LONG", "ID"),
        ID,
        "1",
        "-",
        ID,
        ID,
    ]


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ({"status": "Completed", "exit_code": 0}, 0),
        ({"status": "Failed", "reason": "exited", "exit_code": 3}, 3),
        ({"status": "Failed", "reason": "exited", "exit_code": 75}, 75),
        ({"status": "Failed", "reason": "signalled", "exit_code": -9}, 137),
        ({"status": "Failed", "reason": "signalled", "exit_code": -1}, 129),
        ({"status": "Failed", "reason": "oom", "exit_code": -9}, 137),
        ({"status": "Failed", "reason": "lost", "exit_code": -1}, 1),
        ({"status": "Failed", "reason": "refused", "exit_code": None}, 1),
        ({"status": "Cancelled", "reason": "cancelled", "exit_code": -15}, 143),
        ({"status": "Cancelled", "reason": "cancelled", "exit_code": None}, 1),
    ],
)
def test_waiting_ends_with_the_tasks_own_code(cli: Cli, cluster: FakeClient, end: dict[str, Any], code: int):
    cluster.ends = [a_job(), a_job(ended_at=1009.0, **end)]
    said = cli("submit", "--wait", "--", "true")
    assert (said.code, said.out) == (code, f"{ID}\n")
    assert f"{ID} {end['status']}" in said.err


def test_waiting_in_json_carries_the_outcome(cli: Cli, cluster: FakeClient):
    cluster.ends = [a_job(status="Failed", reason="exited", exit_code=3)]
    said = cli("submit", "--wait", "-o", "json", "--", "true")
    assert said.code == 3
    assert json.decode(said.out)["status"] == "Failed"


def test_a_wait_can_be_too_long(cli: Cli, cluster: FakeClient):
    cluster.ends = [a_job(status="Pending")]
    said = cli("submit", "--wait", "--timeout", "0.01", "--", "true")
    assert said.code == 124
    assert f"{ID} is still Pending" in said.err


def test_an_array_tells_how_far_it_is(cli: Cli, cluster: FakeClient):
    cluster.ends = [
        a_job(tasks=10, counts=Counts(pending=10)),
        a_job(tasks=10, counts=Counts(completed=4, failed=1, running=5)),
        a_job(tasks=10, counts=Counts(completed=9, failed=1), status="Failed", exit_code=2),
    ]
    said = cli("submit", "--array", "1-10", "--wait", "--", "true")
    assert said.code == 2
    assert said.err.splitlines()[:3] == [
        f"{ID}: 0 of 10 ended",
        f"{ID}: 5 of 10 ended, 5 running, 1 failed",
        f"{ID}: 10 of 10 ended, 1 failed",
    ]


def test_what_was_read_otherwise_is_told_on_standard_error(cli: Cli, cluster: FakeClient):
    cluster.answer = SubmitReply([ID], ID, [AcceptedTask(ID, 2)], warnings=["gather[0].layer: 'racks': …"])
    said = cli("submit", "--tasks", "2", "--gather", "racks", "--", "true")
    assert (said.out, said.err) == (f"{ID}\n", "warning: gather[0].layer: 'racks': …\n")
