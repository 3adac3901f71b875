"""`phalanx usage` and `phalanx report`: lines, curves, tables and times."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from msgspec import json, structs

from phalanx.api.schema.usage import ReportReply, ReportRow, UsageReply, UsageSums
from phalanx.cli.report import read_time
from phalanx.errors import BadRequest
from tests.support.fake_client import ID, Cli, FakeClient, a_job, a_task
from tests.support.fake_usage import SUMMARY, a_usage


def a_reply(*ids: str, status: Any = "Running") -> UsageReply:
    totals = UsageSums(tasks=len(ids), attempts=2, core_hours=1.5, core_hours_used=0.5, cpu_efficiency=1 / 3)
    return UsageReply(ids[0], status, [a_usage(id) for id in ids], totals, 1000.0, 5.0)


def test_one_task_is_told_in_lines_and_curves(cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cluster, "usage", lambda id, **_: a_reply(id), raising=False)
    out = cli("usage", ID).out
    for line in (
        "Cores now:    2.00 of 4",
        "CPU used:     1m30s (45% of its cores)",
        "Memory peak:  3 GiB (75% of its request)",
        "GPU 0:        0% now, 60% mean, 5 GiB of its processes; idle for 20m",
    ):
        assert line in out
    assert "cores   ▁▃▅  0 to 4" in out
    assert "GPU     ▅▅▅  0 to 100%" in out


def test_an_ended_one_has_numbers_only(cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch):
    reply = a_reply(ID, status="Completed")
    reply.tasks = [structs.replace(reply.tasks[0], status="Completed", now=None, devices=[], points=[])]
    monkeypatch.setattr(cluster, "usage", lambda id, **_: reply, raising=False)
    out = cli("usage", ID).out
    assert "now" not in out
    assert "I/O:          4 KiB read, 1 MiB written" in out


def test_several_are_a_table_with_the_sums_of_all(
    cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch
):
    reply = a_reply(f"{ID}.1", f"{ID}.2")
    monkeypatch.setattr(cluster, "usage", lambda id, **_: reply, raising=False)
    lines = cli("usage", ID).out.splitlines()
    assert lines[0].split()[:4] == ["ID", "STATUS", "NODE", "TIME"]
    assert lines[1].startswith(f"{ID}.1")
    assert lines[1].endswith("1 GPU idle")
    assert lines[-1].startswith("In all: 2 tasks, 2 attempts; 1.50 core-hours, 0.50 used (33%)")


def test_following_ends_with_the_task_and_writes_a_document_each_time(
    cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch
):
    replies = iter([a_reply(ID), a_reply(ID, status="Completed")])
    monkeypatch.setattr(
        cluster, "usage", lambda id, **_: structs.replace(next(replies), interval_s=0.0), raising=False
    )
    monkeypatch.setattr("phalanx.cli.usage.PAUSE_S_MIN", 0.0)
    lines = cli("usage", ID, "-w", "-o", "json").out.splitlines()
    assert [json.decode(line)["status"] for line in lines] == ["Running", "Completed"]


def test_show_has_the_summary(cli: Cli, cluster: FakeClient):
    cluster.held = [a_job(status="Completed")]
    cluster.kept_tasks = [a_task(status="Completed", usage=SUMMARY)]
    out = cli("show", ID).out
    assert "GPU use:       60% mean, 5 GiB memory at most, idle for 2m" in out


def a_report(by: Any = "user", **fields: Any) -> ReportReply:
    sums = UsageSums(tasks=4, core_hours=2.0, core_hours_used=1.0, cpu_efficiency=0.5, cost=3.25)
    row = ReportRow("=ada()", 2, sums, **fields)
    return ReportReply(by, None, None, 1000.0, [row], structs.replace(row, key="total"))


def test_a_report_is_a_table_with_a_total(cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cluster, "report", lambda by, **_: a_report(by), raising=False)
    lines = cli("report", "--since", "7d").out.splitlines()
    assert lines[0].split()[:3] == ["USER", "JOBS", "TASKS"]
    assert lines[1].split() == ["=ada()", "2", "4", "2.00", "1.00", "50%", "-", "0.00", "-", "0.00", "3.25"]
    assert lines[2].startswith("total")


def test_jobs_are_reported_by_number(cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch):
    reply = a_report("job", user="ada", number=17)
    reply.total.number = 0
    monkeypatch.setattr(cluster, "report", lambda by, **_: reply, raising=False)
    lines = cli("report", "--by", "job").out.splitlines()
    assert (lines[1].split()[0], lines[2].split()[0]) == ("17", "total")
    assert cli("report", "--by", "job", "-o", "wide").out.splitlines()[1].endswith("=ada()")


def test_csv_has_every_number_and_no_formula(cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cluster, "report", lambda by, **_: a_report(by, name="+x", user="ada"), raising=False)
    read = list(csv.reader(io.StringIO(cli("report", "--by", "job", "-o", "csv").out)))
    assert read[0][:6] == ["job", "name", "user", "queue", "status", "jobs"]
    assert read[1][:3] == ["'=ada()", "'+x", "ada"]
    assert dict(zip(read[0], read[1], strict=True))["cpu_efficiency"] == "0.5"
    assert len(read) == 2


def test_what_was_asked_for_is_asked_of_the_cluster(
    cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch
):
    asked: dict[str, Any] = {}
    monkeypatch.setattr(
        cluster, "report", lambda by, **more: asked.update(more) or a_report(by), raising=False
    )
    assert cli("report", "-u", "bob", "-q", "lab", "--until", "2026-11-01T12:00+00:00").code == 0
    assert (asked["user"], asked["queue"], asked["since"], asked["until"]) == (
        "bob",
        "lab",
        None,
        1793534400.0,
    )


@pytest.mark.parametrize(("text", "at"), [("90s", 9910.0), ("1h", 6400.0), ("2d", 0.0), (None, None)])
def test_a_time_may_be_so_long_ago(text: str | None, at: float | None):
    assert read_time("--since", text, 10_000.0) == at


@pytest.mark.parametrize("text", ["last year", "", "-1h", "2026-13-01"])
def test_a_time_that_cannot_be_read_says_what_can(text: str):
    with pytest.raises(BadRequest, match=r"--since: .* is not a time: write 2h, 3d"):
        read_time("--since", text, 10_000.0)
