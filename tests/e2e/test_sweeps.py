"""Sweeps on real processes: a grid and a file, failed tasks again, and a coordinator that is killed in between."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from phalanx.api.schema.submission import SubmitRequest
from phalanx.client import calls
from phalanx.client.sweeps import pieces, retry
from phalanx.errors import BadRequest, Conflict
from tests.e2e.test_workflow_cli import run_cli
from tests.support.real_cluster import RealCluster, a_real_cluster

TRAIN = (
    'printf "%s" "{\\"loss\\": \\"$1\\"}" > "$PHALANX_RESULT";'
    ' test "$2" != 2 || test -e "$3" || exit 3; test "$PHALANX_PARAM_lr" = "$1"'
)


def test_a_day_with_sweeps(tmp_path: Path) -> None:
    with a_real_cluster(tmp_path / "cluster", lost_after_s=20.0) as cluster:
        grid_and_retry(cluster, tmp_path)
        rows_over_a_kill(cluster, tmp_path)
        refused(cluster, tmp_path)


def grid_and_retry(cluster: RealCluster, folder: Path) -> None:
    """A value is data, whatever is in it; what failed runs again over a kill of the coordinator, once."""
    mended = folder / "mended"
    values = ["--param", "lr=0.1,$(id);' x", "--param", "seed=1..3", "--retries", "0"]
    train = ["sh", "-c", TRAIN, "train", "{lr}", "{seed}", str(mended)]
    first = run_cli(cluster, folder, "submit", *values, "--limit", "2", "--", *train).stdout.strip()
    assert run_cli(cluster, folder, "wait", first).returncode == 3
    assert results(cluster, folder, first) == [
        ("1", "0"),
        ("2", "3"),
        ("3", "0"),
        ("4", "0"),
        ("5", "3"),
        ("6", "0"),
    ]
    mended.touch()
    again = retry(cluster.client.job(first).id, False, "once")
    made = cluster.client._ask(again)
    cluster.kill("coordinator")
    cluster.start_coordinator()
    cluster.wait_ready("coordinator")
    replayed = cluster.client._ask(again)
    assert (replayed.task_ids, replayed.replayed) == (made.task_ids, True)
    cluster.client.wait(made.batch_id, timeout=30)
    assert {code for _, code in results(cluster, folder, first)} == {"0"}
    assert cluster.client.job(first).status == "Failed", "what has ended does not change"
    with pytest.raises(Conflict):
        cluster.client.retry(first)


def results(cluster: RealCluster, folder: Path, id: str) -> list[tuple[str, str]]:
    text = run_cli(cluster, folder, "results", id, "-o", "csv").stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert {row["lr"] for row in rows} == {"0.1", "$(id);' x"}
    assert all(row["loss"] == row["lr"] for row in rows)
    return [(row["index"], row["exit_code"]) for row in rows]


def rows_over_a_kill(cluster: RealCluster, folder: Path) -> None:
    """Rows that were sent are gone with the coordinator; the client sends them again, and there is one job."""
    client, file = cluster.client, folder / "rows.csv"
    rows = [[str(number), f"n {number}"] for number in range(5000)]
    for call in pieces("u", ["a", "b"], rows):
        client._ask(call)
    cluster.kill("coordinator")
    cluster.start_coordinator()
    cluster.wait_ready("coordinator")
    request = SubmitRequest(
        command=["test", "{b}", "=", "n {a}"], cwd="/", array="7-4999:1664", request_id="r"
    )
    with pytest.raises(Conflict):
        client._ask(calls.submit(SubmitRequest(command=["true"], cwd="/", rows="u"), {}))
    sent = client.submit_rows(request, ["a", "b"], rows)
    assert client.submit_rows(request, ["a", "b"], rows).task_ids == sent.task_ids
    assert client.wait(sent.batch_id, timeout=30).status == "Completed"
    assert [task.params["a"] for task in client.tasks(sent.batch_id).items] == ["6", "1670", "3334", "4998"]
    file.write_text("a,b\n" + "".join(f"{a},{b}\n" for a, b in rows[:3]))
    made = run_cli(
        cluster, folder, "submit", "--wait", "--from-csv", str(file), "--", "test", "{b}", "=", "n {a}"
    )
    assert made.returncode == 0


def refused(cluster: RealCluster, folder: Path) -> None:
    before = len(cluster.client.jobs().items)
    for name, text, option, said in (
        ("ragged.csv", "a,b\n1,2\n3\n", "--from-csv", "line 3 has 1 value, expected 2 (a, b)"),
        ("twice.csv", "a,a\n1,2\n", "--from-csv", "'a' names two columns"),
        ("empty.csv", "a,b\n", "--from-csv", "it contains no rows"),
        ("nothing", "", "--each-line", "it contains no rows"),
        ("one.json", '{"a": 1}\n{"b": 2}\n', "--from-json", "row 2 has no 'a'"),
        ("bad.json", '[{"a": 1}', "--from-json", "is not JSON"),
        ("latin.txt", "a\n\udce9\n", "--each-line", "line 2 is not UTF-8"),
    ):
        path = folder / name
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        told = run_cli(cluster, folder, "submit", option, str(path), "--", "true")
        assert (told.returncode != 0, said in told.stderr) == (True, True), told.stderr
    with pytest.raises(BadRequest):
        cluster.client.submit(command=["true", "{x.y}"], params={"x": "1"})
    assert len(cluster.client.jobs().items) == before
