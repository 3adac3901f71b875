"""Clients over gRPC: each call becomes a request to the REST app of this process, so that the same rules hold for both.

Who may do what, limits, checks and the audit are the app's. A problem that it answers with becomes a gRPC status, and
the document travels with that. A call without a valid token is refused before a message is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, get_args

import grpc  # type: ignore[import-untyped]
import msgspec

from phalanx.api.schema.documents import read_problem, retry_after_s, spell_problem
from phalanx.api.schema.jobs import CancelReply
from phalanx.api.schema.sse import EventReader
from phalanx.api.schema.submission import SubmitReply
from phalanx.api.server.auth import Accepts
from phalanx.api.server.messages import App
from phalanx.client import calls
from phalanx.client.calls import Call, Method
from phalanx.client.http import read_whole
from phalanx.client.in_process import Conversation
from phalanx.coordinator.rpc_runners import where
from phalanx.errors import BadRequest, PhalanxError, TooMany, Unauthorized
from phalanx.rpc import messages
from phalanx.rpc.convert import WrongMessage
from phalanx.rpc.messages import Codec
from phalanx.rpc.statuses import bearer, problem_metadata, status_of_problem

BODIES_MAX = 64  # messages that are on their way at once; each may be as long as a frame
BODY_WITHIN_S = 30.0
STALL_S_MAX = 60.0  # for a client to take something of what it asked for
PIECE_BYTES = 1024 * 1024  # of an answer, in one message
HEADERS = frozenset({"accept", "last-event-id", "phalanx-read", "idempotency-key"})  # that a call may bring
_READ = "phalanx-read"


class ClientsService:
    """The calls of `phalanx.v1.Clients`."""

    def __init__(self, app: App, tokens: Accepts) -> None:
        self._app = app
        self._tokens = tokens
        self._coming = 0  # messages that are on their way
        self._running: set[asyncio.Task[Any]] = set()

    def handlers(self) -> Any:
        calls_by_name = {
            "Submit": self._submit,
            "Cancel": self._cancel,
            "Watch": self._watch,
            "Call": self._call,
        }
        rows = {
            name: grpc.stream_stream_rpc_method_handler(self._answering(call))
            for name, call in calls_by_name.items()
        }
        return grpc.method_handlers_generic_handler(messages.CLIENTS, rows)

    async def settled(self) -> None:
        """Return when the calls that were cut off have noticed."""
        await asyncio.gather(*self._running, return_exceptions=True)

    def _answering(self, call: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
        """What goes wrong in a call, as a gRPC status."""

        async def handler(_: Any, context: Any) -> None:
            work = asyncio.ensure_future(call(context))
            self._running.add(work)
            work.add_done_callback(self._running.discard)
            try:
                await work
            except WrongMessage as error:
                await _fail(context, BadRequest(str(error)))
            except PhalanxError as error:
                await _fail(context, error)

        return handler

    async def _submit(self, context: Any) -> None:
        request = messages.submit_request.unpack(await self._said(context))
        call: Call[SubmitReply] = Call(
            method="POST", path=calls.SUBMIT, answer=SubmitReply, body=msgspec.json.encode(request)
        )
        await self._answer(context, call, messages.submit_reply)

    async def _cancel(self, context: Any) -> None:
        said: Any = messages.parse(messages.CancelRequestMessage, await self._said(context))
        if not said.id:
            raise WrongMessage("id is missing: expected the id of a job, or of a task of an array")
        call: Call[CancelReply] = calls.cancel(said.id)
        await self._answer(context, call, messages.cancel_reply)

    async def _watch(self, context: Any) -> None:
        said: Any = messages.parse(messages.WatchRequestMessage, await self._said(context))
        after = said.after if said.HasField("after") else None
        reader = EventReader(after)
        async with self._asked(context, calls.watch(after, said.job or None)) as answer:
            await _write(context, _standing(reader))
            async for piece in answer.pieces():
                found = list(reader.take(piece))
                for event in found:
                    reply = messages.WatchReplyMessage(revision=event.revision)
                    reply.event.SetInParent()
                    messages.watch_event.fill(reply.event, event)
                    await _write(context, reply.SerializeToString())
                if not found:
                    await _write(context, _standing(reader))

    async def _call(self, context: Any) -> None:
        said: Any = messages.parse(messages.CallRequestMessage, await self._said(context))
        made = messages.CallReplyMessage
        async with self._talking(context, _any_call(said)) as answer:
            head = made(status=answer.status, headers=dict(answer.headers))
            await _write(context, head.SerializeToString())
            async for piece in answer.pieces():
                for at in range(0, len(piece), PIECE_BYTES):
                    await _write(context, made(body=piece[at : at + PIECE_BYTES]).SerializeToString())

    async def _answer(self, context: Any, call: Call[Any], codec: Codec) -> None:
        async with self._asked(context, call) as answer:
            value = call.read(answer.status, answer.headers, await read_whole(answer))
        await _write(context, codec.pack(value))

    @asynccontextmanager
    async def _asked(self, context: Any, call: Call[Any]) -> AsyncIterator[Conversation]:
        """The answer of the app; a problem is raised."""
        async with self._talking(context, call) as answer:
            if answer.status >= 400:
                body = await read_whole(answer)
                raise read_problem(answer.status, body, answer.headers.get("retry-after"))
            yield answer

    @asynccontextmanager
    async def _talking(self, context: Any, call: Call[Any]) -> AsyncIterator[Conversation]:
        host, _, port = where(context).rpartition(":")
        metadata = {name: value for name, value in context.invocation_metadata() if name == _READ}
        peer = (host, int(port)) if port else None
        asked = msgspec.structs.replace(call, headers=metadata | call.headers)
        async with aclosing(
            Conversation(self._app, asked, bearer(context.invocation_metadata()), peer)
        ) as answer:
            await answer.begin()
            yield answer

    async def _said(self, context: Any) -> bytes:
        """The one message of a call with a valid token."""
        if self._tokens.accepts_user(bearer(context.invocation_metadata())) is None:
            async with self._asked(context, calls.cluster()):  # which refuses, and notes that it did
                raise Unauthorized("this token is not accepted")
        if self._coming >= BODIES_MAX:
            raise TooMany(f"{BODIES_MAX} messages are on their way already", retry_after_s=1)
        self._coming += 1
        try:
            async with asyncio.timeout(BODY_WITHIN_S):
                data = await context.read()
        except TimeoutError:
            raise BadRequest(f"no message within {BODY_WITHIN_S:.0f} s") from None
        finally:
            self._coming -= 1
        if data is grpc.aio.EOF:
            raise BadRequest("the call came without a message: expected one")
        return bytes(data)


async def _write(context: Any, data: bytes) -> None:
    """Hand over a message; one who does not read it is let go."""
    try:
        async with asyncio.timeout(STALL_S_MAX):
            await context.write(data)
    except TimeoutError:
        raise TooMany(f"nothing was read for {STALL_S_MAX:g} s", reason="NotRead", retry_after_s=1) from None


async def _fail(context: Any, error: PhalanxError) -> None:
    body, again_s = spell_problem(error), retry_after_s(error)
    more = () if again_s is None else (("retry-after", str(again_s)),)
    with suppress(grpc.aio.InternalError):  # it has not read what came before, and never will
        await context.abort(*status_of_problem(error.status, body), (*problem_metadata(body), *more))


def _standing(reader: EventReader) -> bytes:
    """Where a watch stands, and a sign of life."""
    made = messages.WatchReplyMessage()
    if reader.last is not None:
        made.revision = reader.last
    return bytes(made.SerializeToString())


def _any_call(said: Any) -> Call[Any]:
    """A request of REST as it was asked for, which is read as a stream."""
    if said.method not in get_args(Method):
        raise WrongMessage(f"method = {said.method[:20]!r}: expected one of {', '.join(get_args(Method))}")
    if not said.path.startswith("/") or not said.path.isascii():
        raise WrongMessage(f"path = {said.path[:80]!r}: expected one that begins with /, its words quoted")
    headers = {name.lower(): value for name, value in said.headers.items()}
    if others := sorted(headers.keys() - HEADERS):
        raise WrongMessage(f"headers = {others[0][:80]!r}: expected none but {', '.join(sorted(HEADERS))}")
    return Call(method=said.method, path=said.path, headers=headers, body=said.body or None)
