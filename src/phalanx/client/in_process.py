"""Calls without a network: straight into an ASGI app of this process, with the same answers and streams.

`InProcessTransport` serves the async client in the app's own event loop. `BridgedTransport` lets the sync
client use any async exchange whose loop runs in another thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError as FutureCancelled
from typing import Any, TypeVar
from urllib.parse import unquote

from phalanx.api.server.messages import App, Message, Scope
from phalanx.client.calls import Call
from phalanx.client.http import (
    Answer,
    AsyncAnswer,
    AsyncTransport,
    WholeAnswer,
    dropped,
    read_whole,
    timed_out,
)
from phalanx.errors import Unavailable

T = TypeVar("T")
ADDRESS = "the cluster in this process"
SHUT_DOWN = "it has been shut down"


class InProcessTransport:
    """Carries calls to an app."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._open: set[Conversation] = set()

    async def send(self, call: Call[Any], token: str) -> AsyncAnswer:
        conversation = Conversation(self._app, call, token)
        self._open.add(conversation)
        conversation.ended.add_done_callback(lambda _: self._open.discard(conversation))
        try:
            async with asyncio.timeout(None if call.streams else call.timeout_s):
                await conversation.begin()
        except TimeoutError:
            raise timed_out(ADDRESS, call.timeout_s) from None
        finally:
            if not conversation.status:
                conversation.hang_up()
        return conversation

    async def close(self) -> None:
        for conversation in list(self._open):
            await conversation.aclose()


class Conversation:
    """One request and its answer. The app is held back while nobody reads, and told when nobody will."""

    def __init__(self, app: App, call: Call[Any], token: str, peer: tuple[str, int] | None = None) -> None:
        """`peer` is the address of the caller, if that is not this process."""
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self._body = call.body or b""
        self._asked = False
        self._gone = asyncio.Event()
        self._messages: asyncio.Queue[Message | None] = asyncio.Queue()  # None is the end
        self._room = asyncio.Semaphore(1)  # the app goes on when its last message has been read
        self.ended = asyncio.create_task(self._run(app, _scope(call, token) | {"client": peer}))

    async def begin(self) -> None:
        """Read until the status is known."""
        message = await self._next()
        if message is None:
            raise await self._cut()
        self.status = message["status"]
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in message["headers"]}

    async def pieces(self) -> AsyncIterator[bytes]:
        while (message := await self._next()) is not None:
            if message.get("body"):
                yield message["body"]
            if not message.get("more_body", False):
                return
        raise await self._cut()

    def hang_up(self) -> None:
        """Leave. An app that waited to be read from may go on, to nobody."""
        self._gone.set()
        self._room.release()

    async def aclose(self) -> None:
        """Leave, and return when the app has noticed."""
        self.hang_up()
        await asyncio.gather(self.ended, return_exceptions=True)

    async def _run(self, app: App, scope: Scope) -> None:
        try:
            await app(scope, self._receive, self._send)
        finally:
            self._messages.put_nowait(None)

    async def _receive(self) -> Message:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if not self._gone.is_set():
            await self._room.acquire()
            self._messages.put_nowait(message)

    async def _next(self) -> Message | None:
        message = await self._messages.get()
        self._room.release()
        return message

    async def _cut(self) -> Unavailable:
        (error,) = await asyncio.gather(self.ended, return_exceptions=True)
        return dropped(ADDRESS, repr(error) if error else "it ended in the middle of an answer")


class BridgedTransport:
    """Carries calls of any thread through an async exchange whose `loop` runs in a thread of its own."""

    def __init__(self, exchange: AsyncTransport, loop: asyncio.AbstractEventLoop) -> None:
        self._exchange = exchange
        self._loop = loop

    def send(self, call: Call[Any], token: str) -> Answer:
        return self.run(self._stream(call, token) if call.streams else self._ask(call, token))

    def close(self) -> None:
        if not self._loop.is_closed():
            self.run(self._exchange.close())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for `work` in the loop's thread; an interrupt while waiting cancels it."""
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:  # the loop is closed
            work.close()
            raise dropped(ADDRESS, SHUT_DOWN) from None
        try:
            return future.result()
        except FutureCancelled:
            raise dropped(ADDRESS, SHUT_DOWN) from None
        finally:
            future.cancel()

    async def _ask(self, call: Call[Any], token: str) -> Answer:
        answer = await self._exchange.send(call, token)
        try:
            return WholeAnswer(answer.status, answer.headers, await read_whole(answer))
        finally:
            await answer.aclose()

    async def _stream(self, call: Call[Any], token: str) -> Answer:
        return BridgedAnswer(await self._exchange.send(call, token), self)


class BridgedAnswer:
    """A stream of the other thread's loop."""

    def __init__(self, answer: AsyncAnswer, bridge: BridgedTransport) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self._answer = answer
        self._pieces = answer.pieces()
        self._bridge = bridge

    def pieces(self) -> Iterator[bytes]:
        while (piece := self._bridge.run(_next(self._pieces))) is not None:
            yield piece

    def close(self) -> None:
        self._bridge.run(self._answer.aclose())


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)


def _scope(call: Call[Any], token: str) -> dict[str, Any]:
    headers = call.headers_with(token) | {"Host": "localhost", "Content-Length": str(len(call.body or b""))}
    path, _, query = call.target.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "http",
        "method": call.method,
        "path": unquote(path),
        "raw_path": path.encode("ascii"),
        "query_string": query.encode("ascii"),
        "headers": [
            (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()
        ],
    }
