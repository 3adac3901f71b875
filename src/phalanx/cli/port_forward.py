"""`phalanx port-forward`: TCP ports of a running task at ports of this machine."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from phalanx.api.schema.sessions import ForwardRequest
from phalanx.cli.exec import RankOption, TaskArgument
from phalanx.cli.job import id_of
from phalanx.cli.output import note
from phalanx.cli.session import session
from phalanx.client.session_connection import AsyncExecSession, open_session
from phalanx.duplex import Duplex
from phalanx.errors import BadRequest, Conflict, Forbidden, NotFound, PhalanxError, Unauthorized, Unavailable

if TYPE_CHECKING:
    from phalanx.client.client import Client

PORT_MAX = 65_535
PIECE_BYTES = 32 * 1024


class PortPair(NamedTuple):
    """A port here, 0 for any that is free, and one of the task."""

    local: int
    remote: int


def port_forward(
    ctx: typer.Context,
    task: TaskArgument,
    ports: Annotated[
        list[str],
        typer.Argument(
            metavar="[LOCAL:]PORT...", help="Port of the task, and the one here if it differs; 0 = any."
        ),
    ],
    bind: Annotated[
        str, typer.Option("-b", "--bind", help="Address of this machine to listen at.")
    ] = "127.0.0.1",
    local: Annotated[
        int | None, typer.Option("-l", "--local", min=0, max=PORT_MAX, help="Port here, for a single PORT.")
    ] = None,
    rank: RankOption = None,
) -> int:
    """Forward TCP ports of a running task (also: `forward`).

    `phalanx port-forward 01kx… 8888` makes port 8888 of the task reachable at 127.0.0.1:8888, `8000:80` its port 80
    at 8000, `0:80` at a port that is free, which is printed. It ends with Ctrl-C, or with the task.
    """
    pairs = [read_pair(each) for each in ports]
    if local is not None:
        if len(pairs) > 1 or ":" in ports[0]:
            raise BadRequest("--local is for a single PORT: write LOCAL:PORT for each of several")
        pairs = [PortPair(local, pairs[0].remote)]
    client = session(ctx).client()
    forwarding = Forwarding(client, id_of(client, task), rank)
    forwarding.check(pairs[0].remote)
    return asyncio.run(forwarding.serve(bind, pairs))


def read_pair(text: str) -> PortPair:
    local, colon, remote = text.rpartition(":")
    words = (local, remote) if colon else (remote, remote)
    if not all(word.isascii() and word.isdecimal() and int(word) <= PORT_MAX for word in words) or not int(
        words[1]
    ):
        raise BadRequest(
            f"{text!r} is not a port or a pair of ports: write PORT, or LOCAL:PORT, each from 1 to {PORT_MAX}"
        )
    return PortPair(int(words[0]), int(words[1]))


class Forwarding:
    """Listens here, and opens a session for each connection that comes."""

    def __init__(self, client: Client, task: str, rank: int | None) -> None:
        self._client = client
        self._task = task
        self._rank = rank
        self._tasks: set[asyncio.Task[None]] = set()
        self._over: asyncio.Future[None] | None = None

    def check(self, port: int) -> None:
        """Raise what would keep every connection from being made."""
        self._client.forward_ticket(self._task, ForwardRequest(port=port, rank=self._rank))

    async def serve(self, bind: str, pairs: list[PortPair]) -> int:
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        servers = []
        for pair in pairs:

            def accepted(port: int = pair.remote) -> ForwardedConnection:
                return ForwardedConnection(self, port)

            try:
                server = await loop.create_server(accepted, bind, pair.local)
            except OSError as error:
                raise Unavailable(
                    f"cannot listen at {bind}:{pair.local}: {error.strerror or error}",
                    reason="PortTaken",
                    hint=f"give another one, such as 0:{pair.remote}",
                ) from None
            servers.append(server)
            host, port = server.sockets[0].getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            print(f"{shown}:{port} -> {self._task}:{pair.remote}", flush=True)
        try:
            await self._over
        finally:
            for server in servers:
                server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        return 0

    def accept(self, here: Duplex, port: int) -> None:
        task = asyncio.get_running_loop().create_task(self._connect(here, port))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, here: Duplex, port: int) -> None:
        try:
            request = ForwardRequest(port=port, rank=self._rank)
            ticket = await asyncio.to_thread(self._client.forward_ticket, self._task, request)
            async with await open_session(self._client.session_access(), ticket) as there:
                await _joined(here, there)
        except PhalanxError as error:
            is_over = (
                isinstance(error, NotFound | Forbidden | Unauthorized | Conflict)
                and error.reason != "PortRefused"
            )
            if is_over and self._over is not None and not self._over.done():
                self._over.set_exception(error)
            elif not is_over:
                note(f"port {port}: {error.detail}")
        finally:
            here.close()


class ForwardedConnection(Duplex):
    """A connection of this machine, to be connected to a port of the task."""

    def __init__(self, forwarding: Forwarding, port: int) -> None:
        super().__init__()
        self._forwarding = forwarding
        self._port = port

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._forwarding.accept(self, self._port)


async def _joined(here: Duplex, there: AsyncExecSession) -> None:
    """Copy both ways until the task's side has ended, or ours is gone."""
    feeding = asyncio.ensure_future(_feed(here, there))
    try:
        async for _, piece in there:
            if piece:
                await here.write(piece)
            else:
                here.end_writing()
    except ConnectionError:
        return
    finally:
        feeding.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(feeding, return_exceptions=True)


async def _feed(here: Duplex, there: AsyncExecSession) -> None:
    while piece := await here.read(PIECE_BYTES):
        await there.write(piece)
    await there.end_input()
