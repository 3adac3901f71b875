"""Names of several jobs, and workflows where a job is meant: what is said on standard error."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.api.schema.jobs import NamedView
from phalanx.api.schema.workflows import StageView, WorkflowView
from phalanx.cli.job_names import told
from phalanx.errors import NotFound
from tests.support.fake_client import ID, Cli, FakeClient, a_job, a_task

SWEEP = "lrsweep: job 82, the newest of 3 with this name (5, 6, 82)"


@pytest.fixture
def sweep(cluster: FakeClient, monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    """Three jobs have this name; the newest is shown."""
    job = a_job(number=82)
    monkeypatch.setattr(cluster, "named", lambda name: NamedView(name, ID, 82, [5, 6, 82]))
    monkeypatch.setattr(cluster, "job", lambda _id: job)
    cluster.kept_tasks = [a_task(status="Completed", result=1)]
    return cluster


@pytest.mark.parametrize(
    "words", [("results",), ("results", "-o", "csv"), ("logs",), ("ps",), ("ps", "--tasks"), ("show",)]
)
def test_which_of_several_jobs_a_name_means_is_said(cli: Cli, sweep: FakeClient, words: tuple[str, ...]):
    said = cli(*words, "lrsweep")
    assert SWEEP in said.err
    assert "newest of" not in said.out
    assert SWEEP not in cli(*words, "82").err


def test_a_sweep_and_its_retry_are_shown_as_one(cli: Cli, sweep: FakeClient, monkeypatch: pytest.MonkeyPatch):
    job = a_job(number=82, retries=["r"], repeats="f")
    monkeypatch.setattr(sweep, "job", lambda _id: job)
    monkeypatch.setattr(sweep, "named", lambda name: NamedView(name, ID, 82, [5, 82]))
    assert "with this name" not in cli("results", "lrsweep").err


def test_one_that_has_not_ended_is_not_called_the_newest():
    assert told("a", 5, [5, 6]) == "a: job 5, the one that has not ended of 2 with this name (5, 6)"
    assert "of 7 with this name (…, 3, 4, 5, 6, 7)" in told("a", 7, [1, 2, 3, 4, 5, 6, 7])


def a_flow(*stages: str) -> WorkflowView:
    views = [StageView(name, "Completed", ID, started_at=1.0) for name in stages]
    return WorkflowView(ID, "ft", "ada", "Running", 0.0, {}, stages=views, number=57)


@pytest.mark.parametrize("stages", [("train",), ("prep", "train")])
def test_the_log_of_a_workflow_is_that_of_its_only_stage(
    cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch, stages: tuple[str, ...]
):
    whole = cluster.log_times

    def log_times(id: str, **asked: Any) -> Any:
        if ":" not in id:
            raise NotFound("57 is a workflow, not a job", reason="IsWorkflow")
        return whole(id, **asked)

    cluster.output["stdout"] = [b"trained\n"]
    monkeypatch.setattr(cluster, "log_times", log_times)
    monkeypatch.setattr(cluster, "workflow_view", lambda _id: a_flow(*stages), raising=False)
    said = cli("logs", "last")
    if len(stages) == 1:
        assert (said.code, said.out) == (0, "trained\n")
    else:
        assert "57 is a workflow, whose stages have a log each: prep train" in said.err
        assert "phalanx logs 57:prep" in said.err
