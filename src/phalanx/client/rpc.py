"""Calls over gRPC, for addresses that begin with grpc:// or grpcs://. It is imported only if there is one.

Submit, cancel, watch and workflows have calls of their own, everything else travels by its REST path. Which of several
addresses a call goes to is decided in `leader.py`, as for HTTP; the answers are those of HTTP, too.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import grpc  # type: ignore[import-untyped]
import msgspec
from grpc import ChannelConnectivity, StatusCode

from phalanx.api.schema.documents import read_document, read_problem
from phalanx.api.schema.sse import KEEP_ALIVE, spell_event, spell_position
from phalanx.api.schema.submission import SubmitRequest
from phalanx.client.async_http import AsyncWholeAnswer
from phalanx.client.calls import SUBMIT, Call
from phalanx.client.http import AsyncAnswer, dropped, timed_out
from phalanx.client.in_process import BridgedTransport
from phalanx.client.leader import PATIENCE_S, KnownLeader, LeaderSearch, safe_addresses
from phalanx.client.workflow_calls import WORKFLOWS
from phalanx.clock import SystemClock
from phalanx.errors import PhalanxError, Unavailable
from phalanx.rpc import messages
from phalanx.rpc.statuses import read_status
from phalanx.tls import NO_TLS, TlsFiles, read_pem

WATCH = "/v1/events"
SETTLE_WITHIN_S = 1.0  # for gRPC to be done with a call that was cancelled
_STATUS_TASK = "_AioCall._handle_status_once_received"  # what grpc.aio waits with for the end of each call
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),  # the coordinator says what is too long
    ("grpc.enable_retries", 0),  # whether to try again is decided here
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),  # no proxy of the environment gets to see a token
)


class GrpcTransport:
    """Carries calls to the coordinator that leads, at one of `addresses`, such as grpc://127.0.0.1:7435."""

    def __init__(
        self,
        addresses: str | Sequence[str],
        tls_files: TlsFiles = NO_TLS,
        *,
        vouched: bool = False,
        patience_s: float = PATIENCE_S,
        on_stale: Callable[[str], None] | None = None,
    ) -> None:
        self._known_leader = KnownLeader(safe_addresses(addresses), vouched=vouched)
        self._tls_files = tls_files
        self._patience_s = patience_s
        self._on_stale = on_stale
        self._clock = SystemClock()
        self._channels: dict[str, Any] = {}
        self._hanging_up = asyncio.Lock()

    async def send(self, call: Call[Any], token: str) -> AsyncAnswer:
        """Carry a call; one whose repetition does no harm is carried again if its connection was cut."""
        search = LeaderSearch(self._known_leader, call, self._patience_s)
        while True:
            try:
                return await self._try(search, call, token)
            except PhalanxError as error:
                if (leader := self._grpc_of(str(error.extra.pop("leader", "")))) is not None:
                    error.extra["leader"] = leader
                pause_s = search.failed(error, self._clock.monotonic())
            await asyncio.sleep(pause_s)

    def _grpc_of(self, leader: str) -> str | None:
        """A standby says where REST of the leader is: of the given addresses, the only one at the same host."""
        found = [each for each in self._known_leader.given if _host(each) == _host(leader)]
        return found[0] if len(found) == 1 else None

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()

    async def _try(self, search: LeaderSearch, call: Call[Any], token: str) -> AsyncAnswer:
        answer = await self._ask(search, call, token)
        if answer.status < 400:
            search.found()
            if self._on_stale is not None and (behind := answer.headers.get("phalanx-behind")):
                self._on_stale(behind)
            return answer
        try:
            body = b"".join([piece async for piece in answer.pieces()])
        finally:
            await answer.aclose()
        problem = read_problem(answer.status, body, answer.headers.get("retry-after"))
        if search.doubts(problem):
            raise problem
        search.found()
        return AsyncWholeAnswer(answer.status, answer.headers, body)

    async def _ask(self, search: LeaderSearch, call: Call[Any], token: str) -> AsyncAnswer:
        channel = await self._connected(search)
        asked = AskedCall(channel, search, token, self._known_leader, self._hanging_up)
        if call.method == "POST" and call.path == SUBMIT:
            return await asked.submit(call)
        if call.path.startswith(WORKFLOWS):
            return await asked.about_workflows(call)
        if call.method == "POST" and call.path.endswith("/cancel"):
            return await asked.cancel(call)
        if call.path == WATCH:
            return await asked.watch(call)
        return await asked.any(call)

    async def _connected(self, search: LeaderSearch) -> Any:
        """The channel to an address. One that does not come about was surely not used."""
        channel = self._channels.get(search.address)
        if channel is None:
            channel = self._channels[search.address] = self._opened(search.address)
        try:
            async with asyncio.timeout(search.connect_s):
                while (state := channel.get_state(try_to_connect=True)) is not ChannelConnectivity.READY:
                    if state is ChannelConnectivity.TRANSIENT_FAILURE:
                        raise _unreachable(search.address, "no connection came about")
                    await channel.wait_for_state_change(state)
        except TimeoutError:
            raise _unreachable(search.address, f"no connection within {search.connect_s:g} s") from None
        return channel

    def _opened(self, address: str) -> Any:
        scheme, _, place = address.partition("://")
        if scheme == "grpc":
            return grpc.aio.insecure_channel(place, options=_OPTIONS)
        pem = read_pem(self._tls_files)
        credentials = grpc.ssl_channel_credentials(pem.ca, pem.key, pem.cert)
        return grpc.aio.secure_channel(place, credentials, options=_OPTIONS)


class AskedCall:
    """One call on one channel."""

    def __init__(
        self,
        channel: Any,
        search: LeaderSearch,
        token: str,
        known_leader: KnownLeader,
        hanging_up: asyncio.Lock,
    ) -> None:
        self._channel = channel
        self._hanging_up = hanging_up
        self._search = search
        self._address = search.address
        self._known_leader = known_leader
        self._metadata = (
            ("authorization", f"Bearer {token}"),
            *((name.lower(), value) for name, value in search.headers.items()),
        )

    async def submit(self, call: Call[Any]) -> AsyncAnswer:
        request: SubmitRequest = read_document(call.body or b"", SubmitRequest)  # as the coordinator would
        return await self._unary("Submit", messages.submit_request.pack(request), messages.submit_reply)

    async def cancel(self, call: Call[Any]) -> AsyncAnswer:
        id = unquote(call.path.split("/")[3])
        said = messages.CancelRequestMessage(id=id).SerializeToString()
        return await self._unary("Cancel", said, messages.cancel_reply)

    async def about_workflows(self, call: Call[Any]) -> AsyncAnswer:
        """The calls about workflows; waiting for one, and its story, travel by their paths."""
        id, _, verb = call.path.removeprefix(WORKFLOWS).lstrip("/").partition("/")
        id, body = unquote(id), {} if call.body is None else msgspec.json.decode(call.body)
        match (call.method, bool(id), verb):
            case ("POST", False, ""):
                said = messages.SubmitWorkflowMessage(
                    workflow=msgspec.json.encode(body.pop("workflow", None)), **body
                )
                return await self._unary(
                    "SubmitWorkflow", said.SerializeToString(), messages.submitted_workflow
                )
            case ("GET", False, ""):
                said = messages.ListWorkflowsMessage(**call.query | {"limit": int(call.query["limit"])})
                return await self._unary("ListWorkflows", said.SerializeToString(), messages.workflow_page)
            case ("GET", True, ""):
                said = messages.ShowWorkflowMessage(id=id)
                return await self._unary("ShowWorkflow", said.SerializeToString(), messages.workflow_view)
            case ("POST", True, "cancel"):
                said = messages.CancelWorkflowMessage(id=id)
                return await self._unary("CancelWorkflow", said.SerializeToString(), messages.cancel_reply)
            case ("POST", True, "retry"):
                until = {"deadline": str(body["deadline"])} if "deadline" in body else {}
                said = messages.RetryWorkflowMessage(id=id, **{**body, **until})
                return await self._unary("RetryWorkflow", said.SerializeToString(), messages.retry_reply)
        return await self.any(call)

    async def watch(self, call: Call[Any]) -> AsyncAnswer:
        said = messages.WatchRequestMessage(job=call.query.get("job"))
        if (after := call.headers.get("Last-Event-ID")) is not None:
            said.after = int(after)
        return await self._stream("Watch", said.SerializeToString(), lambda data: (200, {}, _as_sse(data)))

    async def any(self, call: Call[Any]) -> AsyncAnswer:
        headers = {name.lower(): value for name, value in (call.headers | self._search.headers).items()}
        said = messages.CallRequestMessage(
            method=call.method, path=call.target, headers=headers, body=call.body or b""
        )
        answer = await self._stream("Call", said.SerializeToString(), _as_http)
        if call.streams:
            return answer
        try:
            async with asyncio.timeout(self._search.answer_s):
                whole = b"".join([piece async for piece in answer.pieces()])
        except TimeoutError:
            raise timed_out(self._address, self._search.answer_s) from None
        finally:
            await answer.aclose()
        return AsyncWholeAnswer(answer.status, answer.headers, whole)

    async def _unary(self, name: str, said: bytes, codec: messages.Codec) -> AsyncAnswer:
        method = self._channel.unary_unary(f"/{messages.CLIENTS}/{name}")
        try:
            with self._told(self._search.answer_s):
                data = await method(said, timeout=self._search.answer_s, metadata=self._metadata)
        except _Refused as refused:
            return AsyncWholeAnswer(refused.status, refused.headers, refused.body)
        return AsyncWholeAnswer(200, {}, msgspec.json.encode(codec.unpack(data)))

    async def _stream(
        self, name: str, said: bytes, read: Callable[[bytes], tuple[int, Mapping[str, str], bytes]]
    ) -> AsyncAnswer:
        """Begin a stream: its first message says how it is answered."""
        stream = self._channel.unary_stream(f"/{messages.CLIENTS}/{name}")(said, metadata=self._metadata)
        try:
            with self._told(self._search.answer_s):
                async with asyncio.timeout(self._search.answer_s):
                    first = await stream.read()
        except _Refused as refused:
            return AsyncWholeAnswer(refused.status, refused.headers, refused.body)
        except BaseException:
            await self.hang_up(stream)
            raise
        if first is grpc.aio.EOF:
            raise dropped(self._address, "it ended before its answer")
        status, headers, piece = read(first)
        return GrpcAnswer(status, headers, piece, stream, lambda data: read(data)[2], self)

    @contextmanager
    def _told(self, within_s: float | None) -> Iterator[None]:
        """Errors of gRPC, in our words; a refusal of the coordinator is raised as such."""
        try:
            yield
        except TimeoutError:
            raise timed_out(self._address, within_s) from None
        except grpc.aio.AioRpcError as error:
            raise self.translated(error, within_s) from None

    def translated(self, error: Any, within_s: float | None) -> Exception:
        trailing = tuple(error.trailing_metadata() or ())
        if error.code() == StatusCode.DEADLINE_EXCEEDED:
            return timed_out(self._address, within_s)
        if (found := read_status(error.code(), trailing)) is not None:
            headers = {str(name): str(value) for name, value in trailing if name == "retry-after"}
            return _Refused(*found, headers)
        self._known_leader.lost(self._address)  # resuming it tries another address first
        return dropped(self._address, error.details())

    async def rest(self, stream: Any, read: Callable[[bytes], bytes]) -> AsyncIterator[bytes]:
        """The messages after the first, each within the time that silence may last."""
        while True:
            silence_s = self._search.silence_s
            try:
                with self._told(silence_s):
                    async with asyncio.timeout(silence_s):
                        data = await stream.read()
            except _Refused as refused:
                raise read_problem(refused.status, refused.body, refused.headers.get("retry-after")) from None
            if data is grpc.aio.EOF:
                return
            yield read(data)

    async def hang_up(self, stream: Any) -> None:
        """Cancel a stream, and return when gRPC is done with it.

        What gRPC has to say of its end must find this loop open, or another loop of the process fails over it. Which of
        its tasks waits for this stream it does not tell; the one that ends when the stream was cancelled is the one.
        """
        async with self._hanging_up:
            waiting = {task for task in asyncio.all_tasks() if _qualname(task) == _STATUS_TASK}
            if stream.cancel() and waiting:
                await asyncio.wait(waiting, timeout=SETTLE_WITHIN_S, return_when=asyncio.FIRST_COMPLETED)


class GrpcAnswer:
    """An answer that still flows."""

    def __init__(
        self,
        status: int,
        headers: Mapping[str, str],
        first: bytes,
        stream: Any,
        read: Callable[[bytes], bytes],
        asked: AskedCall,
    ) -> None:
        self.status = status
        self.headers = headers
        self._first = first
        self._stream = stream
        self._read = read
        self._asked = asked

    async def pieces(self) -> AsyncIterator[bytes]:
        if self._first:
            yield self._first
        async for piece in self._asked.rest(self._stream, self._read):
            yield piece

    async def aclose(self) -> None:
        await self._asked.hang_up(self._stream)


class ThreadedGrpcTransport(BridgedTransport):
    """The same for the client that waits: the calls run on a loop in a thread of its own."""

    def __init__(
        self,
        addresses: str | Sequence[str],
        tls_files: TlsFiles = NO_TLS,
        *,
        vouched: bool = False,
        patience_s: float = PATIENCE_S,
        on_stale: Callable[[str], None] | None = None,
    ) -> None:
        exchange = GrpcTransport(
            addresses, tls_files, vouched=vouched, patience_s=patience_s, on_stale=on_stale
        )
        self._own_loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._own_loop.run_forever, name="phalanx-grpc", daemon=True)
        self._thread.start()
        super().__init__(exchange, self._own_loop)

    def close(self) -> None:
        if self._own_loop.is_closed():
            return
        super().close()
        self.run(_settled())
        self._own_loop.call_soon_threadsafe(self._own_loop.stop)
        self._thread.join()
        self._own_loop.close()


class _Refused(Exception):
    """The coordinator answered with a problem."""

    def __init__(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.headers = headers


def _qualname(task: asyncio.Task[Any]) -> str:
    return str(getattr(task.get_coro(), "__qualname__", ""))


async def _settled() -> None:
    """Return when nothing else runs in this loop: also not the ends of calls that were interrupted."""
    if others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others, timeout=SETTLE_WITHIN_S)


def _host(address: str) -> str:
    return address.partition("://")[2].rpartition(":")[0]


def _unreachable(address: str, why: str) -> Unavailable:
    return Unavailable(
        f"cannot reach {address}: {why}",
        reason="Unreachable",
        hint="is a coordinator running there with --grpc-port? one that has a certificate is reached by grpcs://",
    )


def _as_http(data: bytes) -> tuple[int, Mapping[str, str], bytes]:
    said: Any = messages.parse(messages.CallReplyMessage, data)
    return said.status, {name.lower(): value for name, value in said.headers.items()}, said.body


def _as_sse(data: bytes) -> bytes:
    said: Any = messages.parse(messages.WatchReplyMessage, data)
    if said.HasField("event"):
        return spell_event(messages.watch_event.read(said.event))
    return spell_position(said.revision) if said.HasField("revision") else KEEP_ALIVE
