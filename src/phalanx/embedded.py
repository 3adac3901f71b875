"""A whole cluster inside this process: `phalanx.local()`. The same calls, the same answers, and no server.

The coordinator and the runners live on an event loop in their own thread; REST's own code answers the calls without a
socket, and runners are connected to the coordinator by a pipe in memory. Tasks are real processes. State is kept in
memory and ends with the cluster.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import tempfile
import threading
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from msgspec import structs

from phalanx.api.server.app import build_app
from phalanx.client.client import Client
from phalanx.client.in_process import BridgedTransport, InProcessTransport
from phalanx.client.session_calls import SessionAccess
from phalanx.clock import SteadyClock
from phalanx.config import task_environment
from phalanx.coordinator.credentials import Credentials
from phalanx.coordinator.executors import BUILT_IN, SubmitDefaults
from phalanx.coordinator.files import FileStore
from phalanx.coordinator.files_config import FilesConfig
from phalanx.coordinator.leadership import LeadershipConfig
from phalanx.coordinator.main import Coordinator
from phalanx.coordinator.server import RestServer, RunnerConnection, rest_server
from phalanx.duplex import Duplex
from phalanx.errors import BadRequest
from phalanx.link import wire
from phalanx.runner.accounts import Accounts
from phalanx.runner.cgroups import Cgroups
from phalanx.runner.limits import AttemptLimits, isolating
from phalanx.runner.link import LinkClient, Wire
from phalanx.runner.logs import RunnerLogLink
from phalanx.runner.loop import RunnerLoop
from phalanx.runner.machine import LocalMachine
from phalanx.runner.main import capacity_of
from phalanx.runner.scratch import ScratchFolders
from phalanx.runner.sessions import RunnerSessions
from phalanx.runner.turn import RunnerEngine
from phalanx.store.memory import MemoryStore

T = TypeVar("T")
LOG_MAX_BYTES = 64 * 1024 * 1024
RETRIES = 3


class LocalCluster(Client):
    """A client that owns its cluster. Leave the `with` block, or call `close`, to end both."""

    def __init__(self, nodes: int = 1, pretend: str | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="phalanx-local", daemon=True)
        self._thread.start()
        self._cluster = _Cluster()
        try:
            self._run(self._cluster.open(nodes, pretend))
        except BaseException:
            self._end()
            raise
        exchange = BridgedTransport(InProcessTransport(self._cluster.app), self._loop)
        super().__init__(token=self._cluster.token, exchange=exchange)

    def close(self) -> None:
        """Stop the tasks, the runners and the coordinator."""
        if not self._loop.is_closed():
            super().close()
            self._end()

    def _worker_access(self) -> dict[str, str]:
        """Tasks reach this process at a port of loopback, which is opened when the first `Executor` needs it."""
        address = self._run(self._cluster.listen())
        return {"PHALANX_EXECUTOR_ADDRESS": address}

    def session_access(self) -> SessionAccess:
        """Sessions go through the same port."""
        return SessionAccess(self._run(self._cluster.listen()), None, self._cluster.token)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _end(self) -> None:
        self._run(self._cluster.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def local(nodes: int = 1, pretend: str | None = None) -> LocalCluster:
    """A cluster in this process, of this machine or of simulated nodes: `with phalanx.local() as cluster: …`."""
    try:
        return LocalCluster(nodes, pretend)
    except ValueError as error:
        raise BadRequest(str(error)) from None


class _Cluster:
    """The parts, as they live on the loop."""

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(32)
        self._folder = tempfile.TemporaryDirectory(prefix="phalanx-local-", ignore_cleanup_errors=True)
        self._node_token = secrets.token_urlsafe(32)
        keys = Credentials.local(self.token, self._node_token)
        files = FilesConfig(FileStore.folder(Path(self._folder.name) / "files"))
        self._coordinator = Coordinator(
            MemoryStore(), LeadershipConfig(), keys, SubmitDefaults(RETRIES, BUILT_IN), files=files
        )
        self.app = build_app(self._coordinator.commands, keys)
        self._address: str | None = None  # of REST, once tasks need it
        self._server: RestServer | None = None
        self._serving: asyncio.Future[None] | None = None
        self._shells: list[RunnerLoop] = []
        self._sessions: list[RunnerSessions] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self, nodes: int, pretend: str | None) -> None:
        await self._coordinator.leadership.open()  # alone, so it is active at once
        self._keep(self._coordinator.leadership.run())
        self._keep(self._coordinator.keep_files())
        for number in range(1, nodes + 1):
            await self._add_node(f"n{number}", pretend, is_alone=nodes == 1)

    async def close(self) -> None:
        if self._serving is not None and self._server is not None:
            self._server.should_exit = self._server.force_exit = True
            await self._serving
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(each.close() for each in self._sessions))
        await asyncio.gather(*(shell.close(stop_tasks=True) for shell in self._shells))
        self._folder.cleanup()

    async def listen(self) -> str:
        """The address of REST for tasks of this cluster; it is served from now on."""
        if self._address is None:
            server = rest_server(self.app, "127.0.0.1", 0)
            self._server, self._serving = server, asyncio.ensure_future(server.serve())
            self._address = f"http://127.0.0.1:{await server.port()}"
        return self._address

    async def _add_node(self, name: str, pretend: str | None, is_alone: bool) -> None:
        """A node. Several share this machine, so none of them gives out CPUs of its own."""
        folder = Path(self._folder.name) / name
        folder.mkdir()
        incarnation, has = secrets.token_hex(8), capacity_of(name, pretend)
        cpus = sorted(os.sched_getaffinity(0)) if is_alone and not pretend else ()
        cgroups = Cgroups.find(f"{name}-{incarnation}", isolate=True)
        limits = AttemptLimits(cgroups, has, cpus, scratch=ScratchFolders(folder / "scratch"))
        capacity = isolating(structs.replace(has, accounts=Accounts(None).told), limits.isolation)
        engine = RunnerEngine(name, incarnation, name, self._node_token, capacity)
        place = LocalMachine(folder, cgroups.bases), cgroups
        shell = RunnerLoop(engine, folder, SteadyClock(), task_environment(), LOG_MAX_BYTES, [place], limits)
        await shell.open()
        self._shells.append(shell)
        serves = {"files": True, "usage": True, "sessions": True, "times": True, "inputs": True}
        hello = wire.LogHello(wire.VERSION, self._node_token, name, engine.incarnation, **serves)
        sessions = RunnerSessions(name, lambda: self._node_token, shell.leader, self._dial, shell.inputs)
        self._sessions.append(sessions)
        self._connect(shell)
        self._connect(
            RunnerLogLink(
                lambda: hello,
                shell.log_root,
                shell.engine.is_live,
                shell.uploads,
                lambda asked: shell.usage.answer(asked, shell.clock.now()),
                sessions.open,
            )
        )
        self._keep(shell.beat())
        self._keep(shell.tick())
        self._keep(shell.uploads.keep(shell.engine.live_keys, shell.clock.now()))
        self._keep(shell.usage.keep(shell.clock))
        await shell.joined.wait()

    def _connect(self, client: LinkClient) -> None:
        """A runner's end and a coordinator's end, joined by a pipe in memory."""
        parts = self._coordinator
        near, far = (
            Wire(client),
            RunnerConnection(parts.links, parts.log_links, parts.leadership.post, parts.addresses),
        )
        here, there = _Pipe(far), _Pipe(near)
        here.peer, there.peer = there, here
        far.connection_made(there)
        near.connection_made(here)

    async def _dial(self) -> Duplex:
        """A runner's end of a connection for one session, over sockets, so that a slow reader is waited for."""
        parts, loop = self._coordinator, asyncio.get_running_loop()
        here, there = socket.socketpair()
        await loop.connect_accepted_socket(
            lambda: RunnerConnection(parts.links, parts.log_links, parts.leadership.post, parts.addresses),
            there,
        )
        _, made = await loop.create_connection(Duplex, sock=here)
        return made

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))


class _Pipe(asyncio.Transport):
    """One direction of a connection in memory; what is written arrives at the next turn of the loop."""

    def __init__(self, reader: asyncio.Protocol) -> None:
        super().__init__()
        self._reader = reader
        self._loop = asyncio.get_running_loop()
        self._closing = False
        self.peer: _Pipe | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closing:
            self._loop.call_soon(self._reader.data_received, bytes(data))

    def is_closing(self) -> bool:
        return self._closing

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._reader.connection_lost, None)
            if self.peer is not None:
                self.peer.close()

    def abort(self) -> None:
        self.close()
