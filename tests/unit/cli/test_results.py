"""`phalanx results`: rows, columns and cells."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from phalanx.cli.results import COLUMNS_MAX, ResultRow, _csv, _table
from phalanx.errors import Forbidden, NotFound, PhalanxError
from tests.support.fake_client import ID, Cli, FakeClient, a_task


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
    assert read[0] == ["task", "status", "exit_code", "seconds", "a", "b"]
    assert read[1] == ["j.1", "Completed", "0", "1.5", 'say "hi", twice', "2"]
    assert read[2][4:] == ["two\nlines", ""]


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
    monkeypatch.setattr(cluster, "result", result, raising=False)
    said = cli("results", ID)
    assert (said.code, bool(said.out)) == (code, not code)
    assert ("owner" in said.err) == bool(code)
