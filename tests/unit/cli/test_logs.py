"""`phalanx logs`: bytes as they were written, and lines that are dated, chosen, merged, or of many tasks."""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time
from typing import Any, cast

import pytest
from msgspec.structs import replace

from phalanx.api.schema.jobs import StoryLine
from phalanx.core.model.log_times import LogRow
from phalanx.errors import BadRequest, Unavailable
from tests.support.fake_client import ID, Cli, FakeClient, a_job, a_task

AT = 1_700_000_000.0


def split(cluster: FakeClient, out: list[bytes], err: list[bytes], *rows: LogRow) -> None:
    cluster.output = {"stdout": out, "stderr": err}
    cluster.times = replace(cluster.times, split_output=True, rows=[*rows], now=AT + 100)


def test_they_are_bytes_as_they_were_written(cli: Cli, cluster: FakeClient):
    cluster.output["stdout"] = [b"a\x1b[31m", b"b\n", b"\r50%"]
    assert cli("logs", ID).out == "a\x1b[31mb\n\r50%"
    assert cluster.asked == [("logs", ID, {"stream": "stdout", "attempt": 1, "lines": None, "follow": False})]


def test_options_are_passed_on(cli: Cli, cluster: FakeClient):
    cli("logs", "-f", "--tail", "5", "--stderr", "--attempt", "2", ID)
    assert cluster.asked == [("logs", ID, {"stream": "stderr", "attempt": 2, "lines": 5, "follow": True})]


def test_a_screen_gets_the_end_of_a_log(cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    cluster.output["stdout"] = [b"a\n"]
    assert "--tail 0" not in cli("logs", ID).err  # nothing was left out
    assert cluster.asked[0][2]["lines"] == 1000
    whole = cluster.log_pieces
    monkeypatch.setattr(
        cluster,
        "log_pieces",
        lambda *args, **asked: (replace(each, offset=9) for each in whole(*args, **asked)),
    )
    assert "the last 1000 lines; --tail 0 shows all" in cli("logs", ID).err


def test_a_wrong_since_is_refused_once_before_anything_is_shown(cli: Cli, cluster: FakeClient):
    cluster.array = ID
    said = cli("logs", ID, "--since", "last year")
    assert (said.code, said.out, said.err.count("'last year' is not a time")) == (2, "", 1)


def test_two_logs_are_shown_by_their_times_and_that_is_said(cli: Cli, cluster: FakeClient):
    out, err = [b"out 1\nou", b"t 2\nout 3\n"], [b"err 1\n", b"err 2\n"]
    split(cluster, out, err, LogRow(AT, 6, 0), LogRow(AT + 1, 6, 6), LogRow(AT + 2, 18, 12))
    said = cli("logs", ID)
    assert said.out.splitlines() == ["out 1", "err 1", "out 2", "out 3", "err 2"]
    assert "less than 50 ms apart" in said.err
    assert cli("logs", "--tail", "2", ID).out.splitlines() == ["out 3", "err 2"]
    assert cli("logs", "--stderr", ID).out.splitlines() == ["err 1", "err 2"]
    cluster.kept_tasks = [a_task(status="Completed", attempt=1)]
    assert cli("logs", "-f", ID).out.splitlines() == ["out 1", "err 1", "out 2", "out 3", "err 2"]
    assert cli("logs", "-f", "--tail", "2", ID).out.splitlines() == ["out 3", "err 2"]


def test_of_the_tasks_of_a_job_it_is_said_once(cli: Cli, cluster: FakeClient):
    cluster.array, cluster.held = ID, [a_job(tasks=2, split_output=True)]
    cluster.kept_tasks = [a_task(id=f"{ID}.{number}", attempt=1, status="Completed") for number in range(2)]
    split(cluster, [b"out\n"], [b"err\n"], LogRow(AT, 4, 0), LogRow(AT + 1, 4, 4))
    for words in (["logs", ID], ["logs", "-f", ID]):
        said = cli(*words)
        assert (len(said.out.splitlines()), said.err.count("less than 50 ms apart")) == (4, 1)
    assert "50 ms" not in cli("logs", "--stdout", ID).err


def test_standard_error_alone_of_one_log_is_refused(cli: Cli, cluster: FakeClient):
    def refused() -> Iterator[bytes]:
        yield from ()
        raise BadRequest("it has one log", reason="OneLog")

    cluster.output = {"stdout": [b"step 1\n"], "stderr": cast(list[bytes], refused())}
    assert (cli("logs", ID).code, cli("logs", ID).out) == (0, "step 1\n")
    said = cli("logs", "--stderr", ID)
    assert (said.code, said.err.startswith("error: it has one log")) == (2, True)
    cluster.array, cluster.held = ID, [a_job(tasks=1)]
    cluster.kept_tasks = [a_task(id=f"{ID}.1", attempt=1, status="Completed")]
    cluster.output["stderr"] = cast(list[bytes], refused())
    said = cli("logs", "--stderr", ID)
    assert (said.code, said.out) == (2, ""), "nor of an array"


def test_the_order_of_two_logs_is_said_only_if_both_have_lines(cli: Cli, cluster: FakeClient):
    split(cluster, [b"out\n"], [], LogRow(AT, 4, 0))
    assert cli("logs", ID).err == ""


@pytest.mark.timeout(30)
def test_whatever_ends_a_followed_stream_ends_the_command(cli: Cli, cluster: FakeClient):
    def broken() -> Iterator[bytes]:
        yield b"step 1\n"
        raise OSError("no such luck")

    split(cluster, cast(list[bytes], broken()), [])
    cluster.kept_tasks = [a_task(status="Running", attempt=1)]
    said = cli("logs", "-f", ID)
    assert (said.code != 0, "no such luck" in said.err) == (True, True), said


def test_lines_have_the_time_at_which_they_were_begun(cli: Cli, cluster: FakeClient):
    cluster.output["stdout"] = [b"one\ntwo\n"]
    cluster.times = replace(cluster.times, rows=[LogRow(AT, 4), LogRow(AT + 61, 8)])
    dated = [line.split(" ", 1) for line in cli("logs", "--timestamps", ID).out.splitlines()]
    assert [each[1] for each in dated] == ["one", "two"]
    assert (dated[0][0][17:19], dated[1][0][17:19]) == ("20", "21")  # the seconds, whatever the zone


def test_since_begins_with_the_first_whole_line_of_that_time(cli: Cli, cluster: FakeClient):
    cluster.output["stdout"] = [b"one\ntw", b"o\nthree\n"]
    cluster.times = replace(
        cluster.times, now=AT + 60, rows=[LogRow(AT, 4), LogRow(AT + 30, 6), LogRow(AT + 60, 14)]
    )
    assert cli("logs", "--since", "90s", ID).out == "one\ntwo\nthree\n"
    assert cli("logs", "--since", "45s", ID).out == "two\nthree\n"
    assert cli("logs", "--since", "20s", ID).out == "three\n"
    assert cli("logs", "--since", "0.5s", ID).out == "three\n"
    cluster.times = replace(cluster.times, rows=[])
    assert cli("logs", "--since", "1m", ID).code == 2
    assert cli("logs", "--since", "tomorrow", ID).code == 2


def test_grep_shows_lines_that_match(cli: Cli, cluster: FakeClient):
    cluster.output["stdout"] = [b"loss 1\nst", b"ep\nloss 2\n"]
    assert cli("logs", "--grep", "^loss [0-9]", ID).out == "loss 1\nloss 2\n"
    assert cli("logs", "--grep", "2$", ID).out == "loss 2\n"
    said = cli("logs", "--grep", "(", ID)
    assert (said.code, "--grep" in said.err) == (2, True)
    said = cli("logs", "--grep", r"(a)\1", ID)
    assert (said.code, "RE2" in said.err, "backreferences" in said.err) == (2, True, True)


def test_a_pattern_that_would_never_end_takes_no_time(cli: Cli, cluster: FakeClient):
    cluster.output["stdout"] = [b"a" * 5000 + b"b\n"]
    began = process_time()
    assert cli("logs", "--grep", "(a+)+$", ID).out == ""
    assert process_time() - began < 5.0  # Python's own matcher would not end in this century


def test_of_a_task_that_waits_that_is_said(cli: Cli, cluster: FakeClient):
    cluster.times = replace(cluster.times, attempt=0)
    cluster.task = lambda id: a_task(id=id, attempt=0, status="Pending")  # type: ignore[method-assign]
    said = cli("logs", ID)
    assert (said.code, said.out, f"{ID} has not started" in said.err) == (0, "", True)


def test_of_a_task_that_never_started_nothing_is_said_of_waiting(cli: Cli, cluster: FakeClient):
    cluster.times = replace(cluster.times, attempt=0)
    cluster.task = lambda id: a_task(id=id, attempt=0, status="Failed")  # type: ignore[method-assign]
    assert f"{ID} is Failed and never started; `phalanx why {ID}` says why" in cli("logs", ID).err


def test_tasks_are_called_by_their_numbers(cli: Cli, cluster: FakeClient):
    cluster.array, cluster.held, cluster.ends = ID, [a_job(tasks=1)], [a_job()]
    cluster.kept_tasks = [a_task(id=f"{ID}.0", number="17.0", attempt=0, status="Pending")]
    seen = iter(["Pending", "Cancelled"])
    cluster.task = lambda id: a_task(id=id, attempt=0, status=next(seen))  # type: ignore[method-assign]
    assert cli("logs", "-f", ID).out == "0| 17.0 has not started yet\n"


def test_following_goes_on_with_the_next_attempt(cli: Cli, cluster: FakeClient):
    cluster.output["stdout"] = [b"hello\n"]
    seen = iter([("Running", 1), ("Running", 3), ("Running", 3), ("Completed", 3)])

    def task(id: str) -> object:
        status, attempt = next(seen)
        return a_task(status=status, attempt=attempt)

    cluster.task = task  # type: ignore[method-assign,assignment]
    text = "attempt 1 ended: exited with code 1; retried in 1 s"
    cluster.lines = [StoryLine(1, AT, "AttemptEnded", text)]
    said = cli("logs", "-f", "--tail", "1", ID)
    assert said.out == "hello\n" * 3
    assert said.err.splitlines() == [
        "--- attempt 1 has ended: exited with code 1 ---",
        "--- attempt 2 on n1 ---",
        "--- attempt 2 has ended ---",
        "--- attempt 3 on n1 ---",
    ]
    assert [call[2]["lines"] for call in cluster.asked if call[0] == "logs"] == [1, None, None]


def test_an_attempt_that_no_task_has_had_is_refused(cli: Cli, cluster: FakeClient):
    cluster.array, cluster.held = ID, [a_job(tasks=2)]
    cluster.kept_tasks = [a_task(id=f"{ID}.{number}", attempt=number + 1) for number in range(2)]
    assert cli("logs", "--attempt", "2", ID).code == 0
    said = cli("logs", "--attempt", "7", ID)
    assert (said.code, "--attempt 7" in said.err, "2 attempts" in said.err) == (2, True, True)


def test_a_follower_waits_for_a_node_that_is_not_connected(cli: Cli, cluster: FakeClient):
    cluster.output["stdout"] = [b"hello\n"]
    away = a_task(unreachable=True)
    lost = a_task(status="Pending")
    seen = iter([away, away, lost, lost, a_task(attempt=2), a_task(attempt=2, status="Completed")])
    refusals, cluster.ends = iter([True, True]), [away]
    logs = cluster.logs

    def unreadable(id: str, **asked: Any) -> Iterator[bytes]:
        if next(refusals, False):
            raise Unavailable("node n1 is not connected", reason="LogUnavailable")
        return logs(id, **asked)

    cluster.task = lambda id: next(seen)  # type: ignore[method-assign]
    cluster.logs = unreadable  # type: ignore[method-assign]
    said = cli("logs", "-f", ID)
    assert said.out == "hello\n"
    assert len([line for line in said.err.splitlines() if "waiting for it" in line]) == 1
    assert cluster.verbs().count("wait") == 1


def test_lines_of_many_tasks_begin_with_their_index(cli: Cli, cluster: FakeClient):
    cluster.array, cluster.held = ID, [a_job(tasks=30)]
    cluster.kept_tasks = [a_task(id=f"{ID}.{number}", attempt=1, status="Completed") for number in range(30)]
    cluster.kept_tasks[7].attempt = 0
    cluster.output["stdout"] = [b"one\ntw", b"o"]
    said = cli("logs", ID)
    expected = [f"{number:>2}| {word}" for number in range(30) if number != 7 for word in ("one", "two")]
    assert said.out.splitlines() == expected
    assert "1 of 30 tasks have no log" in said.err
    followed = cli("logs", "-f", "--grep", "one", ID)
    assert sorted(followed.out.splitlines()) == sorted(
        f"{number:>2}| one" for number in range(30) if number != 7
    )
