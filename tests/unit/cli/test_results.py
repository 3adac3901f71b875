"""`phalanx results`: rows, columns and cells."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
import yaml

from phalanx.api.schema.jobs import Page, TaskView
from phalanx.cli.results import COLUMNS_MAX, OWN, ResultRow, _csv, _table
from phalanx.errors import Forbidden, NotFound, PhalanxError
from tests.support.fake_client import ID, Cli, FakeClient, a_job, a_task


def rows(*results: Any) -> list[ResultRow]:
    return [ResultRow(f"j.{n}", n, "Completed", 0, 1.5, result) for n, result in enumerate(results, start=1)]


def test_objects_have_a_column_for_each_key():
    table = _table(rows({"lr": 0.1, "name": "a"}, None, {"loss": [1], "lr": None}))
    assert table.headings == ("TASK", "STATUS", "EXIT", "TIME", "lr", "name", "loss")
    assert table.rows[0][4:] == ["0.1", "a", "-"]
    assert table.rows[1][4:] == ["-", "-", "-"]
    assert table.rows[2][4:] == ["-", "-", "[1]"]


@pytest.mark.parametrize(
    "results", [(1, {"a": 1}), ("text",), ({str(n): n for n in range(COLUMNS_MAX + 1)},)]
)
def test_anything_else_is_one_column(results: tuple[Any, ...]):
    assert _table(rows(*results)).headings[4:] == ("RESULT",)


def test_csv_is_what_a_reader_of_csv_expects():
    text = _csv(rows({"a": 'say "hi", twice', "b": 2}, {"a": "two\nlines"}))
    read = list(csv.reader(io.StringIO(text)))
    assert read[0] == [*OWN, "a", "b"]
    assert read[1] == ["j.1", "Completed", "0", "1.5", "1", "0", "", "", "", "", "", 'say "hi", twice', "2"]
    assert read[2][len(OWN) :] == ["two\nlines", ""]


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("=1+2", "'=1+2"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("+cmd", "'+cmd"),
        ("--lr", "'--lr"),
        ("\x01=1+2", "'=1+2"),
        ("-0.5", "-0.5"),
        ("+1e-3", "+1e-3"),
        (-3, "-3"),
        ("a=b", "a=b"),
    ],
)
def test_no_cell_of_csv_is_a_formula_and_numbers_stay_numbers(given: object, written: str):
    (row,) = csv.DictReader(io.StringIO(_csv(rows({"a": given}))))
    assert row["a"] == written


def test_nothing_in_it_takes_over_a_terminal():
    hostile = rows({"\x1b]0;x\x07key": "\x1b[2Jvalue"})
    assert "\x1b" not in _csv(hostile)
    table = _table(hostile)
    assert "\x1b" not in "".join([*table.headings, *table.rows[0]])


@pytest.mark.parametrize(("error", "code"), [(Forbidden("bob may not"), 77), (NotFound("none"), 0)])
def test_results_that_are_hidden_are_not_shown_as_none(
    cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch, error: PhalanxError, code: int
):
    def result(_id: str) -> Any:
        raise error

    cluster.kept_tasks = [a_task(status="Completed")]
    cluster.held = [a_job()]
    monkeypatch.setattr(cluster, "result", result, raising=False)
    said = cli("results", ID)
    assert (said.code, bool(said.out)) == (code, not code)
    assert ("owner" in said.err) == bool(code)


def swept(*params: dict[str, str], **fields: Any) -> list[ResultRow]:
    return [
        ResultRow(f"j.{n}", n, "Completed", 0, 1.5, None, params=each, **fields)
        for n, each in enumerate(params, start=1)
    ]


def test_parameters_are_columns_and_those_that_are_the_same_everywhere_are_left_out_of_a_table():
    given = swept({"lr": "0.1", "model": "m"}, {"lr": "0.2", "model": "m"})
    assert _table(given).headings == ("TASK", "lr", "STATUS", "EXIT", "TIME")
    assert _table(given[:1]).headings == ("TASK", "lr", "model", "STATUS", "EXIT", "TIME")
    read = list(csv.DictReader(io.StringIO(_csv(given))))
    assert [(row["lr"], row["model"], row["index"]) for row in read] == [("0.1", "m", "1"), ("0.2", "m", "2")]


def test_a_parameter_with_the_name_of_a_column_of_ours_is_told_apart():
    row = swept({"status": "x", "loss": "y"})[0]
    row.result = {"loss": 3}
    read = next(csv.DictReader(io.StringIO(_csv([row]))))
    assert (read["status"], read["param.status"], read["loss"], read["param.loss"]) == (
        "Completed",
        "x",
        "3",
        "y",
    )


def test_usage_is_shown_if_there_is_any():
    used = swept({"x": "1"}, memory_peak_bytes=5 << 20, gpu_use=0.5)
    table = _table(used)
    assert table.headings == ("TASK", "x", "STATUS", "EXIT", "TIME", "MEMORY", "GPU")
    assert table.rows[0][-1] == "50%"


def test_the_newest_outcome_of_each_task_is_shown(
    cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch
):
    retry = "0" * 25 + "r"
    first = [a_task(id=f"{ID}.{n}", index=n, number=f"17.{n}", status="Failed") for n in (1, 2, 3)]
    again = [a_task(id=f"{retry}.2", index=2, number="19.2", status="Completed")]
    cluster.held = [a_job(retries=[retry], number=17), a_job(id=retry, repeats=ID, number=19)]
    monkeypatch.setattr(
        cluster, "tasks", lambda id, **_: Page(first if id == ID else again, None), raising=False
    )
    monkeypatch.setattr(cluster, "result", lambda _: _none(), raising=False)
    jobs = {"17": ID, "19": retry, "sweep": retry}  # the newest of a name is the retry
    find = cluster.job
    monkeypatch.setattr(cluster, "job", lambda id: find(jobs.get(id) or id))

    def shown(*words: str) -> list[list[str]]:
        return [line.split()[:2] for line in cli("results", *words).out.splitlines()[1:]]

    every = [["17.1", "Failed"], ["19.2", "Completed"], ["17.3", "Failed"]]
    for asked in (["17"], [ID], ["sweep"], ["19", "--with-retries"]):
        assert shown(*asked) == every
    for asked in (["19"], [retry], ["sweep", "--without-retries"]):
        assert shown(*asked) == [["19.2", "Completed"]]
    assert "19 is a retry" in cli("results", "19").err
    assert "19.2" not in cli("results", ID, "--without-retries").out


def _none() -> Any:
    raise NotFound("none")


def swept_tasks() -> list[TaskView]:
    ends = [("Completed", {"loss": 3}), ("Failed", None), ("Completed", {"loss": 12})]
    return [
        a_task(f"{ID}.{n}", index=n, status=status, result=result, params={"lr": f"{10 - n}", "opt": "adam"})
        for n, (status, result) in enumerate(ends, start=1)
    ]


def test_results_have_the_formats_of_every_list(cli: Cli, cluster: FakeClient):
    cluster.kept_tasks = [
        a_task(f"{ID}.{number}", number=f"17.{number}", result=number) for number in range(2)
    ]
    cluster.held = [a_job(number=17)]
    assert cli("results", ID, "-o", "name").out == "17.0\n17.1\n"
    assert yaml.safe_load(cli("results", ID, "-o", "yaml").out)[1]["result"] == 1
    assert cli("results", ID, "-o", "wide").out.splitlines()[0].split() == ["TASK", "STATUS", "RESULT"]


def test_rows_are_chosen_by_status_and_sorted_by_any_column(cli: Cli, cluster: FakeClient):
    cluster.held, cluster.kept_tasks = [a_job(tasks=3)], swept_tasks()

    def tasks(*options: str) -> list[str]:
        return [line.split(",")[0] for line in cli("results", ID, "-o", "csv", *options).out.splitlines()[1:]]

    assert tasks("--status", "failed") == [f"{ID}.2"]
    assert tasks("--sort", "lr") == [f"{ID}.3", f"{ID}.2", f"{ID}.1"]
    assert tasks("--sort", "-loss") == [f"{ID}.3", f"{ID}.1", f"{ID}.2"]
    assert tasks("--sort", "task") == [f"{ID}.1", f"{ID}.2", f"{ID}.3"]
    said = cli("results", ID, "--sort", "los")
    assert (said.code, "--sort: 'los' is not a column here" in said.err) == (2, True)


def test_a_parameter_that_is_the_same_everywhere_is_told_below_the_table(cli: Cli, cluster: FakeClient):
    cluster.held, cluster.kept_tasks = [a_job(tasks=3)], swept_tasks()
    said = cli("results", ID)
    assert ("opt" in said.out, said.err) == (False, "the same for all of them: opt=adam\n")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ([], ["1", "2"]),
        (["--sort", "-loss"], ["3", "1"]),
        (["--sort", "loss"], ["2", "1"]),
        (["-s", "completed"], ["1", "3"]),
        (["-s", "completed", "--without-retries"], ["1", "3"]),
    ],
)
def test_a_limit_is_of_the_rows_that_are_asked_for(
    cli: Cli, cluster: FakeClient, words: list[str], shown: list[str]
):
    cluster.held = [a_job()]
    cluster.kept_tasks = [
        a_task(f"{ID}.{index}", index=index, status=status, result={"loss": loss})
        for index, status, loss in ((1, "Completed", 5), (2, "Failed", 1), (3, "Completed", 9))
    ]
    said = cli("results", ID, "--limit", "2", "-o", "csv", *words)
    assert [row["index"] for row in csv.DictReader(io.StringIO(said.out))] == shown
    assert said.err == "" if words[:1] == ["-s"] else "showing 2 tasks" in said.err
