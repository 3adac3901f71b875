"""`phalanx plan`: from files to output, and the exit codes that scripts rely on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phalanx.api.schema.apply import PlannedPlacement, PlanReason, PlanReply, PlanRequest
from phalanx.cli.command_form import repeated
from tests.support.fake_client import Cli, FakeClient

NODES = 'nodes: [{name: "n[1-2]", cores: 8, gpus: 8}]\n'
GANG = "name: train\ngang: true\ntasks: 2\ngpus: {gpus}\npriority: 5\n"


@pytest.fixture
def files(away: Path) -> Path:
    """A cluster in two files, and jobs."""
    (away / "nodes.yaml").write_text(NODES)
    (away / "running.yaml").write_text("running: [{name: low, gpus: 8, places: [n2]}]\n")
    (away / "job.yaml").write_text(GANG.format(gpus=8))
    (away / "huge.yaml").write_text(GANG.format(gpus=9).replace("train", "huge"))
    (away / "small.yaml").write_text("name: small\ncores: 1\n")
    return away


def test_json_has_exactly_the_words_of_the_contract(cli: Cli, files: Path):
    said = cli("plan", "--cluster", "nodes.yaml", "-f", "job.yaml", "-o", "json")
    reply = json.loads(said.out)
    assert (said.code, said.err) == (0, "")
    assert set(reply) == {"placements", "evictions", "reasons", "exit"}
    assert [(each["task"], each["node"], each["devices"]) for each in reply["placements"]] == [
        ("train.0", "n1", list(range(8))),
        ("train.1", "n2", list(range(8))),
    ]
    assert (reply["evictions"], reply["reasons"], reply["exit"]) == ([], [], 0)


def test_evictions_are_told_with_their_reason(cli: Cli, files: Path):
    said = cli("plan", "--cluster", "nodes.yaml", "running.yaml", "-f", "job.yaml")
    assert said.code == 0
    assert "train would start, 2 tasks on 2 nodes, when 1 task that it evicts has left" in said.out
    assert "evicts low on n2 GPUs 0-7 (job low, priority 0)" in said.out
    assert "    their users read: preempted to make room for train (priority 5)\n" in said.out


def test_evictions_of_one_job_are_one_line_unless_all_are_asked_for(cli: Cli, files: Path):
    (files / "running.yaml").write_text(
        "running: [{name: low, tasks: 4, gpus: 2, places: [n1, n1, n2, n2]}]\n"
    )
    said = cli("plan", "--cluster", "nodes.yaml", "running.yaml", "-f", "job.yaml")
    assert "evicts 4 tasks of job low (priority 0): n1 GPUs 0-3, n2 GPUs 0-3\n" in said.out
    wide = cli("plan", "--cluster", "nodes.yaml", "running.yaml", "-f", "job.yaml", "-o", "wide")
    assert wide.out.count("evicts low.") == 4


def test_the_rest_of_an_array_is_told(cli: Cli, files: Path):
    said = cli("plan", "--cluster", "nodes.yaml", "--array", "1-10%4", "--", "true")
    assert said.code == 0
    assert "would start now: 4 tasks" in said.out
    assert "later: 6 more tasks; " in said.out


def test_who_must_wait_ends_with_3_and_a_fix(cli: Cli, files: Path):
    (files / "running.yaml").write_text("running: [{name: high, gpus: 4, priority: 9, places: [n2]}]\n")
    said = cli("plan", "--cluster", "nodes.yaml", "--cluster", "running.yaml", "-f", "job.yaml")
    assert said.code == 3
    assert said.out.startswith("train must wait: ")
    assert "fix: it would start now with a minimum of 1 instead of 2" in said.out


def test_who_can_never_run_ends_with_4(cli: Cli, files: Path):
    said = cli("plan", "--cluster", "nodes.yaml", "-f", "huge.yaml")
    assert said.code == 4
    assert "huge can never run here" in said.out


def test_the_worst_of_several_counts(cli: Cli, files: Path):
    said = cli("plan", "--cluster", "nodes.yaml", "-f", "small.yaml", "huge.yaml")
    assert said.code == 4
    assert "small would start now: 1 task on 1 node" in said.out


def test_a_command_is_planned_too(cli: Cli, files: Path):
    said = cli("plan", "--cluster", "nodes.yaml", "--gpus", "8", "--tasks", "2", "--", "python", "-f", "x.py")
    assert (said.code, "python would start now: 2 tasks on 2 nodes" in said.out) == (0, True)


def test_names_alone(cli: Cli, files: Path):
    assert cli("plan", "--cluster", "nodes.yaml", "-f", "small.yaml", "-o", "name").out == "small\n"


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ((), 2),
        (("-f", "small.yaml", "--", "x"), 2),
        (("--cluster", "nodes.yaml", "-f", "missing.yaml"), 2),
        (("--cluster", "nodes.yaml", "-f", "bad.yaml"), 2),
        (("--cluster", "nodes.yaml", "-f", "typo.yaml"), 2),
        (("--nonsense",), 2),
    ],
)
def test_what_is_wrong_has_its_own_code(cli: Cli, files: Path, args: tuple[str, ...], code: int):
    (files / "bad.yaml").write_text("a: [\n")
    (files / "typo.yaml").write_text("name: a\ncoress: 1\n")
    said = cli("plan", *args)
    assert (said.code, said.out) == (code, "")
    assert said.err.startswith("error: ")


def test_cautions_go_to_standard_error_and_are_errors_if_strict(cli: Cli, files: Path):
    (files / "pod.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"
        "spec: {containers: [{name: m, command: [x], resources: {requests: {example.com/fpga: 1}}}]}\n"
    )
    said = cli("plan", "--cluster", "nodes.yaml", "-f", "pod.yaml")
    assert (said.code, "example.com/fpga" in said.err, "warning: " in said.err) == (0, True, True)
    strict = cli("plan", "--cluster", "nodes.yaml", "-f", "pod.yaml", "--strict")
    assert (strict.code, strict.out) == (2, "")


def test_a_running_cluster_is_asked_with_the_names_of_the_files(cli: Cli, cluster: FakeClient, files: Path):
    cluster.answer = PlanReply([PlannedPlacement("train.0", "n1", [0], job="train")], [], [], 0)
    said = cli("plan", "-f", "job.yaml")
    assert (said.code, "train would start now" in said.out) == (0, True)
    ((verb, request),) = cluster.asked
    assert isinstance(request, PlanRequest)
    assert (verb, [spec.name for spec in request.specs], [name.job for name in request.names]) == (
        "plan",
        ["train"],
        ["train"],
    )


def test_a_running_cluster_is_asked_about_a_command(cli: Cli, cluster: FakeClient):
    cluster.answer = PlanReply(
        [], [], [PlanReason("x", "WaitingCapacity", "capacity", "full", dominant=True)], 3
    )
    said = cli("plan", "--gpus", "2", "--", "x")
    assert (said.code, said.out) == (3, "x must wait: full (WaitingCapacity)\n")
    ((_, request),) = cluster.asked
    assert request.submit.gpus == 2


def test_a_gang_that_lacks_members_waits_and_no_plan_is_asked_for(cli: Cli, cluster: FakeClient, files: Path):
    (files / "pg.yaml").write_text(
        "apiVersion: scheduling.sigs.k8s.io/v1alpha1\nkind: PodGroup\nmetadata: {name: g}\nspec: {minMember: 2}\n"
    )
    said = cli("plan", "-f", "pg.yaml")
    assert (said.code, cluster.asked) == (3, [])
    assert "default/g must wait: default/g needs 2 members and has 0 (GangIncomplete)" in said.out


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("-f a b -o json", "-f a -f b -o json"),
        ("--cluster a b -f c d", "--cluster a --cluster b -f c -f d"),
        ("--cluster=a b", "--cluster=a --cluster b"),
        ("-f - b", "-f - -f b"),
        ("--gpus 2 -- x -f a b", "--gpus 2 -- x -f a b"),
        ("-f a -- b c", "-f a -- b c"),
        ("x y", "x y"),
    ],
)
def test_options_that_name_files_take_several(written: str, read: str):
    assert repeated(written.split()) == read.split()


def test_a_cluster_where_nobody_waits_has_nothing_to_plan(cli: Cli, files: Path):
    said = cli("plan", "--cluster", "nodes.yaml")
    assert (said.code, said.out, said.err) == (0, "", "no job waits there, so there is nothing to plan\n")


def test_a_job_without_a_name_is_called_by_its_place(cli: Cli, files: Path):
    (files / "nameless.yaml").write_text("cores: 1\ngang: true\ntasks: 2\n")
    said = cli("plan", "--cluster", "nodes.yaml", "-f", "nameless.yaml")
    assert said.out.startswith("nameless.yaml:1 would start now: 2 tasks")
    assert "nameless.yaml:1.0" in said.out


FLOW = "apiVersion: flowmesh/v1\nspec: {deadline: 9h, stages: [{name: a, spec: {command: [make]}}]}\n"


def test_limits_of_the_command_line_are_stronger_than_those_of_the_file(
    cli: Cli, cluster: FakeClient, files: Path
):
    (files / "flow.yaml").write_text(FLOW)
    cluster.answer = PlanReply([], [], [], 0)
    assert cli("plan", "-f", "flow.yaml", "--deadline", "2h", "--budget", "25").code == 0
    ((_, request),) = cluster.asked
    assert isinstance(request, PlanRequest)
    assert [(flow.deadline, flow.budget) for flow in request.workflows] == [("2h", 25.0)]


@pytest.mark.parametrize(
    "args", [("-f", "small.yaml"), ("--", "x"), ("--cluster", "nodes.yaml", "-f", "flow.yaml")]
)
def test_limits_are_of_workflows_on_a_running_cluster(
    cli: Cli, cluster: FakeClient, files: Path, args: tuple[str, ...]
):
    (files / "flow.yaml").write_text(FLOW)
    said = cli("plan", "--budget", "1", *args)
    assert (said.code, cluster.asked) == (2, [])
    assert "--budget" in said.err


def test_a_plan_says_nothing_twice_unless_all_is_asked_for(cli: Cli, files: Path):
    (files / "nodes.yaml").write_text(
        "nodes: [{name: n1, cores: 1}, {name: n2, cores: 4, closed: bad fan}]\n"
    )
    (files / "wide.yaml").write_text("name: wide\ncores: 3\n")
    said = cli("plan", "--cluster", "nodes.yaml", "-f", "wide.yaml")
    assert said.code == 3
    assert (said.out.count("bad fan"), said.out.count("on n1")) == (2, 1), "once in the fix"
    wide = cli("plan", "--cluster", "nodes.yaml", "-f", "wide.yaml", "-o", "wide")
    assert (wide.out.count("bad fan"), wide.out.count("on n1")) == (3, 2)
