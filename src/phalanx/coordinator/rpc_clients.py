"""Clients over gRPC: each call becomes a request to the REST app of this process, so that the same rules hold for both.

Who may do what, limits, checks and the audit are the app's. A problem that it answers with becomes a gRPC status, and
the document travels with that. A call without a valid token, or of a role that may not make it, is refused before its
message is read; how many messages of one user are on their way is limited, and how long each may be.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, NamedTuple, get_args

import grpc  # type: ignore[import-untyped]
import msgspec

from phalanx.api.schema.documents import (
    BODY_BYTES_MAX,
    read_problem,
    retry_after_s,
    spell_problem,
)
from phalanx.api.schema.jobs import CancelReply
from phalanx.api.schema.sse import EventReader
from phalanx.api.schema.submission import SubmitReply
from phalanx.api.schema.workflows import RetryRequest, SubmittedWorkflow
from phalanx.api.server.auth import GRANTS, Accepts, Identity, forbidden
from phalanx.api.server.limits import ConcurrencyLimit, ServerLimits, StreamLimit
from phalanx.api.server.messages import App
from phalanx.client import calls, workflow_calls
from phalanx.client.calls import Call, Method
from phalanx.client.http import read_whole
from phalanx.client.in_process import Conversation
from phalanx.coordinator.rpc_connections import RpcConnections
from phalanx.coordinator.rpc_runners import where
from phalanx.errors import BadRequest, PhalanxError, TooLarge, TooMany, Unauthorized
from phalanx.logger import logger
from phalanx.rpc import messages
from phalanx.rpc.convert import WrongMessage
from phalanx.rpc.messages import RECEIVED_MAX, Codec
from phalanx.rpc.statuses import bearer, problem_metadata, status_of_problem

log = logger("coordinator")
BODIES_MAX = 128  # messages that are on their way at once, a quarter of them of one user
LIMITS = ServerLimits()  # a message is large where a body of REST is
ANSWER_BYTES_MAX = 4 * 1024 * 1024  # what clients of gRPC take by default
HEAD_BYTES_MAX = 64 * 1024  # what a message may have beside the body of a request
BODY_WITHIN_S = 30.0
STALL_S_MAX = 60.0  # for a client to take something of what it asked for
PIECE_BYTES = 1024 * 1024  # of an answer, in one message
HEADERS = frozenset({"accept", "last-event-id", "phalanx-read", "idempotency-key"})  # that a call may bring
_READ = "phalanx-read"
WORKFLOWS_LISTED = 100  # where the call does not say how many
_SUBMIT_WORKFLOW: Call[SubmittedWorkflow] = Call(
    method="POST", path=workflow_calls.WORKFLOWS, answer=SubmittedWorkflow, body=b"{}"
)
_SUBMIT: Call[SubmitReply] = Call(method="POST", path=calls.SUBMIT, answer=SubmitReply, body=b"{}")


class Caller(NamedTuple):
    """Who calls, and where from."""

    identity: Identity
    address: str

    @property
    def user(self) -> str:
        return self.identity.name


class ClientsService:
    """The calls of `phalanx.v1.Clients`."""

    def __init__(self, app: App, tokens: Accepts) -> None:
        self._app = app
        self._tokens = tokens
        self._coming = StreamLimit(BODIES_MAX, "messages on their way")
        self._large = ConcurrencyLimit(1, BODIES_MAX, LIMITS.large_within_s, LIMITS.large_rest)
        self._running: set[asyncio.Task[Any]] = set()
        self.connections = RpcConnections(0)  # of the port that serves this

    def handlers(self) -> Any:
        calls_by_name = {
            "Submit": self._submit,
            "Cancel": self._cancel,
            "Watch": self._watch,
            "SubmitWorkflow": self._submit_workflow,
            "ShowWorkflow": self._show_workflow,
            "ListWorkflows": self._list_workflows,
            "CancelWorkflow": self._cancel_workflow,
            "RetryWorkflow": self._retry_workflow,
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

    def _answering(self, call: Callable[[Any, Identity], Any]) -> Callable[[Any, Any], Any]:
        """What goes wrong in a call, as a gRPC status."""

        async def handler(_: Any, context: Any) -> None:
            work = asyncio.ensure_future(self._heard(call, context))
            self._running.add(work)
            work.add_done_callback(self._running.discard)
            try:
                await work
            except WrongMessage as error:
                await _fail(context, BadRequest(str(error)))
            except PhalanxError as error:
                error.__traceback__ = (
                    None  # the task has it: with its frames, messages would live until a collection
                )
                await _fail(context, error)
            except grpc.aio.BaseError:  # the caller is gone
                raise
            except Exception:  # whatever it is, the caller is told that it is not their doing
                log.exception("a call over gRPC failed", call=call.__name__)
                await _fail(context, PhalanxError("the coordinator failed at this; its log says why"))

        return handler

    async def _heard(self, call: Callable[[Any, Identity], Any], context: Any) -> None:
        """A call with a valid token, from its beginning to its end."""
        identity = self._tokens.accepts_user(bearer(context.invocation_metadata()))
        if identity is None:
            async with self._asked(context, calls.cluster()):  # which refuses, and notes that it did
                raise Unauthorized("this token is not accepted")
        peer = where(context)
        self.connections.begin(peer, identity.name)
        try:
            await call(context, identity)
        finally:
            self.connections.end(peer)

    async def _submit(self, context: Any, identity: Identity) -> None:
        read = messages.submit_request.unpack_said
        request = await self._said(context, identity, read, may_submit=True)
        call = msgspec.structs.replace(_SUBMIT, body=msgspec.json.encode(request))
        await self._answer(context, call, messages.submit_reply)

    async def _cancel(self, context: Any, identity: Identity) -> None:
        said: Any = await self._said(context, identity, messages.reader(messages.CancelRequestMessage))
        if not said.id:
            raise WrongMessage("id is missing: expected the id of a job, or of a task of an array")
        call: Call[CancelReply] = calls.cancel(said.id)
        await self._answer(context, call, messages.cancel_reply)

    async def _submit_workflow(self, context: Any, identity: Identity) -> None:
        read = messages.reader(messages.SubmitWorkflowMessage)
        said: Any = await self._said(context, identity, read, may_submit=True, bytes_max=RECEIVED_MAX)
        more = {"request_id": said.request_id} if said.HasField("request_id") else {}
        body = {
            "workflow": _one_value(said.workflow),
            "allow_infeasible": said.allow_infeasible,
            "exported": dict(said.exported),
            **more,
        }
        await self._answer(
            context,
            msgspec.structs.replace(_SUBMIT_WORKFLOW, body=msgspec.json.encode(body)),
            messages.submitted_workflow,
        )

    async def _show_workflow(self, context: Any, identity: Identity) -> None:
        said = await self._named_workflow(context, identity, messages.ShowWorkflowMessage)
        await self._answer(context, workflow_calls.workflow(said.id), messages.workflow_view)

    async def _list_workflows(self, context: Any, identity: Identity) -> None:
        said: Any = await self._said(context, identity, messages.reader(messages.ListWorkflowsMessage))
        cursor = said.cursor if said.HasField("cursor") else None
        limit = said.limit if said.HasField("limit") else WORKFLOWS_LISTED
        await self._answer(context, workflow_calls.workflows(cursor, limit), messages.workflow_page)

    async def _cancel_workflow(self, context: Any, identity: Identity) -> None:
        said = await self._named_workflow(context, identity, messages.CancelWorkflowMessage)
        await self._answer(context, workflow_calls.cancel_workflow(said.id), messages.cancel_reply)

    async def _retry_workflow(self, context: Any, identity: Identity) -> None:
        said = await self._named_workflow(context, identity, messages.RetryWorkflowMessage)
        given = {
            name: getattr(said, name) for name in ("from_stage", "deadline", "budget") if said.HasField(name)
        }
        call = workflow_calls.retry_workflow(said.id, RetryRequest(**given))
        await self._answer(context, call, messages.retry_reply)

    async def _named_workflow(self, context: Any, identity: Identity, made: Any) -> Any:
        said: Any = await self._said(context, identity, messages.reader(made))
        if not said.id:
            raise WrongMessage("id is missing: expected the id of a workflow")
        return said

    async def _watch(self, context: Any, identity: Identity) -> None:
        said: Any = await self._said(context, identity, messages.reader(messages.WatchRequestMessage))
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

    async def _call(self, context: Any, identity: Identity) -> None:
        said: Any = await self._said(context, identity, messages.reader(messages.CallRequestMessage))
        made = messages.CallReplyMessage
        async with self._talking(context, _any_call(said)) as answer:
            head = made(status=answer.status, headers=dict(answer.headers))
            await _write(context, head.SerializeToString())
            async for piece in answer.pieces():
                for at in range(0, len(piece), PIECE_BYTES):
                    await _write(context, made(body=piece[at : at + PIECE_BYTES]).SerializeToString())

    async def _answer(self, context: Any, call: Call[Any], codec: Codec) -> None:
        async with self._asked(context, call) as answer:
            value = call.read(answer.status, answer.headers, await _whole(answer))
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

    async def _said(
        self,
        context: Any,
        identity: Identity,
        read: Callable[[bytes], Any],
        *,
        may_submit: bool = False,
        bytes_max: int = BODY_BYTES_MAX + HEAD_BYTES_MAX,
    ) -> Any:
        """The one message of a call whose role may make such a call. Long ones are read one after another."""
        if identity.scope("submit") is None if may_submit else not GRANTS[identity.role]:
            async with self._asked(context, _SUBMIT if may_submit else calls.cluster()):  # which refuses
                raise forbidden(identity, "submit" if may_submit else "read")
        with self._coming.taken(Caller(identity, where(context).rpartition(":")[0])):
            data = await _received(context)
        if len(data) > bytes_max:
            raise TooLarge(f"a message of {len(data)} bytes, at most {BODY_BYTES_MAX} are allowed")
        if len(data) <= LIMITS.large_bytes:
            return read(data)
        async with self._large.passed(identity.name):
            found, wrong = _tried(read, data)
        if wrong:
            raise BadRequest(wrong)
        return found


async def _whole(answer: Conversation) -> bytes:
    """An answer that becomes one message. A longer one would hold the loop, and clients of gRPC do not take it."""
    pieces: list[bytes] = []
    async for piece in answer.pieces():
        pieces.append(piece)
        if sum(map(len, pieces)) > ANSWER_BYTES_MAX:
            raise TooLarge(
                f"the answer has more than {ANSWER_BYTES_MAX} bytes, which is the most of one message",
                hint="ask for it in pieces, by the method Call (GET /v1/workflows/ID), or for the result of each task",
            )
    return b"".join(pieces)


def _one_value(data: bytes) -> msgspec.Raw:
    """One JSON value and nothing beside it: it becomes a part of a larger one."""
    try:
        return msgspec.json.decode(data, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise WrongMessage(f"workflow: expected a WorkflowSpec as JSON: {error}") from None


def _tried(read: Callable[[bytes], Any], data: bytes) -> tuple[Any, str]:
    """What was read, and what is wrong with it. An error would keep a long message in memory, by its frames."""
    try:
        return read(data), ""
    except WrongMessage as error:
        return None, str(error)


async def _received(context: Any) -> bytes:
    try:
        async with asyncio.timeout(BODY_WITHIN_S):
            data = await context.read()
    except TimeoutError:
        raise BadRequest(f"no message within {BODY_WITHIN_S:.0f} s") from None
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
    if len(said.headers) > len(HEADERS):
        raise WrongMessage(f"headers: {len(said.headers)} of them, expected {len(HEADERS)} at most")
    headers = {name.lower(): value for name, value in said.headers.items()}
    if others := sorted(headers.keys() - HEADERS):
        raise WrongMessage(f"headers = {others[0][:80]!r}: expected none but {', '.join(sorted(HEADERS))}")
    for name, value in headers.items():
        if not value.isascii() or not value.isprintable():
            raise WrongMessage(f"headers[{name!r}] = {value[:80]!r}: expected printable ASCII")
    return Call(method=said.method, path=said.path, headers=headers, body=said.body or None)
