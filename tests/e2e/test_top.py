"""`phalanx top` on a cluster in this process: every view, the questions before a change, and what the change did; and
its screens in a real terminal.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
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
from tests.support.tmux import Size, Terminals, terminals
from tests.support.waiting import until, wait_until

TALKS = ["sh", "-c", r"printf 'a [red]line[/red] \033[2J\n'; exec sleep 600"]
PRETEND = "gpus=2,type=h100,memory=80GiB,cpus=4,ram=8GiB"
SIZES = ((80, 24), (120, 40))
SCREENS = Path(__file__).parent / "top_screens"  # `pytest tests/e2e/test_top.py --rewrite` writes them anew


def is_running(cluster: phalanx.LocalCluster, id: str) -> bool:
    return cluster.job(id).status == "Running"


@pytest.fixture
def cluster() -> Iterator[phalanx.LocalCluster]:
    """Two jobs fill two nodes, a third one waits."""
    with phalanx.local(nodes=2, pretend=PRETEND) as cluster:
        for name, command in (("runs", TALKS), ("other", ["sleep", "600"])):
            job = cluster.submit(command=command, name=name, gpus=2)
            wait_until(partial(is_running, cluster, job.id), what="it runs")
        cluster.submit(command=["sleep", "600"], name="waits", gpus=2)
        yield cluster


@pytest.fixture
def shown(cluster: phalanx.LocalCluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Shown]:
    """`phalanx top` in terminals of two sizes. Without tmux there is no test, but in CI there has to be one."""
    if shutil.which("tmux") is None and not os.environ.get("CI"):
        pytest.skip("tmux is missing: scripts/servers installs it with apt, as root")
    fails = cluster.submit(command=["false"], name="fails", max_retries=0)
    wait_until(lambda: cluster.job(fails.id).status == "Failed" or None, what="it has failed")
    access = cluster.session_access()
    (tmp_path / "token").touch(mode=0o600)
    (tmp_path / "token").write_text(access.token)
    program = Path(sys.executable).with_name("phalanx")
    words = [program, "--address", access.address, "--token-file", tmp_path / "token", "top"]
    rewrite = bool(request.config.getoption("--rewrite"))
    with terminals(tmp_path, SIZES, words) as opened:
        yield Shown(opened, rewrite)


class Shown:
    """Both terminals: press keys, and see a screen."""

    def __init__(self, opened: Terminals, rewrite: bool) -> None:
        self.terminals, self._rewrite = opened, rewrite

    def after(self, screen: str, *keys: str) -> None:
        self.terminals.press(*keys)
        self.see(screen)

    def see(self, screen: str, sizes: Sequence[Size] = SIZES) -> None:
        self.terminals.expect(SCREENS, screen, sizes, rewrite=self._rewrite)

    def wait(self, words: str, *keys: str, sizes: Sequence[Size] = SIZES) -> None:
        """Press keys, and wait for some words."""
        for size in sizes:
            self.terminals.press(*keys, only=size)
        for size in sizes:
            wait_until(lambda: words in self.terminals.screen(size), what=words)  # noqa: B023 - called at once

    def first(self, words: str, *keys: str) -> None:
        """Press keys in one of the terminals, so that what they do is done once, and wait for some words there."""
        self.wait(words, *keys, sizes=SIZES[:1])


@pytest.mark.timeout(180)
def test_the_screens_of_real_terminals(cluster: phalanx.LocalCluster, shown: Shown):
    shown.see("devices")
    shown.after("keys", "?")
    shown.after("devices", "Escape")
    shown.after("jobs", "2")
    shown.wait("/ filter\n", "/")
    shown.after("filter", "ot")
    shown.wait("3     waits", "Escape")
    shown.after("jobs", "Home")
    shown.after("cancel", "x")
    shown.after("jobs", "n")
    shown.after("hold", "h")
    shown.after("jobs", "Escape")
    shown.after("why", "Enter")
    shown.after("story", "s")
    shown.after("tasks", "t")
    shown.after("jobs", "Escape")
    shown.after("logs", "End", "o")
    shown.after("jobs-end", "Escape")
    shown.after("alarms", "3")


@pytest.mark.timeout(180)
def test_what_is_changed_in_one_terminal_is_shown_in_the_other(cluster: phalanx.LocalCluster, shown: Shown):
    shown.see("devices")
    shown.after("drain", "d")
    shown.terminals.press("Escape", only=SIZES[1])
    shown.see("devices", SIZES[1:])
    shown.terminals.press("2", only=SIZES[1])
    shown.first("n1 drained", "a new disk", "Enter")
    assert cluster.node("n1").drain_reason == "a new disk"
    shown.see("jobs-drained", SIZES[1:])
    shown.first("sorted by number", "2")
    waits = next(job.id for job in cluster.jobs().items if job.name == "waits")
    shown.first("Hold job 3 waits", "Home", "h")
    shown.first("3 held", "later", "Enter")
    assert cluster.job(waits).held == "later (by local)"
    shown.first("Cancel job 3 waits", "x")
    shown.first("3 cancelled", "y")
    assert cluster.job(waits).status == "Cancelled"
    shown.terminals.press("3", only=SIZES[1])
    shown.see("alarms-drained", SIZES[1:])


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
