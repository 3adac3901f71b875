"""`phalanx workflow submit` in a pipe, and how ends and stages without a job are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from phalanx.api.schema.workflows import RetryReply, StageView, SubmittedWorkflow, WorkflowView
from phalanx.cli.workflow import _stage_table
from tests.support.fake_client import ID, Cli, FakeClient

FLOW = "apiVersion: flowmesh/v1\nspec: {stages: [{name: a, spec: {command: [make]}}]}\n"
OUTPUTS = [((), ID), (("-o", "name"), ID)]


def a_view(*stages: StageView, status: Any = "Completed") -> WorkflowView:
    return WorkflowView(ID, "ft", "ada", status, 1.0, {}, 2.0, list(stages))


@pytest.fixture
def flows(cluster: FakeClient, away: Path, monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    (away / "flow.yaml").write_text(FLOW)
    reply = SubmittedWorkflow(ID, "ft", {"a": "j"})
    monkeypatch.setattr(cluster, "submit_workflow", lambda _request, export: reply, raising=False)
    monkeypatch.setattr(cluster, "wait_workflow", lambda _id, timeout, must_end: a_view(), raising=False)
    return cluster


@pytest.mark.parametrize(("args", "printed"), OUTPUTS)
@pytest.mark.parametrize("wait", [(), ("--wait",)])
@pytest.mark.parametrize("verb", [("workflow", "submit"), ("apply",)])
def test_a_pipe_gets_the_ids(
    cli: Cli,
    flows: FakeClient,
    verb: tuple[str, ...],
    wait: tuple[str, ...],
    args: tuple[str, ...],
    printed: str,
):
    said = cli(*verb, "-f", "flow.yaml", *wait, *args)
    assert (said.code, said.out) == (0, f"{printed}\n")


def test_wide_is_a_table(cli: Cli, flows: FakeClient):
    assert "STAGES" in cli("workflow", "submit", "-f", "flow.yaml", "-o", "wide").out


def test_what_runs_again_is_called_by_its_number(
    cli: Cli, flows: FakeClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        flows, "retry_workflow", lambda _id, _stage, **_: RetryReply(ID, {"a": "j"}), raising=False
    )
    monkeypatch.setattr(flows, "workflow_view", lambda _id: replace(a_view(), number=17), raising=False)
    assert cli("workflow", "retry", "last").out.startswith("17: ")


def test_a_virtual_environment_that_is_not_exported_is_named(
    cli: Cli, flows: FakeClient, monkeypatch: pytest.MonkeyPatch
):
    Path("theirs.yaml").write_text("apiVersion: flowmesh/v1\nspec: {shell: 'true'}")
    Path("ours.yaml").write_text("stages: [{name: a, command: 'true'}]")
    told = "warning: VIRTUAL_ENV=/v is not exported, so commands run without it: --export ALL exports it\n"
    workflow, apply = ("workflow", "submit", "-f"), ("apply", "-f")
    assert told not in cli(*apply, "ours.yaml").err
    monkeypatch.setenv("VIRTUAL_ENV", "/v")
    for words in ((*apply, "ours.yaml"), (*workflow, "theirs.yaml")):
        assert told in cli(*words).err
        for export in ("ALL", "NONE"):
            assert told not in cli(*words, "--export", export).err
    assert told not in cli(*workflow, "ours.yaml").err


def test_ctrl_c_while_waiting_says_that_the_workflow_goes_on(
    cli: Cli, flows: FakeClient, monkeypatch: pytest.MonkeyPatch
):
    def interrupted(_id: str, timeout: float | None = None, *, must_end: bool = True) -> WorkflowView:
        raise KeyboardInterrupt

    monkeypatch.setattr(flows, "wait_workflow", interrupted)
    said = cli("workflow", "submit", "-f", "flow.yaml", "--wait")
    assert said.code == 130
    assert f"phalanx workflow wait {ID}" in said.err


def test_a_stage_that_never_began_is_asked_why(cli: Cli, flows: FakeClient, monkeypatch: pytest.MonkeyPatch):
    ran = StageView("ran", "Failed", "j1", started_at=1.0, attempts=1)
    never = StageView("never", "Failed", "j2", reason="a.result.n is missing")
    monkeypatch.setattr(
        flows, "wait_workflow", lambda _id, timeout, must_end: a_view(ran, never, status="Failed")
    )
    said = cli("workflow", "submit", "-f", "flow.yaml", "--wait")
    assert said.code == 1
    assert "(phalanx logs j1)" in said.err
    assert f"(phalanx why {ID}:never)" in said.err
    assert "j2" not in said.err


@pytest.mark.parametrize(
    ("stage", "job"),
    [
        (StageView("s", "Completed", "j"), "j"),
        (StageView("s", "Running", "j", started_at=1.0), "j"),
        (StageView("s", "Pending", "j"), "j"),
        (StageView("s", "Failed", "j", attempts=1), "j"),
        (StageView("s", "Failed", "j"), "-"),
        (StageView("s", "Cancelled", "j"), "-"),
        (StageView("s", "Skipped", "j"), "-"),
        (StageView("s", "Waiting", "j"), "-"),
    ],
)
def test_stages_without_a_job_show_none(stage: StageView, job: str):
    assert _stage_table([stage]).rows[0][2] == job
