"""Every list fits a terminal of 80 columns, with long names and notes, and says what it left out."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from phalanx.api.schema.cluster import AuditLine, DeviceView, IsolationView, TokenView
from phalanx.api.schema.usage import ReportReply, ReportRow, UsageReply, UsageSums
from phalanx.cli.columns import Fitted, fitted
from phalanx.clock import SystemClock
from tests.support.fake_client import ID, Cli, FakeClient, a_gang, a_job, a_node, a_task
from tests.support.fake_usage import a_usage

NOW = SystemClock().now()
WORDS = "replacing the power supply of the upper chassis, ask Anna"
SUMS = UsageSums(tasks=400, core_hours=2000.25, core_hours_used=1000.5, cpu_efficiency=0.5, memory_share=0.75)
SUMS = structs.replace(SUMS, device_hours=1234.5, device_use=0.5, device_hours_idle=700.25, cost=3250.75)


def a_report(by: Any) -> ReportReply:
    row = ReportRow("100017", 20, SUMS)
    if by == "job":
        about = ("ResNet50_lr0.1_imagenet", "alice.anderson", "long", "Completed")
        row.name, row.user, row.queue, row.status = about
    return ReportReply(by, 0.0, 1.0, 1.0, [row], ReportRow("total", 20, SUMS), None)


def a_usage_reply() -> UsageReply:
    return UsageReply(ID, "Running", [a_usage(f"{ID}.{n}") for n in (1, 2)], SUMS, 1000.0, 5.0)


def fill(cluster: FakeClient) -> None:
    """A cluster whose lists are as wide as they get."""
    long: dict[str, Any] = {
        "name": "ResNet50_lr0.1_imagenet",
        "nodes": ["gpu-node-17", "gpu-node-18"],
        "number": 100017,
        "started_at": NOW - 9e5,
    }
    cluster.held = [a_job(user="alice.anderson", queue="long", **long), a_gang(f"{ID[:-1]}x", **long)]
    cluster.kept_tasks = [
        a_task(number="100017.3", node="gpu-node-17", devices=[*range(8)], message=WORDS, reason="oom")
    ]
    devices = [DeviceView(index, "h100", 80 << 30) for index in range(8)]
    weak = IsolationView(lacking=["CPUs", "devices"])
    cluster.machines = [
        a_node("gpu-node-17", devices=devices, drained=True, drain_reason=WORDS, note=WORDS, isolation=weak),
        a_node("gpu-node-18", devices=devices, cores=128, cores_free=127.5, memory_bytes=(2 << 40) + 5),
    ]
    times = (NOW, "admin", NOW + 2e6, NOW - 9e5)
    token = TokenView("3b03e5da89561dd2", "user", "alice.anderson", "operator", True, False, *times)
    line = AuditLine(
        1000.0, "alice.anderson", "user", ID, "127.0.0.1:56030", "POST", "/v1/nodes/{id}/drain", "gpu-node-17",
        403, "RoleForbids",
    )  # fmt: skip
    answers: dict[str, Callable[..., Any]] = {
        "usage": lambda id, **_: a_usage_reply(),
        "report": lambda by="user", **_: a_report(by),
        "tokens": lambda: [token],
        "audit": lambda *_, **_more: [line],
    }
    for name, answer in answers.items():
        setattr(cluster, name, answer)


def at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on standard output is a terminal of 80 columns. (A fixture would patch what pytest then replaces.)"""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)


LISTS = (
    "ps", "ps -a", f"ps --tasks {ID}", "nodes", "node list", "token list", "audit", f"usage {ID}", "report",
    "report --by job", "gang list", f"gang show {ID}", "config show",
)  # fmt: skip


@pytest.mark.parametrize("command", LISTS)
def test_a_list_fits_a_terminal_of_80_columns(
    cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch, command: str
):
    at_a_terminal(monkeypatch)
    fill(cluster)
    said = cli(*command.split())
    assert said.code == 0, said.err
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", said.out).splitlines()
    rows = [
        line for line in lines if not line.startswith("In all: ")
    ]  # one sentence, which the terminal wraps
    assert max(map(len, rows)) <= 80, max(rows, key=len)
    assert "…" not in said.out or command.startswith("ps"), "nothing but a command is cut"


def test_what_a_list_leaves_out_is_told_and_wide_has_it(
    cli: Cli, cluster: FakeClient, monkeypatch: pytest.MonkeyPatch
):
    at_a_terminal(monkeypatch)
    fill(cluster)
    assert "-o wide also has JOBS" in cli("report").err
    wide = cli("report", "-o", "wide")
    assert "JOBS" in wide.out
    assert wide.err == ""


def test_into_a_pipe_goes_everything(cli: Cli, cluster: FakeClient):
    fill(cluster)
    said = cli("report", "--by", "job")
    assert said.out.splitlines()[0].split()[:6] == ["JOB", "NAME", "USER", "QUEUE", "STATUS", "TASKS"]
    assert said.err == ""


def test_a_single_other_user_is_named_and_i_am_not(cli: Cli, cluster: FakeClient):
    cluster.held = [a_job(user="grace")]
    assert "grace" in cli("ps").out
    assert "USER" not in cli("ps", "--user", "grace").out
    cluster.held = [a_job(user="ada")]
    assert "USER" not in cli("ps").out


ROWS = [["ID", "NAME", "EMPTY", "SIZE"], ["1", "a name of several words", "-", "12345678"]]


@pytest.mark.parametrize(
    ("room", "fit"),
    [
        (80, Fitted([0, 1, 2, 3], {}, [])),
        (40, Fitted([0, 1, 3], {}, [])),  # what is empty goes first
        (30, Fitted([0, 1, 3], {1: 16}, [])),  # then a name is folded
        (12, Fitted([0, 1], {1: 8}, [3])),  # then a column goes that is spare
        (4, Fitted([0, 1], {1: 5}, [3])),  # and the rest is for the terminal to wrap
    ],
)
def test_first_goes_what_is_empty_then_text_is_folded_then_a_column_goes(room: int, fit: Fitted):
    assert fitted(ROWS, {"NAME": 5}, ("SIZE",), room) == fit
