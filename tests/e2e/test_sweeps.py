"""Sweeps on real processes: a grid and a file, failed tasks again, and a coordinator that is killed in between."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

import phalanx
from phalanx.api.schema.submission import SubmitReply, SubmitRequest
from phalanx.client import calls
from phalanx.client.calls import SUBMIT
from phalanx.client.sweeps import pieces, retry
from phalanx.errors import BadRequest, Conflict, Unavailable
from tests.e2e.test_workflow_cli import run_cli
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.waiting import wait_until

ROWS = [[str(number)] for number in range(5000)]  # two pieces

TRAIN = (
    'printf "%s" "{\\"loss\\": \\"$1\\"}" > "$PHALANX_RESULT";'
    ' test "$2" != 2 || test -e "$3" || exit 3; test "$PHALANX_PARAM_lr" = "$1"'
)


def test_a_day_with_sweeps(tmp_path: Path) -> None:
    with a_real_cluster(tmp_path / "cluster", lost_after_s=20.0) as cluster:
        grid_and_retry(cluster, tmp_path)
        rows_over_a_kill(cluster, tmp_path)
        kills_inside_calls(cluster, tmp_path)
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
    number = str(made.accepted[0].number)
    assert results(cluster, folder, number) == [("2", "0"), ("5", "0")], (
        "a retry by its number is shown alone"
    )
    assert f"which has that one: {first}.1\n" in run_cli(cluster, folder, "logs", f"{number}.1").stderr
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


class Again(Thread):
    """Runs failed sweeps again and uploads rows, one after another; each call is repeated until it is answered."""

    def __init__(self, cluster: RealCluster, failed: list[str], out: Path) -> None:
        super().__init__(daemon=True)
        self.retried: dict[str, str] = {}  # by the sweep: the job that runs it again
        self.uploaded: list[str] = []  # jobs, in the order of their numbers
        self._end = Event()
        self._client = self.calls = InterruptedClient(cluster.address("coordinator"), cluster.user_token)
        self._failed, self._out = failed, out

    def run(self) -> None:
        with self._client as client:
            while not self._end.is_set():
                if self._failed:
                    job = self._failed.pop()
                    again = self._answered(partial(client.retry, job, request_id=f"retry-{job}"))
                    self.retried[job] = again.batch_id
                number = len(self.uploaded)
                request = SubmitRequest(
                    shell=f"echo {number} $PHALANX_PARAM_a >> {self._out}", cwd="/", array="1-5000:2499",
                    request_id=f"rows-{number}",
                )  # fmt: skip
                sent = self._answered(partial(client.submit_rows, request, ["a"], ROWS))
                self.uploaded.append(sent.batch_id)

    def stop(self) -> None:
        self._end.set()
        self.join(60)
        assert not self.is_alive()

    def _answered(self, call: Callable[[], SubmitReply]) -> SubmitReply:
        def answer() -> SubmitReply | None:
            try:
                return call()
            except Unavailable:
                return None
            except Conflict as error:  # it was killed several times meanwhile
                if error.reason != "UploadUnknown":
                    raise
                return None

        return wait_until(answer, 60.0, "an answer")


class InterruptedClient(phalanx.Client):
    """Says when it is inside a call: before it is sent, or when it was accepted and its answer is lost."""

    def __init__(self, address: str, token: str) -> None:
        super().__init__(address, token)
        self._path, self._loses_answer = "", False
        self._inside, self._killed = Event(), Event()

    @contextmanager
    def inside(self, path: str, *, loses_answer: bool) -> Iterator[None]:
        """While the next call of this path is made."""
        self._inside.clear()
        self._killed.clear()
        self._loses_answer, self._path = loses_answer, path
        assert self._inside.wait(30)
        yield
        self._killed.set()

    def _ask(self, call: Any) -> Any:
        if not self._path or not call.path.endswith(self._path):
            return super()._ask(call)
        self._path = ""
        if not self._loses_answer:
            self._inside.set()
            return super()._ask(call)
        super()._ask(call)
        self._inside.set()
        assert self._killed.wait(30)
        raise Unavailable("the answer was lost")


def kills_inside_calls(cluster: RealCluster, folder: Path) -> None:
    """Killed inside a retry, an upload and the submission after it: what was repeated is there once, and whole."""
    client, mended, out = cluster.client, folder / "able", folder / "ran"
    fails = f"test -e {mended} || exit 3; echo $PHALANX_JOB_NAME $PHALANX_PARAM_seed >> {out}"
    failed = [
        client.submit(shell=fails, params={"seed": "1..3"}, retries=0, name=f"sweep-{number}").batch_id
        for number in range(6)
    ]
    for job in failed:
        client.wait(job, timeout=30)
    before = {job.id for job in client.jobs(limit=1000).items}
    mended.touch()
    again = Again(cluster, failed.copy(), out)
    again.start()
    for path, loses_answer in (("/retry", True), ("/rows", False), (SUBMIT, True), ("/rows", True)):
        with again.calls.inside(path, loses_answer=loses_answer):
            cluster.kill("coordinator")
        cluster.start_coordinator()
        cluster.wait_ready("coordinator")
    wait_until(lambda: len(again.retried) == len(failed), 60.0, "all were retried")
    again.stop()
    assert [client.job(each).retries for each in failed] == [[again.retried[each]] for each in failed]
    made = [*again.retried.values(), *again.uploaded]
    assert {job.id for job in client.jobs(limit=1000).items} - before == set(made)
    for job in made:
        assert client.wait(job, timeout=60).status == "Completed"
    rows = {tuple(task.params["a"] for task in client.tasks(job).items) for job in again.uploaded}
    assert rows == {("0", "2499", "4998")}
    once = [f"sweep-{number} {seed}" for number in range(6) for seed in (1, 2, 3)]
    once += [f"{number} {row}" for number in range(len(again.uploaded)) for row in (0, 2499, 4998)]
    assert sorted(out.read_text().splitlines()) == sorted(once)


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
