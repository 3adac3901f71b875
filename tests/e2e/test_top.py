"""`phalanx top` on a cluster in this process: every view, the questions before a change, and what the change did."""

from __future__ import annotations

import asyncio

from textual.widgets import DataTable, Log, Static

import phalanx
from phalanx import AsyncClient
from phalanx.cli.top.app import TopApp
from phalanx.cli.top.dialogs import AskReason, Confirm
from phalanx.cli.top.job_screen import JobScreen
from phalanx.cli.top.log_screen import LogScreen
from phalanx.cli.top.map_view import HeatMapView
from tests.support.waiting import until, wait_until

TALKS = ["sh", "-c", r"printf 'a [red]line[/red] \033[2J\n'; exec sleep 60"]


def test_an_operator_looks_at_devices_jobs_and_logs_and_changes_something():
    with phalanx.local(nodes=2, pretend="gpus=2,type=h100,memory=80GiB,cpus=4,ram=8GiB") as cluster:
        runs = cluster.submit(command=TALKS, name="runs", gpus=2)
        wait_until(lambda: cluster.job(runs.id).status == "Running", what="it runs")
        cluster.submit(command=["sleep", "60"], name="other", gpus=2)
        waits = cluster.submit(command=["sleep", "60"], name="waits", gpus=2)
        access = cluster.session_access()
        asyncio.run(_look(cluster, access.address, access.token, waits.id))


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

            await pilot.press("2")
            table = app.screen.query_one(DataTable)
            await until(lambda: table.row_count == 3)
            await until(lambda: str(table.get_cell_at((0, 7))) not in {"", "…"})  # type: ignore[arg-type]
            await pilot.press("enter")
            await until(lambda: isinstance(app.screen, JobScreen) and "Pending" in text("#why-text"))
            await pilot.press("escape", "x")
            await until(lambda: isinstance(app.screen, Confirm))
            await pilot.press("y")
            await until(lambda: cluster.job(waits).status == "Cancelled")

            await until(lambda: table.row_count == 2)
            await pilot.press("end", "o")
            await until(lambda: isinstance(app.screen, LogScreen))
            await until(lambda: list(app.screen.query_one(Log).lines)[:1] == ["a [red]line[/red] "])
