"""`phalanx run`: the task's output is ours, and so is its exit code."""

from __future__ import annotations

import signal
import threading
from typing import Any, Literal

import pytest

from phalanx.api.schema.jobs import ConditionView, JobView, TaskView
from phalanx.api.schema.submission import SubmitReply, SubmitRequest
from phalanx.errors import BadRequest, NotFound, Unauthorized, Unavailable
from tests.support.fake_client import ID, Cli, FakeClient, a_job, a_task


def finished(cluster: FakeClient, code: int = 0, attempts: int = 1) -> None:
    status = "Completed" if code == 0 else "Failed"
    cluster.ends = [a_job(status=status, reason="" if code == 0 else "exited", exit_code=code)]
    cluster.kept_tasks = [a_task(status=status, attempt=attempts)]


def test_output_and_code_are_the_tasks_own(cli: Cli, cluster: FakeClient):
    cluster.output = {"stdout": [b"one\n", b"two\x1b[0m\n"], "stderr": [b"oh\n"]}
    finished(cluster, code=7)
    said = cli("run", "--gpus", "1", "--", "python", "-c", "1")
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


def test_a_coordinator_of_an_older_version_is_not_told_what_it_does_not_know(
    cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch
):
    submit = cluster.submit

    def older(request: SubmitRequest, **fields: Any) -> SubmitReply:
        for name in ("attached", "split_output"):
            if getattr(request, name):
                raise BadRequest(f"unknown field {name!r}")
        return submit(request, **fields)

    monkeypatch.setattr("phalanx.cli.run.streams_differ", lambda: True)
    monkeypatch.setattr(cluster, "submit", older)
    finished(cluster)
    assert cli("run", "--", "true").code == 0
    said = cli("run", "--split-output", "--", "true")
    assert (said.code, "unknown field 'split_output'" in said.err) == (2, True)


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
    def wait(id: str, timeout: float | None = None, *, must_end: bool = True) -> JobView | TaskView:
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
    def wait(id: str, timeout: float | None = None, *, must_end: bool = True) -> Any:
        raise Unauthorized("this token is not accepted")

    monkeypatch.setattr(cluster, "wait", wait)
    said = cli("run", "--", "true")
    assert said.code == 77
    assert f"{ID} is still running: `phalanx wait {ID}`" in said.err


def an_eviction(status: Literal["True", "False"] = "True") -> ConditionView:
    return ConditionView(
        "DisruptionTarget", status, "PreemptionByScheduler", "phalanx: preempted for urgent", 1000.0
    )


def test_an_eviction_is_told_and_so_is_the_next_attempt(
    cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch
):
    finished(cluster)
    left = a_task(status="Pending", attempt=1, conditions=[an_eviction()])
    again = a_task(status="Completed", attempt=2, node="n2", conditions=[an_eviction("False")])
    views = {"stdout": [a_task(), left, again, again, again], "stderr": [again] * 5}
    turn = iter([*views["stdout"], *views["stderr"]])
    both = threading.Lock()

    def task(id: str) -> TaskView:
        with both:
            return next(turn, again)

    monkeypatch.setattr(cluster, "task", task)
    monkeypatch.setattr("phalanx.cli.run.streams_differ", lambda: False)
    said = cli("run", "--", "true")
    assert said.code == 0
    first, second = said.err.splitlines()
    assert first.startswith(f"{ID}: attempt 1 was evicted at ")
    assert first.endswith(" UTC: preempted for urgent")
    assert second == f"{ID}: attempt 2 on n2 begins"


def test_nothing_is_said_of_an_end_that_is_not_recorded_yet(
    cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch
):
    finished(cluster)
    views = iter([a_task(status="Running"), a_task(status="Running")])
    monkeypatch.setattr(cluster, "task", lambda _: next(views, a_task(status="Completed")))
    monkeypatch.setattr("phalanx.cli.run.streams_differ", lambda: False)
    said = cli("run", "--", "true")
    assert (said.code, said.err) == (0, "")


def test_what_happens_to_all_members_of_a_gang_is_told_once(
    cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch
):
    finished(cluster)
    left = a_task(status="Pending", attempt=1, conditions=[an_eviction()])
    again = a_task(status="Completed", attempt=2, node="n2", conditions=[an_eviction("False")])
    turns = {f"{ID}.{rank}": iter([a_task(), left, again]) for rank in range(4)}
    monkeypatch.setattr(cluster, "task", lambda id: next(turns[id], again))
    monkeypatch.setattr("phalanx.cli.run.streams_differ", lambda: False)
    first, second = cli("run", "--tasks", "4", "--", "true").err.splitlines()
    assert first.startswith(f"{ID}: attempt 1 was evicted at ")
    assert second == f"{ID}: attempt 2 begins"


def test_a_member_that_did_its_part_before_the_others_is_no_news(
    cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch
):
    finished(cluster)
    done = a_task(attempt=1, exit_code=0)
    turns = {f"{ID}.{rank}": iter([a_task(), done]) for rank in range(2)}
    ended = a_task(status="Completed")
    monkeypatch.setattr(cluster, "task", lambda id: next(turns[id], ended))
    monkeypatch.setattr("phalanx.cli.run.streams_differ", lambda: False)
    assert cli("run", "--tasks", "2", "--", "true").err == ""


@pytest.mark.parametrize(
    ("number", "words", "cancelled"),
    [
        (signal.SIGTERM, [], True),
        (signal.SIGHUP, [], True),
        (signal.SIGHUP, ["--on-hangup", "detach"], False),
        (signal.SIGTERM, ["--on-hangup", "detach"], False),
        (signal.SIGQUIT, [], False),
    ],
)
def test_a_signal_cancels_or_detaches_as_told(
    cli: Cli,
    cluster: FakeClient,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    number: signal.Signals,
    words: list[str],
    cancelled: bool,
):
    def wait(id: str, timeout: float | None = None, *, must_end: bool = True) -> JobView:
        signal.raise_signal(number)
        return a_job()

    finished(cluster)
    cluster.held = [a_job()]
    inherited = signal.signal(number, signal.SIG_DFL)  # the tests may have been started with it ignored
    request.addfinalizer(lambda: signal.signal(number, inherited))
    before = signal.getsignal(number)
    monkeypatch.setattr(cluster, "wait", wait)
    said = cli("run", *words, "--", "sleep", "100")
    assert said.code == 128 + number
    assert (("cancel", ID) in cluster.asked) is cancelled
    assert ("still running" in said.err) is not cancelled
    assert signal.getsignal(number) == before


def test_a_signal_that_nohup_ignores_stays_ignored(
    cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch
):
    def wait(id: str, timeout: float | None = None, *, must_end: bool = True) -> JobView:
        signal.raise_signal(signal.SIGHUP)
        return a_job(status="Completed", exit_code=0)

    finished(cluster)
    monkeypatch.setattr(cluster, "wait", wait)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert cli("run", "--", "true").code == 0
    finally:
        signal.signal(signal.SIGHUP, before)
