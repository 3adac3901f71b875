"""`phalanx run`: the task's output is ours, and so is its exit code."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.api.schema.jobs import JobView, TaskView
from phalanx.errors import NotFound, Unauthorized, Unavailable
from tests.support.fake_client import ID, Cli, FakeClient, a_job, a_task


def finished(cluster: FakeClient, code: int = 0, attempts: int = 1) -> None:
    status = "Completed" if code == 0 else "Failed"
    cluster.ends = [a_job(status=status, reason="" if code == 0 else "exited", exit_code=code)]
    cluster.kept_tasks = [a_task(status=status, attempt=attempts)]


def test_output_and_code_are_the_tasks_own(cli: Cli, cluster: FakeClient):
    cluster.output = {"stdout": [b"one\n", b"two\x1b[0m\n"], "stderr": [b"oh\n"]}
    finished(cluster, code=7)
    said = cli("run", "--gpus", "1", "--", "python", "x.py")
    assert (said.code, said.out) == (7, "one\ntwo\x1b[0m\n")
    assert set(said.err.splitlines()) == {"oh", f"{ID} Failed: exited"}


@pytest.mark.parametrize("differ", [False, True])
def test_streams_stay_apart_if_ours_do(
    cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch, differ: bool
):
    monkeypatch.setattr("phalanx.cli.run.streams_differ", lambda: differ)
    finished(cluster)
    cli("run", "--", "true")
    assert [call[1].split_output for call in cluster.asked if call[0] == "submit"] == [differ]
    asked = {call[2]["stream"] for call in cluster.asked if call[0] == "logs"}
    assert asked == ({"stdout", "stderr"} if differ else {"stdout"})


def test_it_is_not_tried_again_unless_asked(cli: Cli, cluster: FakeClient):
    finished(cluster)
    cli("run", "--", "true")
    cli("run", "--retries", "2", "--", "true")
    assert [call[1].max_retries for call in cluster.asked if call[0] == "submit"] == [0, 2]


def test_a_second_attempt_is_shown_after_the_first(cli: Cli, cluster: FakeClient):
    cluster.output["stdout"] = [b"again\n"]
    finished(cluster, attempts=2)
    assert cli("run", "--", "true").out == "again\nagain\n"
    shown = [
        call[2]["attempt"] for call in cluster.asked if call[0] == "logs" and call[2]["stream"] == "stdout"
    ]
    assert shown == [1, 2]


def test_an_attempt_without_output_is_passed_over(
    cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch
):
    def logs(id: str, **asked: Any) -> Any:
        raise NotFound("no output")

    monkeypatch.setattr(cluster, "logs", logs)
    finished(cluster)
    said = cli("run", "--", "true")
    assert (said.code, said.out, said.err) == (0, "", "")


def test_lost_output_is_told(cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch):
    def logs(id: str, **asked: Any) -> Any:
        raise Unavailable("the connection was cut")

    monkeypatch.setattr(cluster, "logs", logs)
    finished(cluster)
    said = cli("run", "--", "true")
    assert said.code == 0
    assert "stdout was cut off: the connection was cut" in said.err


def test_ctrl_c_cancels_the_task(cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch):
    def wait(id: str, timeout: float | None = None) -> JobView | TaskView:
        raise KeyboardInterrupt

    finished(cluster)
    cluster.held = [a_job()]
    monkeypatch.setattr(cluster, "wait", wait)
    said = cli("run", "--", "sleep", "100")
    assert said.code == 130
    assert ("cancel", ID) in cluster.asked
    assert f"cancelled {ID}" in said.err


def test_when_its_time_is_over_the_task_is_cancelled(cli: Cli, cluster: FakeClient):
    cluster.ends = [a_job()]
    cluster.held = [a_job()]
    cluster.kept_tasks = [a_task(status="Completed", attempt=0)]
    said = cli("run", "--timeout", "0.01", "--", "sleep", "100")
    assert said.code == 124
    assert ("cancel", ID) in cluster.asked


@pytest.mark.parametrize("several", [["--array", "1-3"], ["-t", "n1", "-t", "n2"]])
def test_it_shows_one_task_only(cli: Cli, cluster: FakeClient, several: list[str]):
    said = cli("run", *several, "--", "true")
    assert said.code == 2
    assert "phalanx submit" in said.err
    assert cluster.asked == []


def test_who_can_no_longer_watch_says_which_task_goes_on(
    cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch
):
    def wait(id: str, timeout: float | None = None) -> Any:
        raise Unauthorized("this token is not accepted")

    monkeypatch.setattr(cluster, "wait", wait)
    said = cli("run", "--", "true")
    assert said.code == 77
    assert f"{ID} is still running: `phalanx wait {ID}`" in said.err
