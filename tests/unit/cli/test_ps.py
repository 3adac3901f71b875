"""`phalanx ps`: what is listed, in which order, and how."""

from __future__ import annotations

import csv
import io
import re
from typing import Any, cast

import pytest
import yaml
from msgspec import json

from phalanx.api.schema.jobs import Counts, JobView, WatchEvent
from phalanx.cli.job_table import chosen_columns, table_of
from phalanx.cli.waiting_reasons import AGE_S, JOBS_MAX, WaitingReasons
from tests.support.clocks import ManualClock
from tests.support.fake_client import ID, Cli, FakeClient, a_job, a_task, a_why

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
        "user": None,
        "mine": False,
        "since": None,
        "until": None,
        "node": None,
        "cursor": None,
        "limit": 1000,
    }


def test_a_list_longer_than_a_page_is_read_to_its_end(cli: Cli, cluster: FakeClient):
    cluster.held = [a_job(f"{number:026d}", "Running") for number in range(2500)]
    assert len(ids(cli("ps", "--status", "Running", "--limit", "2200").out)) == 2200
    assert [call[1]["limit"] for call in cluster.asked if not call[1]["mine"]] == [1000, 1000, 201]


def test_into_a_pipe_goes_the_whole_list(cli: Cli, cluster: FakeClient):
    cluster.held = [a_job(f"{number:026d}", "Running") for number in range(250)]
    assert len(ids(cli("ps", "--status", "Running").out)) == 250
    assert len(ids(cli("ps", "--status", "Running", "--limit", "0").out)) == 250


def test_a_list_that_was_cut_says_so(cli: Cli, cluster: FakeClient):
    cluster.held = [a_job(f"{number:026d}", "Running") for number in range(9)]
    assert "there are more than these 5" in cli("ps", "--status", "Running", "--limit", "5", "-o", "json").err


def test_an_empty_list_says_so(cli: Cli, cluster: FakeClient):
    said = cli("ps")
    assert (said.code, said.out) == (0, "")
    assert "nothing is waiting or running" in said.err
    assert (cli("ps", "-o", "json").out, cli("ps", "-o", "yaml").out) == ("[]\n", "[]\n")
    assert "nothing to list" in cli("ps", "--all").err


def test_users_and_times_are_asked_for(cli: Cli, busy: FakeClient):
    cli("ps", "-a", "--mine", "--since", "2026-11-18T09:00+00:00")
    cli("ps", "-a", "--user", "bob", "--since", "2h")
    first, second = [call[1] for call in busy.asked if call[0] == "jobs"][:2]
    assert (first["mine"], first["user"], first["since"]) == (True, None, 1794992400.0)
    assert (second["mine"], second["user"]) == (False, "bob")
    assert "is not a time" in cli("ps", "--since", "last year").err
    cli("ps", "-a", "--until", "2026-11-18T09:00+00:00", "--node", "n1", "-n", "exp*")
    (third,) = [call[1] for call in busy.asked if call[0] == "jobs" and call[1].get("node") == "n1"]
    assert (third["until"], third["name"]) == (1794992400.0, "exp*")
    assert "--until: 'soon' is not a time" in cli("ps", "--until", "soon").err


def test_jobs_that_are_named_are_listed_whether_they_have_ended_or_not(cli: Cli, busy: FakeClient):
    assert ids(cli("ps", DONE, OLD).out) == [DONE, OLD]
    assert ids(cli("ps", DONE, OLD, "-s", "running").out) == [OLD]
    assert cli("ps", "nosuch").code != 0
    assert "give jobs, or --tasks" in cli("ps", OLD, "--tasks", NEW).err
    assert "give jobs, or --user to choose some" in cli("ps", OLD, "--user", "bob", "--node", "n1").err


def test_csv_has_headings_and_no_dashes_and_no_formula(cli: Cli, cluster: FakeClient):
    cluster.held = [a_job(number=7, name="", command=["=1+2", "a,b"]), a_job(OLD, number=6)]
    read = list(csv.reader(io.StringIO(cli("ps", "-o", "csv").out)))
    assert [len(row) for row in read] == [len(read[0])] * 3
    row = dict(zip(read[0], read[1], strict=True))
    assert (row["ID"], row["NAME"], row["COMMAND"], row["EXIT"]) == ("7", "", "'=1+2 a,b", "")
    assert cli("ps", "-o", "csv", "--columns", "id,status").out == "ID,STATUS\n7,Running\n6,Running\n"
    cluster.held = []
    assert cli("ps", "-o", "csv", "--columns", "id,status").out == "ID,STATUS\n"
    assert "csv is for a list" in cli("ps", "-w", "-o", "csv").err


def test_tags_are_a_column_that_is_asked_for(cli: Cli, cluster: FakeClient):
    cluster.held = [a_job(number=7, tags={"app": "x", "draft": ""})]
    assert cli("ps", "--columns", "id,tags").out == "ID  TAGS\n7   app=x, draft=\n"
    assert "TAGS" not in cli("ps", "-o", "wide").out


def test_a_node_that_there_is_not_is_told(cli: Cli, cluster: FakeClient):
    cluster.machines = []
    said = cli("ps", "--node", "n9")
    assert (said.code != 0, "n9" in said.err) == (True, True)


def test_a_list_is_sorted_and_has_the_columns_that_are_asked_for(cli: Cli, cluster: FakeClient):
    cluster.held = [a_job(f"{at:026d}", number=at, name=name) for at, name in ((3, "b"), (2, "c"), (1, "a"))]
    assert cli("ps", "--columns", "id,name", "--sort", "name").out == "ID  NAME\n1   a\n3   b\n2   c\n"
    assert cli("ps", "--columns", "id", "--sort", "-number").out == "ID\n3\n2\n1\n"
    assert cli("ps", "--columns", "tasks,long-id").out.splitlines()[0] == "DONE/TASKS  LONG ID"
    assert "'size' is not a column here" in cli("ps", "--columns", "size").err
    assert "'size' is unknown" in cli("ps", "--sort", "size").err


def test_numbers_stand_for_ids(cli: Cli, cluster: FakeClient):
    cluster.held = [a_job(number=17, queue="long", nodes=["n1", "n2"])]
    lines = cli("ps").out.splitlines()
    assert lines[0].split() == ["ID", "NAME", "STATUS", "DONE/TASKS", "QUEUE", "ELAPSED", "NODES", "COMMAND"]
    assert lines[1].split()[0] == "17"
    assert cli("ps", "-o", "name").out == "17\n"
    assert cli("ps", "-o", "wide").out.splitlines()[1].endswith(ID)


def test_what_is_paused_or_held_does_not_pass_for_running(cli: Cli, cluster: FakeClient):
    cluster.held = [
        a_job(DONE, number=3, counts=Counts(running=2), paused=1),
        a_job(NEW, "Pending", number=2, held="a repair"),
        a_job(OLD, number=1, counts=Counts(running=1), paused=1),
    ]
    assert cli("ps", "--columns", "id,status").out.split() == [
        "ID",
        "STATUS",
        "3",
        "Running",
        "2",
        "Held",
        "1",
        "Paused",
    ]


def test_what_runs_on_a_lost_connection_or_is_held_in_part_says_so(cli: Cli, cluster: FakeClient):
    cluster.held = [
        a_job(DONE, number=3, tasks=3, counts=Counts(running=2, pending=1), held="by ann"),
        a_job(NEW, number=2, tasks=2, counts=Counts(running=2), unreachable=1),
        a_job(OLD, number=1, counts=Counts(running=1), unreachable=1),
    ]
    lines = [line.split() for line in cli("ps", "--columns", "id,status,reason").out.splitlines()[1:]]
    assert lines == [
        ["3", "Running", "rest", "is", "held"],
        ["2", "Running", "1", "unreachable"],
        ["1", "Unreachable", "-"],
    ]
    assert "REASON" in cli("ps").out.splitlines()[0]
    cluster.kept_tasks = [a_task(number="1", unreachable=True)]
    assert cli("ps", "--tasks", ID, "--columns", "status").out.split() == ["STATUS", "Unreachable"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [("held", ["4", "3"]), ("unreachable", ["2"]), ("held,completed", ["5", "4", "3"]), ("paused", [])],
)
def test_a_status_is_asked_for_as_it_is_shown(cli: Cli, cluster: FakeClient, words: str, expected: list[str]):
    cluster.held = [
        a_job(DONE, "Pending", number=4, held="by ann"),
        a_job(NEW, number=3, tasks=3, counts=Counts(running=2, pending=1), held="by ann"),
        a_job(OLD, number=2, counts=Counts(running=1), unreachable=1),
        a_job(ID, "Completed", number=5),
    ]
    asked = [part for word in words.split(",") for part in ("--status", word)]
    assert ids(cli("ps", *asked).out) == expected
    assert ids(cli("ps", *asked, "--sort", "number", "--limit", "1").out) == expected[-1:]


def test_tasks_have_finer_words_too(cli: Cli, cluster: FakeClient):
    cluster.kept_tasks = [a_task(number="1.0", ready=True), a_task(number="1.1")]
    assert ids(cli("ps", "--tasks", ID, "--status", "ready").out) == ["1.0"]


def test_jobs_are_sorted_by_how_long_they_run(cli: Cli, cluster: FakeClient):
    cluster.held = [
        a_job(DONE, number=3, started_at=100.0, ended_at=110.0),
        a_job(NEW, number=2, started_at=None),
        a_job(OLD, number=1, started_at=100.0, ended_at=105.0),
    ]
    assert ids(cli("ps", "-a", "--sort", "elapsed").out) == ["2", "1", "3"]


def test_a_queue_that_there_is_not_is_named(cli: Cli, cluster: FakeClient):
    assert "nosuch" in cli("ps", "-q", "nosuch").err
    assert "phalanx queue list" in cli("ps", "-q", "nosuch", "-a").err
    assert "phalanx queue list" not in cli("ps", "-q", "lab").err


def test_tasks_are_listed_by_their_noun(cli: Cli, cluster: FakeClient):
    cluster.kept_tasks = [a_task(number="17.3")]
    assert cli("task", "list", ID).out == cli("ps", "--tasks", ID).out
    assert "Missing argument 'JOB'" in cli("task", "list").err


@pytest.mark.parametrize(("users", "is_cut"), [(["ada"], True), (["ada", "grace"], False)])
def test_a_table_fits_a_terminal_of_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, users: list[str], is_cut: bool
):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    jobs = [
        a_job(
            ID,
            number=100017,
            user=user,
            name="resnet-50-imagenet-lr0.1",
            queue="long",
            nodes=["gpu-node-17"],
            command=["python", "train.py", "--data", "/shared/imagenet"],
        )
        for user in users
    ]
    table_of(jobs, chosen_columns(None, jobs, False), 5000.0).show()
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= 80
    assert "100017" in lines[1]
    assert ("COMMAND" in lines[0], lines[1].endswith("…")) == (is_cut, is_cut), (
        "nothing but the command is cut"
    )
    at = lines[0].index("NAME")
    folded = "".join(line[at:].split("  ")[0] for line in lines[1:3])
    assert folded.startswith("resnet-50-imagenet-lr0.1")


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


def test_an_array_between_two_tasks_is_running_and_names_each_node_once(
    cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch
):
    counts = Counts(completed=93, assigned=1, pending=6)
    cluster.held = [a_job(tasks=100, status="Assigned", counts=counts, nodes=["vm"])]
    assert cli("ps", "--columns", "status,nodes").out.splitlines()[1].split() == ["Running", "vm"]
    cluster.held = [a_job(tasks=100, counts=counts, nodes=["n1", "n2", "n3", "n4"])]
    assert cli("ps", "--columns", "nodes").out.splitlines()[1] == "n1,n2,n3,n4", "a pipe gets all"
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout.isatty", lambda: True, raising=False)
        assert cli("ps", "--columns", "nodes").out.splitlines()[1].strip() == "n1,n2,n3…"
    cluster.held = [a_job(nodes=["n1"], counts=Counts(running=1001)), a_job("01hzx", nodes=["n"] * 256)]
    shown = cli("ps", "--columns", "nodes").out.splitlines()[1:]
    assert [line.endswith("n…") or line == "n1…" for line in shown] == [True, True], "there may be more"


def test_an_array_shows_how_far_it_is(cli: Cli, cluster: FakeClient):
    cluster.held = [a_job(tasks=10, counts=Counts(completed=3, failed=1, running=6))]
    assert "4/10 (1 failed)" in cli("ps").out


def test_tasks_that_were_cancelled_do_not_count_as_done(cli: Cli, cluster: FakeClient):
    cluster.held = [a_job(status="Cancelled", tasks=10, counts=Counts(completed=3, failed=1, cancelled=6))]
    assert "4/10 (1 failed, 6 cancelled)" in cli("ps", "-a").out


def test_the_tasks_of_a_job(cli: Cli, cluster: FakeClient):
    cluster.kept_tasks = [a_task(f"{ID}.1", node="n7", devices=[0, 3]), a_task(f"{ID}.2", paused=True)]
    lines = cli("ps", "--tasks", ID).out.splitlines()
    assert lines[1].split()[:4] == [f"{ID}.1", "Running", "n7", "0,3"]
    assert "Paused" in lines[2]


def test_watching_on_a_terminal_is_a_table_drawn_in_place(
    cli: Cli, busy: FakeClient, monkeypatch: pytest.MonkeyPatch
):
    class TwoChanges:
        def __init__(self, *_: object) -> None:
            self.left = 2

        def wait(self) -> None:
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt

    monkeypatch.setattr("phalanx.cli.live._Changes", TwoChanges)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    said = cli("ps", "-w")
    assert said.out.count("STATUS") == 2, "drawn once more after a change"
    assert "AttemptEnded" not in said.out


def test_watching_into_a_pipe_tells_each_change(cli: Cli, cluster: FakeClient):
    cluster.events = [
        WatchEvent(7, 1000.0, "AttemptEnded", task=f"{ID}.1", status="Failed", text="ended\x1b[1m")
    ]
    assert cli("ps", "-w").out.rstrip().endswith(f"{ID}.1  Failed  ended")
    assert json.decode(cli("ps", "-w", "-o", "json").out, type=WatchEvent) == cluster.events[0]
    assert cli("ps", "-w", "-o", "name").out == f"{ID}.1\n"


def test_what_waits_says_why_in_a_word(cli: Cli, cluster: FakeClient):
    cluster.held = [
        a_job(DONE, "Pending", number=3, held="a repair"),
        a_job(NEW, "Pending", number=2),
        a_job(OLD, number=1, nodes=["n1"]),
    ]
    lines = [line.split() for line in cli("ps").out.splitlines()]
    at = lines[0].index("REASON")
    code = a_why().dominant.code
    assert [line[at] for line in lines[1:]] == ["-", code, "-"]
    assert [call[1] for call in cluster.asked if call[0] == "reasons"] == [[NEW]], (
        "what is held says so in its status"
    )
    assert cli("ps", "--columns", "id,reason").out.split() == ["ID", "REASON", "3", "-", "2", code, "1", "-"]


def test_reasons_are_asked_for_of_a_few_and_only_where_they_are_shown(cli: Cli, cluster: FakeClient):
    cluster.held = [a_job(f"{number:026d}", "Pending") for number in range(JOBS_MAX + 1)]
    assert f"the first {JOBS_MAX} waiting jobs" in cli("ps").err
    assert [len(call[1]) for call in cluster.asked if call[0] == "reasons"] == [JOBS_MAX], "in one question"
    cluster.asked.clear()
    for words in (["--columns", "id,status"], ["-o", "json"], ["-o", "name"]):
        assert cli("ps", *words).err == ""
    assert not any(call[0] == "reasons" for call in cluster.asked)


def test_a_list_that_is_drawn_again_asks_again_after_a_while(cluster: FakeClient):
    clock = ManualClock()
    reasons, job = WaitingReasons(clock), a_job(ID, "Pending")
    for _ in range(3):
        assert reasons.told(cast(Any, cluster), [job])[0].reason
    assert len(cluster.asked) == 1
    clock.at += AGE_S
    reasons.told(cast(Any, cluster), [job])
    assert len(cluster.asked) == 2


def test_columns_of_an_empty_list_are_checked(cli: Cli):
    assert "'nme' is not a column here" in cli("ps", "--columns", "id,nme").err
    assert "'done' is not a column here" in cli("ps", "--tasks", ID, "--columns", "done").err
