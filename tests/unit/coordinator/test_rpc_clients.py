"""What clients ask over gRPC is answered by the REST app, by its rules; what it refuses has a status and a document."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
from grpc import StatusCode

from phalanx import errors
from phalanx.api.schema.submission import SubmitRequest
from phalanx.coordinator import rpc_clients
from phalanx.coordinator.rpc import RpcServer
from phalanx.coordinator.rpc_clients import ClientsService
from phalanx.link import wire
from phalanx.rpc import messages
from phalanx.rpc.statuses import PROBLEM
from tests.support.rest_app import TOKEN, RestApp, a_rest_app
from tests.support.waiting import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Caller:
    """A client with a channel and a token."""

    def __init__(self, channel: Any, token: str | None = TOKEN) -> None:
        self._channel = channel
        self.metadata = () if token is None else (("authorization", f"Bearer {token}"),)

    def stream(self, name: str, said: bytes) -> Any:
        return self._channel.unary_stream(f"/{messages.CLIENTS}/{name}")(said, metadata=self.metadata)

    async def ask(self, name: str, said: bytes) -> bytes:
        method = self._channel.unary_unary(f"/{messages.CLIENTS}/{name}")
        return bytes(await method(said, metadata=self.metadata))

    async def refused(self, name: str, said: bytes) -> tuple[StatusCode, str, dict[str, Any]]:
        """The status, the sentence, and the document."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.ask(name, said)
        error = caught.value
        documents = [value for name, value in error.trailing_metadata() if name == PROBLEM]
        return error.code(), error.details(), json.loads(documents[0]) if documents else {}


@asynccontextmanager
async def a_caller(house: RestApp, token: str | None = TOKEN) -> AsyncIterator[Caller]:
    server = RpcServer(clients=ClientsService(house.app, house.tokens))
    port = await server.open("127.0.0.1", 0)
    try:
        async with grpc.aio.insecure_channel(
            f"127.0.0.1:{port}", options=[("grpc.max_send_message_length", -1)]
        ) as channel:
            yield Caller(channel, token)
    finally:
        await server.close()


def submission(**fields: Any) -> bytes:
    return messages.submit_request.pack(SubmitRequest(command=["true"], **fields))


async def test_a_job_is_submitted_watched_and_cancelled():
    house = a_rest_app()
    async with a_caller(house) as caller:
        watch = caller.stream("Watch", messages.WatchRequestMessage(after=0).SerializeToString())
        assert not messages.WatchReplyMessage.FromString(await watch.read()).HasField("event")  # it began
        reply = messages.submit_reply.unpack(await caller.ask("Submit", submission(name="first")))
        said = messages.CancelRequestMessage(id=reply.batch_id).SerializeToString()
        assert messages.cancel_reply.unpack(await caller.ask("Cancel", said)).cancelled == 1
        seen: list[Any] = []
        while len(seen) < 2:
            told = messages.WatchReplyMessage.FromString(await watch.read())
            seen += [told] if told.HasField("event") else []
        assert [(each.revision, each.event.event) for each in seen] == [(1, "JobSubmitted"), (2, "JobEnded")]
        assert house.cluster.held[reply.batch_id].name == "first"
        watch.cancel()
        await until(lambda: house.cluster.open_streams == 0)


async def test_a_submission_that_is_repeated_is_done_once():
    async with a_caller(a_rest_app()) as caller:
        first, second = [
            messages.submit_reply.unpack(await caller.ask("Submit", submission(request_id="once")))
            for _ in range(2)
        ]
        assert first.task_ids == second.task_ids and second.replayed


@pytest.mark.parametrize("token", [None, "phx_wrong"])
@pytest.mark.parametrize("name", ["Submit", "Cancel", "Watch", "Call"])
async def test_a_stranger_is_refused_before_a_word_is_read(token: str | None, name: str):
    house = a_rest_app()
    async with a_caller(house, token) as caller:
        code, _, problem = await caller.refused(name, b"x" * (wire.FRAME_MAX - 100))
        assert code == StatusCode.UNAUTHENTICATED and problem["reason"] == "Unauthorized"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.BadRequest("x"), StatusCode.INVALID_ARGUMENT),
        (errors.Forbidden("x"), StatusCode.PERMISSION_DENIED),
        (errors.NotFound("x"), StatusCode.NOT_FOUND),
        (errors.Conflict("x"), StatusCode.FAILED_PRECONDITION),
        (errors.Busy("x"), StatusCode.RESOURCE_EXHAUSTED),
        (errors.Gone("x"), StatusCode.OUT_OF_RANGE),
        (errors.TooLarge("x"), StatusCode.RESOURCE_EXHAUSTED),
        (errors.Unprocessable("x"), StatusCode.INVALID_ARGUMENT),
        (errors.NeverFits("x"), StatusCode.FAILED_PRECONDITION),
        (errors.TooMany("x"), StatusCode.RESOURCE_EXHAUSTED),
        (errors.NoRoom("x"), StatusCode.RESOURCE_EXHAUSTED),
        (errors.Unavailable("x"), StatusCode.UNAVAILABLE),
        (errors.NotActive("x"), StatusCode.UNAVAILABLE),
        (RuntimeError("x"), StatusCode.INTERNAL),
    ],
    ids=lambda each: each.name if isinstance(each, StatusCode) else type(each).__name__,
)
async def test_every_error_has_its_status_and_its_document(error: Exception, code: StatusCode):
    async def fails(*_: object) -> None:
        raise error

    house = a_rest_app()
    house.cluster.submit = fails  # type: ignore[method-assign,assignment]
    async with a_caller(house) as caller:
        found, _, problem = await caller.refused("Submit", submission())
        assert found == code
        if isinstance(error, errors.PhalanxError):
            assert problem["type"].endswith(f":{type(error).__name__}") and problem["status"] == error.status


@pytest.mark.parametrize(
    ("name", "said", "says"),
    [
        ("Submit", b"\xff", "not a phalanx.v1.SubmitRequest"),
        ("Submit", messages.submit_request.pack(SubmitRequest()), "command"),
        ("Submit", submission(kind="tank"), "kind"),
        ("Submit", submission(memory="much"), "memory"),
        ("Submit", submission(gpus=-1), "gpus"),
        ("Cancel", b"", "id is missing: expected the id of a job"),
        (
            "Call",
            messages.CallRequestMessage(method="PATCH").SerializeToString(),
            "method = 'PATCH': expected",
        ),
        (
            "Call",
            messages.CallRequestMessage(method="GET", path="x").SerializeToString(),
            "path = 'x': expected",
        ),
        (
            "Call",
            messages.CallRequestMessage(method="GET", path="/", headers={"Host": "x"}).SerializeToString(),
            "headers = 'host': expected none but",
        ),
    ],
)
async def test_what_cannot_be_meant_is_refused_with_the_field(name: str, said: bytes, says: str):
    house = a_rest_app()
    async with a_caller(house) as caller:
        code, sentence, problem = await caller.refused(name, said)
        assert code == StatusCode.INVALID_ARGUMENT
        assert says in sentence and says in problem["detail"]
    assert not house.cluster.held


async def test_a_message_over_the_limit_is_refused():
    async with a_caller(a_rest_app()) as caller:
        code, _, _ = await caller.refused("Submit", b"x" * (wire.FRAME_MAX + 1))
        assert code == StatusCode.RESOURCE_EXHAUSTED


async def test_so_many_messages_are_on_their_way_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rpc_clients, "BODIES_MAX", 0)
    async with a_caller(a_rest_app()) as caller:
        code, _, problem = await caller.refused("Submit", submission())
        assert code == StatusCode.RESOURCE_EXHAUSTED and problem["reason"] == "TooMany"


async def test_any_other_question_is_answered_with_what_rest_says():
    async with a_caller(a_rest_app()) as caller:
        said = messages.CallRequestMessage(method="GET", path="/v1/nodes?limit=1").SerializeToString()
        pieces = [messages.CallReplyMessage.FromString(each) async for each in caller.stream("Call", said)]
        assert pieces[0].status == 400 and b"limit" in b"".join(each.body for each in pieces)
        said = messages.CallRequestMessage(method="GET", path="/v1/nodes").SerializeToString()
        pieces = [messages.CallReplyMessage.FromString(each) async for each in caller.stream("Call", said)]
        assert pieces[0].status == 200 and pieces[0].headers["content-type"] == "application/json"
        assert {each["name"] for each in json.loads(b"".join(each.body for each in pieces))} == {"n1", "n2"}


async def test_a_watch_of_what_is_no_longer_kept_is_out_of_range():
    house = a_rest_app()
    house.cluster.compacted = 9
    async with a_caller(house) as caller:
        watch = caller.stream("Watch", messages.WatchRequestMessage(after=1).SerializeToString())
        assert await watch.code() == StatusCode.OUT_OF_RANGE


async def test_who_does_not_read_what_was_asked_for_is_let_go(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rpc_clients, "STALL_S_MAX", 0.2)
    house = a_rest_app()
    async with a_caller(house) as caller:
        id = messages.submit_reply.unpack(await caller.ask("Submit", submission())).batch_id
        house.cluster.output[id] = b"x" * 32 * 1024 * 1024
        said = messages.CallRequestMessage(
            method="GET", path=f"/v1/tasks/{id}/logs?follow=true"
        ).SerializeToString()
        call = caller.stream("Call", said)
        await until(lambda: house.cluster.open_streams == 1)
        await until(lambda: house.cluster.open_streams == 0)  # and then it costs the app nothing
        call.cancel()
