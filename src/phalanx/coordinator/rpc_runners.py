"""Runners over gRPC: the streams that carry what frames carry. What is said is judged in `link` and `logs`.

A call is made with a token of runners in its metadata, and any other is refused before a message is read. Who has not
said hello yet is not in the way of the next: of too many, the oldest one of the address with the most goes. What waits
to be taken by a runner is counted, and one that takes nothing is let go before that is too much.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote

import grpc  # type: ignore[import-untyped]
from grpc import StatusCode
from msgspec import structs

from phalanx.api.server.auth import Identity
from phalanx.api.server.limits import Unauthenticated
from phalanx.coordinator.link import Envelope, Links, RunnerChannel, RunnerSession
from phalanx.coordinator.link_auth import NOT_OF_RUNNERS, STRANGER, LinkAccess, LinkAuthenticator
from phalanx.coordinator.logs import LogLinks
from phalanx.coordinator.rpc_connections import RpcConnections
from phalanx.coordinator.server import (
    BUFFER_MAX,
    CONNECTIONS_MAX,
    HELLO_WITHIN_S,
    LINGER_S,
    STRANGERS_FRAME_MAX,
    STRANGERS_MAX,
)
from phalanx.link import wire
from phalanx.link.overlay import OverlayMap
from phalanx.rpc import messages
from phalanx.rpc.convert import WrongMessage
from phalanx.rpc.messages import LinkCodec
from phalanx.rpc.statuses import bearer, status_of_refusal
from phalanx.tls import NODE_URI


class RunnerKeys(LinkAuthenticator, Protocol):
    """Who knows the tokens of nodes, and whether a token is one of this cluster's at all, whomever it is for."""

    def accepts_user(self, token: str) -> Identity | None: ...


class RunnerStream:
    """The way back to a runner, for control or for logs."""

    def __init__(self, codec: LinkCodec, buffer_max: int) -> None:
        self._codec = codec
        self._buffer_max = buffer_max
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._news = asyncio.Event()
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.status: tuple[StatusCode, str] = StatusCode.OK, ""  # with which the call ends

    def send(self, said: list[wire.Message]) -> None:
        for message in () if self.closed.done() else said:
            told = message
            if isinstance(message, OverlayMap):  # runners over gRPC take no part in it
                continue
            if isinstance(message, wire.Rejected):  # where the leader takes frames is of no use here
                told = structs.replace(message, leader="")
                self.status = status_of_refusal(message.code), f"{message.code}: {message.message}"
            packed = wire.in_parts(told, self._codec.pack)
            self._waiting.extend(packed)
            self._bytes += sum(map(len, packed))
        if self._bytes > self._buffer_max:  # a runner that no longer reads
            self._waiting.clear()
            self.end(StatusCode.RESOURCE_EXHAUSTED, f"more than {self._buffer_max} bytes wait to be read")
        self._news.set()

    def close(self) -> None:
        """End the call when what was said before has been taken."""
        if not self.closed.done():
            self.closed.set_result(None)
        self._news.set()

    def end(self, code: StatusCode, why: str) -> None:
        self.status = code, why
        self.close()

    def refuse(self, code: str, why: str, *, retry: bool = True) -> None:
        self.send([wire.Rejected(code, why, retry)])
        self.close()

    async def write_to(self, context: Any) -> None:
        """Hand over what is said, as fast as the runner takes it, until the stream is closed."""
        while self._waiting or not self.closed.done():
            if not self._waiting:
                self._news.clear()
                await self._news.wait()
                continue
            packed = self._waiting.popleft()
            await context.write(packed)
            self._bytes -= len(packed)


class RunnerCall(NamedTuple):
    """One call of a runner: where it comes from, how it is answered, and what becomes of what it says."""

    context: Any
    stream: RunnerStream
    hear: Callable[[bytes], None]
    is_welcome: Callable[[], bool]

    @property
    def token(self) -> str:
        return bearer(self.context.invocation_metadata())


class RunnersService:
    """The calls of `phalanx.v1.Runners`. `streams` are those that are open."""

    def __init__(
        self,
        links: Links,
        log_links: LogLinks,
        post: Callable[[Envelope], bool],
        keys: RunnerKeys,
        streams: set[RunnerChannel],
        streams_max: int = CONNECTIONS_MAX,
        buffer_max: int = BUFFER_MAX,
    ) -> None:
        self._links = links
        self._log_links = log_links
        self._post = post
        self._keys = keys
        self._streams_max = streams_max
        self._buffer_max = buffer_max
        self._before_hello: Unauthenticated[RunnerStream] = Unauthenticated(STRANGERS_MAX)
        self.streams = streams
        self.connections = RpcConnections(0)  # of the port that serves this

    def handlers(self) -> Any:
        calls = {"Connect": self._connect, "Logs": self._logs}
        rows = {name: grpc.stream_stream_rpc_method_handler(call) for name, call in calls.items()}
        return grpc.method_handlers_generic_handler(messages.RUNNERS, rows)

    def close(self) -> None:
        for stream in list(self.streams):
            stream.close()

    async def _connect(self, _: Any, context: Any) -> None:
        stream = RunnerStream(messages.to_runner, self._buffer_max)
        session = RunnerSession(stream)
        session.where, session.peer_name = where(context), peer_node_of(context)

        def hear(data: bytes) -> None:
            most = self._links.held_max(session.node) if len(data) > messages.SHORT else wire.HELD_MAX
            message = messages.from_runner.hear(data, call.token, most)
            if not session.node and not isinstance(message, wire.HelloMessage):
                raise WrongMessage("the first message must be a hello")
            envelope = self._links.receive(session, message)
            if envelope is not None and not self._post(envelope):
                stream.close()  # nobody will read it: the runner dials again, and tells again

        call = RunnerCall(context, stream, hear, lambda: bool(session.node))

        def closed() -> None:
            if (envelope := self._links.closed(session)) is not None:
                self._post(envelope)

        await self._serve(call, closed)

    async def _logs(self, _: Any, context: Any) -> None:
        stream, peer = RunnerStream(messages.to_logs, self._buffer_max), peer_node_of(context)
        is_open = False

        def hear(data: bytes) -> None:
            nonlocal is_open
            message = messages.from_logs.hear(data, call.token)
            if isinstance(message, wire.LogHello):
                is_open = self._log_links.opened(stream, message, peer)
            elif is_open and isinstance(message, wire.LogData):
                self._log_links.arrived(stream, message)
            else:
                raise WrongMessage("the first message must be a log_hello")

        call = RunnerCall(context, stream, hear, lambda: is_open)
        await self._serve(call, lambda: self._log_links.closed(stream))

    async def _serve(self, call: RunnerCall, closed: Callable[[], None]) -> None:
        """A call from its beginning to its end. A runner that reads nothing counts until it is gone."""
        self.streams.add(call.stream)
        try:
            try:
                await self._carry(call)
            finally:
                closed()
            if call.stream.status[0] is not StatusCode.OK:
                with suppress(grpc.aio.InternalError):  # it has not read what came before, and never will
                    await call.context.abort(*call.stream.status)
        finally:
            self.streams.discard(call.stream)

    async def _carry(self, call: RunnerCall) -> None:
        """Read and write until one side has enough."""
        stream = call.stream
        writing = asyncio.ensure_future(stream.write_to(call.context))
        reading = asyncio.ensure_future(self._read(call))
        try:
            await asyncio.wait({reading, stream.closed}, return_when=asyncio.FIRST_COMPLETED)
            stream.close()
            await asyncio.wait({writing}, timeout=LINGER_S)  # its last words
        finally:
            for task in (reading, writing):
                task.cancel()
            await asyncio.gather(reading, writing, return_exceptions=True)

    async def _read(self, call: RunnerCall) -> None:
        if not self._is_admitted(call):
            return
        peer = where(call.context)
        self.connections.begin(peer, "runners")
        try:
            await self._listen(call)
        finally:
            self.connections.end(peer)

    async def _listen(self, call: RunnerCall) -> None:
        address = where(call.context).rpartition(":")[0]
        if (oldest := self._before_hello.add(address, call.stream)) is not None:
            oldest.refuse(
                "TooMany", f"{STRANGERS_MAX} streams are open without a hello, and this is the oldest"
            )
        try:
            async with asyncio.timeout(HELLO_WITHIN_S):
                data = await call.context.read()
        except TimeoutError:
            call.stream.refuse("NotUnderstood", f"no hello within {HELLO_WITHIN_S:.0f} s")
            return
        finally:
            self._before_hello.remove(call.stream)
        while data is not grpc.aio.EOF and not call.stream.closed.done():
            self._hear(call, data)
            data = await call.context.read()

    def _is_admitted(self, call: RunnerCall) -> bool:
        """Whether it is worth reading what it says. A stranger is refused before that."""
        stream = call.stream
        if self._links.not_active is not None:  # whatever it wants, the active coordinator is elsewhere
            stream.send([self._links.not_active])
            stream.close()
        elif (refusal := self._refusal(call.token)) is not None:
            self._keys.refused("", LinkAccess(refusal), where(call.context))
            stream.refuse("Unauthorized", refusal, retry=False)
        elif len(self.streams) > self._streams_max:
            stream.refuse("TooMany", f"all {self._streams_max} streams that there may be are open")
        return not stream.closed.done()

    def _refusal(self, token: str) -> str | None:
        """Why this token opens no stream of a runner, whichever node it names; None if it may."""
        identity = self._keys.accepts_user(token)
        if identity is None:
            return STRANGER
        return None if identity.role in ("node", "join") else NOT_OF_RUNNERS

    def _hear(self, call: RunnerCall, data: bytes) -> None:
        is_known, stream = call.is_welcome(), call.stream
        try:
            if not is_known and len(data) > STRANGERS_FRAME_MAX:
                stream.refuse(
                    "TooLarge", f"a hello of {len(data)} bytes, at most {STRANGERS_FRAME_MAX} are allowed"
                )
                return
            call.hear(data)
        except (WrongMessage, wire.WireError) as error:
            if is_known:
                stream.end(StatusCode.INVALID_ARGUMENT, str(error))
            else:
                stream.refuse("NotUnderstood", str(error))


def where(context: Any) -> str:
    """Where a call comes from, as host:port."""
    kind, _, address = str(context.peer()).partition(":")
    return unquote(address) if kind in ("ipv4", "ipv6") else ""


def peer_node_of(context: Any) -> str | None:
    """The node whose certificate the other side has shown: "" if it is not one of a node, None without any."""
    shown = context.auth_context()
    if not shown.get("x509_pem_cert"):
        return None
    names = [name.decode() for name in shown.get("x509_subject_alternative_name", ())]
    nodes = [name.removeprefix(NODE_URI) for name in names if name.startswith(NODE_URI)]
    return nodes[0] if len(nodes) == 1 else ""
