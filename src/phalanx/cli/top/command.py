"""`phalanx top`: nodes, devices, jobs, logs and alarms, live on a terminal; `-o json` prints one snapshot.

Textual is imported only once a screen is opened, because it takes longer to import than most commands run.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import typer
from msgspec import Struct

from phalanx.api.schema.cluster import ClusterView, NodeView
from phalanx.api.schema.jobs import JobView
from phalanx.cli.output import OutputOption, emit
from phalanx.cli.session import CliSession, async_connect, session
from phalanx.cli.terminal import is_terminal
from phalanx.cli.top.alarms import Alarm, alarms_of
from phalanx.cli.top.snapshot import ClusterSnapshot, read_snapshot
from phalanx.clock import SystemClock
from phalanx.errors import BadRequest

if TYPE_CHECKING:
    from phalanx.client.async_client import AsyncClient


class SnapshotDocument(Struct, frozen=True):
    """What `-o json` prints."""

    at: float
    cluster: ClusterView
    nodes: list[NodeView]
    jobs: list[JobView]
    alarms: list[Alarm]


def top(ctx: typer.Context, output: OutputOption = None) -> int:
    """Show nodes, GPUs, jobs, logs and alarms live.

    Keys are shown in the last line. With -o json or yaml one snapshot is printed instead.
    """
    here = session(ctx)
    chosen = here.output(output)
    if chosen in {"json", "yaml", "name"}:
        found = asyncio.run(_once(here))
        document = SnapshotDocument(found.at, found.cluster, found.nodes, found.jobs, alarms_of(found))
        emit(document, chosen, [node.name for node in found.nodes], lambda _wide: [])
        return 0
    if not (is_terminal() and sys.stderr.isatty()):  # Textual draws on standard error
        raise BadRequest(
            "phalanx top needs a terminal, and its input, output or standard error is none",
            hint="phalanx top -o json prints one snapshot; phalanx ps and phalanx nodes print tables",
        )
    code = asyncio.run(_shown(here))
    sys.stdout.flush()
    return code


async def _once(here: CliSession) -> ClusterSnapshot:
    async with async_connect(here.settings) as client:
        return await read_snapshot(client, SystemClock().now(), sys.maxsize)


async def _shown(here: CliSession) -> int:
    async with async_connect(here.settings) as client:
        await (
            client.cluster()
        )  # what is wrong with an address or a token is said before the screen is taken over
        app = _app(client)
        await app.run_async()
        return int(app.return_code or 0)


def _app(client: AsyncClient) -> Any:
    from phalanx.cli.top.app import TopApp

    return TopApp(client)
