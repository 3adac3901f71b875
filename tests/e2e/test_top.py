"""`phalanx top` on a cluster in this process: every view, the questions before a change, and what the change did; and
its screens in a real terminal.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from textual.widgets import Log, Static

import phalanx
from phalanx import AsyncClient
from phalanx.cli.top.app import TopApp
from phalanx.cli.top.dialogs import AskReason, Confirm
from phalanx.cli.top.job_screen import JobScreen
from phalanx.cli.top.log_screen import LogScreen
from phalanx.cli.top.map_view import HeatMapView
from phalanx.cli.top.row_table import RowTable
from tests.support.waiting import until, wait_until

TALKS = ["sh", "-c", r"printf 'a [red]line[/red] \033[2J\n'; exec sleep 60"]
PRETEND = "gpus=2,type=h100,memory=80GiB,cpus=4,ram=8GiB"
SIZES = (("small", 80, 24), ("large", 200, 50))
DEVICES = """\
n1   >B B  n2    C C
by holder:  B  1 runs (2)   C  2 other (2)
n1 (no rack) Online  3/4 cores, 8 GiB of 8 GiB free
GPU 0 h100 80 GiB  held by 1 runs of local in default, Running for TIME
⏎ why o logs c colour x cancel h hold p pause d drain 1-3 views ? keys q quit"""
JOBS = """\
running and waiting: 3 jobs, sorted by number ↓  waits: WaitingCapacity 1
ID    NAME         USER     STATUS    TASKS  GPUS TIME   REASON OR NODES
3     waits        local    Pending   0/1    ×2   TIME REASON
2     other        local    Running   0/1    ×2   TIME n2
1     runs         local    Running   0/1    ×2   TIME n1
3 waits  local  default  Pending  1 task
REASON
⏎ open o logs / filter w which s sort x cancel h hold 1-3 views ? keys q quit"""


def is_running(cluster: phalanx.LocalCluster, id: str) -> bool:
    return cluster.job(id).status == "Running"


@pytest.fixture
def cluster() -> Iterator[phalanx.LocalCluster]:
    """Two jobs fill two nodes, a third one waits."""
    with phalanx.local(nodes=2, pretend=PRETEND) as cluster:
        for name, command in (("runs", TALKS), ("other", ["sleep", "60"])):
            job = cluster.submit(command=command, name=name, gpus=2)
            wait_until(partial(is_running, cluster, job.id), what="it runs")
        cluster.submit(command=["sleep", "60"], name="waits", gpus=2)
        yield cluster


@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")
def test_the_screens_of_a_real_terminal(cluster: phalanx.LocalCluster, tmp_path: Path):
    access = cluster.session_access()
    (tmp_path / "token").write_text(access.token)
    (tmp_path / "token").chmod(0o600)
    program = Path(sys.executable).with_name("phalanx")
    words = [program, "--address", access.address, "--token-file", tmp_path / "token", "top"]

    def tmux(*arguments: object) -> str:
        line = ["tmux", "-S", str(tmp_path / "tmux"), "-f", os.devnull, *map(str, arguments)]
        return subprocess.run(line, check=True, capture_output=True, text=True).stdout

    def shows(session: str, expected: str) -> bool:
        return masked(tmux("capture-pane", "-p", "-t", session)) == expected

    for session, width, height in SIZES:
        tmux("new-session", "-d", "-s", session, "-x", width, "-y", height, *words)
    try:
        for session, _, _ in SIZES:
            wait_until(lambda: shows(session, DEVICES), what=DEVICES)  # noqa: B023  # called at once
            tmux("send-keys", "-t", session, "2")
        for session, _, _ in SIZES:
            wait_until(lambda: shows(session, JOBS), what=JOBS)  # noqa: B023
    finally:
        tmux("kill-server")


def masked(screen: str) -> str:
    """Without the first line, empty lines and rules; what differs from one run to the next has a word instead."""
    text = re.sub(r"\b\d[\d.]*s\b *", "TIME ", screen)
    text = re.sub(r"n\d: 0 of 2 GPUs free.*", "REASON", text)
    lines = (line.rstrip() for line in text.splitlines()[1:])
    return "\n".join(line for line in lines if line.strip("─"))


def test_an_operator_looks_at_devices_jobs_and_logs_and_changes_something(cluster: phalanx.LocalCluster):
    access = cluster.session_access()
    waits = next(job.id for job in cluster.jobs().items if job.name == "waits")
    asyncio.run(_look(cluster, access.address, access.token, waits))


async def _look(cluster: phalanx.Client, address: str, token: str, waits: str) -> None:
    async with AsyncClient(address, token) as client:
        app = TopApp(client)
        async with app.run_test(size=(80, 24)) as pilot:
            await until(lambda: app.screen.query_one(HeatMapView).place is not None)

            def text(selector: str) -> str:
                return str(app.screen.query_one(selector, Static).content)

            await until(lambda: "runs" in text("#legend"))
            await pilot.press("d")
            await until(lambda: isinstance(app.screen, AskReason))
            await pilot.press(*"disk", "enter")
            await until(lambda: any(node.drain_reason == "disk" for node in cluster.nodes()))

            await pilot.press("p")
            await until(lambda: isinstance(app.screen, Confirm))
            await pilot.press("y")
            await until(lambda: any(job.paused for job in cluster.jobs().items))

            await pilot.press("2")
            table = app.screen.query_one(RowTable)
            await until(lambda: table.row_count == 3)
            await until(lambda: str(table.get_cell_at((0, 7))) not in {"", "…"})  # type: ignore[arg-type]
            await pilot.press("enter")
            await until(lambda: isinstance(app.screen, JobScreen) and "Pending" in text("#why-text"))
            await pilot.press("h")
            await until(lambda: isinstance(app.screen, AskReason))
            await pilot.press(*"later", "enter")
            await until(lambda: cluster.job(waits).held is not None)
            await until(lambda: isinstance(app.screen, JobScreen) and "held" in text("#notice"))
            await pilot.press("escape", "x")
            await until(lambda: isinstance(app.screen, Confirm))
            await pilot.press("y")
            await until(lambda: cluster.job(waits).status == "Cancelled")

            await until(lambda: table.row_count == 2)
            await pilot.press("end", "o")
            await until(lambda: isinstance(app.screen, LogScreen))
            await until(lambda: list(app.screen.query_one(Log).lines)[:1] == ["a [red]line[/red] "])
