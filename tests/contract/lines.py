"""The connections between a runner that a test plays and a coordinator: a pipe in memory, TCP frames, gRPC streams.

The runner sends frames to each of them. Over gRPC they are converted on its side, so that the coordinator receives,
over a real port, exactly what another program would send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal, Protocol

import grpc  # type: ignore[import-untyped]

from phalanx.coordinator import server as server_module
from phalanx.coordinator.main import Coordinator
from phalanx.coordinator.rpc import RpcServer
from phalanx.coordinator.rpc_runners import RunnersService
from phalanx.coordinator.server import RunnerConnection, serve
from phalanx.embedded import _Pipe
from phalanx.link import wire
from phalanx.rpc import messages

Way = Literal["pipe", "frames", "grpc"]
GARBAGE = b"\xff\xff\xff\xff"


class Line(asyncio.Transport):
    """A runner's end of a connection that is still to be made. What it writes waits until there is one."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.protocol = protocol
        self.is_mute = False  # the other side was killed: nothing is received from it any more
        self.takes = asyncio.Event()
        self.takes.set()
        self.code: Any = None  # the status with which a call ended
        self._said: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._carrying: asyncio.Task[None] | None = None

    def carry(self, work: Any) -> None:
        self._carrying = asyncio.ensure_future(work)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._said.put_nowait(bytes(data))

    def open_silently(self) -> None:
        """Make the call, and send nothing."""
        self._said.put_nowait(b"")

    def close(self) -> None:
        self._said.put_nowait(None)

    async def end(self) -> None:
        if self._carrying is not None:
            self._carrying.cancel()
            await asyncio.gather(self._carrying, return_exceptions=True)

    def hear(self, data: bytes) -> None:
        if not self.is_mute:
            self.protocol.data_received(data)

    def lost(self) -> None:
        if not self.is_mute:
            self.protocol.connection_lost(None)

    async def over_tcp(self, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        saying = asyncio.ensure_future(self._say_to(writer))
        try:
            while await self.takes.wait() and (data := await reader.read(65_536)):
                self.hear(data)
        except ConnectionError:
            pass
        finally:
            saying.cancel()
            writer.close()
        self.lost()

    async def _say_to(self, writer: asyncio.StreamWriter) -> None:
        while (data := await self._said.get()) is not None:
            writer.write(data)
        writer.close()

    async def over_grpc(self, port: int, token: str) -> None:
        first = await self._said.get()
        if first is None:
            return
        opening = _understood(first)
        hello = opening[0] if opening else None
        is_for_logs = isinstance(hello, wire.LogHello)
        there, back = (
            (messages.from_logs, messages.to_logs)
            if is_for_logs
            else (messages.from_runner, messages.to_runner)
        )
        shown = hello.token if isinstance(hello, wire.HelloMessage | wire.LogHello) else token
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.stream_stream(f"/{messages.RUNNERS}/{'Logs' if is_for_logs else 'Connect'}")(
                metadata=(("authorization", f"Bearer {shown}"),)
            )
            saying = asyncio.ensure_future(self._say_on(call, there, first))
            try:
                while await self.takes.wait() and (data := await call.read()) is not grpc.aio.EOF:
                    self.hear(wire.pack(back.hear(data)))
            except grpc.aio.AioRpcError:
                pass
            finally:
                saying.cancel()
            self.code = await call.code()
        self.lost()

    async def _say_on(self, call: Any, codec: messages.LinkCodec, first: bytes) -> None:
        data: bytes | None = first
        while data is not None:
            said = _understood(data)
            for message in said or ():
                known = isinstance(message, messages.FROM_RUNNER + messages.FROM_LOGS)
                await call.write(codec.pack(message) if known else GARBAGE)
            if data and not said:
                await call.write(GARBAGE)
            data = await self._said.get()
        await call.done_writing()


def _understood(data: bytes) -> list[wire.Message]:
    try:
        return wire.Unpacker().feed(data)
    except wire.WireError:
        return []


class Entrance(Protocol):
    """Where runners connect."""

    def connect(self, runner: TokenHolder) -> None: ...

    async def close(self) -> None: ...

    def mute(self) -> None: ...


class TokenHolder(Protocol):
    """A runner, as far as its way is concerned."""

    token: str

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def data_received(self, data: bytes) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...


class PipeEntrance:
    """In memory, as `phalanx.local()` has it."""

    def __init__(self, parts: Coordinator) -> None:
        self._parts = parts
        self._pipes: list[_Pipe] = []

    def connect(self, runner: Any) -> None:
        parts = self._parts
        connection = RunnerConnection(parts.links, parts.log_links, parts.leadership.post, parts.addresses)
        here, there = _Pipe(connection), _Pipe(runner)
        here.peer, there.peer = there, here
        self._pipes += (here, there)
        connection.connection_made(there)
        runner.connection_made(here)

    def mute(self) -> None:
        for pipe in self._pipes:
            pipe._closing = True

    async def close(self) -> None:
        """Pipes need no server."""


class PortEntrance:
    """A real port; `begin` gives the work that connects a line to it."""

    def __init__(self, begin: Callable[[Line, str], Any], shut: Callable[[], Any]) -> None:
        self._begin = begin
        self._shut = shut
        self.lines: list[Line] = []

    def connect(self, runner: Any) -> None:
        line = Line(runner)
        self.lines.append(line)
        runner.connection_made(line)
        line.carry(self._begin(line, runner.token))

    def mute(self) -> None:
        for line in self.lines:
            line.is_mute = True

    async def close(self) -> None:
        await self._shut()
        for line in self.lines:
            await line.end()


async def an_entrance(way: Way, parts: Coordinator) -> Entrance:
    if way == "pipe":
        return PipeEntrance(parts)
    if way == "frames":
        server, parts.addresses = await serve(
            "127.0.0.1", 0, parts.links, parts.log_links, parts.leadership.post
        )
        port = server.sockets[0].getsockname()[1]

        async def shut() -> None:
            server.close()
            await server.wait_closed()

        return PortEntrance(lambda line, _: line.over_tcp(port), shut)
    runners = RunnersService(
        parts.links,
        parts.log_links,
        parts.leadership.post,
        parts.keys,
        parts.streams,
        buffer_max=server_module.BUFFER_MAX,
    )
    rpc = RpcServer(runners)
    rpc_port = await rpc.open("127.0.0.1", 0)
    return PortEntrance(lambda line, token: line.over_grpc(rpc_port, token), rpc.close)
