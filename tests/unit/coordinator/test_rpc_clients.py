"""What clients ask over gRPC is answered by the REST app, by its rules; what it refuses has a status and a document."""

from __future__ import annotations

import asyncio
import gc
import json
import time
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
from grpc import StatusCode

from phalanx import errors
from phalanx.api.schema.documents import BODY_BYTES_MAX
from phalanx.api.schema.submission import SubmitRequest
from phalanx.api.server.app import build_app
from phalanx.api.server.auth import Bearer, Tokens
from phalanx.coordinator import rpc_clients
from phalanx.coordinator.rpc import RpcServer
from phalanx.coordinator.rpc_clients import ClientsService
from phalanx.rpc import messages
from phalanx.rpc.convert import WrongMessage
from phalanx.rpc.statuses import PROBLEM
from tests.support.fake_commands import FakeCommands
from tests.support.rest_app import TOKEN, RestApp, a_rest_app
from tests.support.waiting import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Caller:
    """A client with a channel and a token."""

    def __init__(self, channel: Any, token: str | None = TOKEN) -> None:
        self.channel = channel
        self.metadata = () if token is None else (("authorization", f"Bearer {token}"),)

    def stream(self, name: str, said: bytes) -> Any:
        return self.channel.unary_stream(f"/{messages.CLIENTS}/{name}")(said, metadata=self.metadata)

    def silent(self, name: str) -> Any:
        """A call that is made, and then nothing is said."""
        return self.channel.stream_stream(f"/{messages.CLIENTS}/{name}")(metadata=self.metadata)

    async def ask(self, name: str, said: bytes) -> bytes:
        method = self.channel.unary_unary(f"/{messages.CLIENTS}/{name}")
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


def a_submitted_workflow(spec: bytes) -> bytes:
    return bytes(messages.SubmitWorkflowMessage(workflow=spec).SerializeToString())


async def test_a_workflow_may_be_longer_than_a_job():
    """Over one MiB, which is where the messages of other calls end."""
    stage = b'{"name": "a", "spec": {"x": "%s"}, "job": {"groups": [{"command": ["true"]}]}}' % (
        b"y" * 60_000
    )
    many = b",".join(stage.replace(b'"a"', b'"s%d"' % number, 1) for number in range(30))
    async with a_caller(a_rest_app()) as caller:
        said = a_submitted_workflow(b'{"stages": [%s]}' % many)
        assert len(said) > BODY_BYTES_MAX
        made = messages.submitted_workflow.unpack(await caller.ask("SubmitWorkflow", said))
        assert len(made.jobs) == 30


async def test_an_answer_that_is_too_long_for_one_message_says_how_else_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
):
    async with a_caller(a_rest_app()) as caller:
        spec = b'{"stages": [{"name": "a", "job": {"groups": [{"command": ["true"]}]}}]}'
        made = messages.submitted_workflow.unpack(
            await caller.ask("SubmitWorkflow", a_submitted_workflow(spec))
        )
        said = messages.ShowWorkflowMessage(id=made.id).SerializeToString()
        assert messages.workflow_view.unpack(await caller.ask("ShowWorkflow", said)).id == made.id
        monkeypatch.setattr(rpc_clients, "ANSWER_BYTES_MAX", 20)
        _, text, document = await caller.refused("ShowWorkflow", said)
        assert "more than 20 bytes" in text
        assert "by the method Call" in document["hint"]


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
        code, _, problem = await caller.refused(name, b"x" * (messages.RECEIVED_MAX - 100))
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
        ("ShowWorkflow", b"", "id is missing: expected the id of a workflow"),
        ("CancelWorkflow", b"", "id is missing: expected the id of a workflow"),
        ("RetryWorkflow", b"", "id is missing: expected the id of a workflow"),
        ("SubmitWorkflow", b"", "workflow: expected a WorkflowSpec as JSON"),
        ("SubmitWorkflow", a_submitted_workflow(b'{"stages": []}, "request_id": "x"'), "as JSON"),
        ("SubmitWorkflow", a_submitted_workflow(b'{"stages": []}'), "stages: there is none"),
        (
            "ListWorkflows",
            messages.ListWorkflowsMessage(limit=-1).SerializeToString(),
            "limit",
        ),
        (
            "Call",
            messages.CallRequestMessage(method="TRACE").SerializeToString(),
            "method = 'TRACE': expected",
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
        (
            "Call",
            messages.CallRequestMessage(
                method="GET", path="/", headers={"accept": "\u20ac"}
            ).SerializeToString(),
            "headers['accept'] = '\u20ac': expected printable ASCII",
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


@pytest.mark.parametrize("size", [BODY_BYTES_MAX + 100_000, messages.RECEIVED_MAX + 1])
async def test_a_message_over_the_limit_is_refused(size: int):
    async with a_caller(a_rest_app()) as caller:
        code, _, _ = await caller.refused("Submit", b"x" * size)
        assert code == StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("field", [5, 26], ids=["required_gpus", "gather"])
async def test_a_message_of_very_many_elements_is_refused_before_it_is_converted(field: int):
    inner = b"\x0a\x00" * 250_000  # lists without an index
    head = bytes([field << 3 | 2]) if field < 16 else bytes([0x80 | (field << 3 | 2) & 0x7F, field >> 4])
    said = head + b"\xa0\xc2\x1e" + inner if field == 5 else (head + b"\x00") * 250_000
    house = a_rest_app()
    async with a_caller(house) as caller:
        code, sentence, _ = await caller.refused("Submit", said)
        assert code == StatusCode.INVALID_ARGUMENT and "its 250000 elements, with those before" in sentence
    assert not house.cluster.held


@pytest.mark.parametrize("role", ["viewer", "task", "node", "join"])
async def test_who_may_not_submit_is_refused_before_a_word_is_read(role: Bearer):
    cluster, tokens = FakeCommands(), Tokens([("ada", TOKEN)], role)
    house = RestApp(build_app(cluster, tokens), cluster, tokens)
    async with a_caller(house) as caller:
        call = caller.silent("Submit")
        assert await call.code() == StatusCode.PERMISSION_DENIED
        assert "may not submit" in await call.details()


async def test_messages_of_one_user_that_never_come_keep_nobody_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rpc_clients, "BODIES_MAX", 8)
    cluster, tokens = FakeCommands(), Tokens([("ada", TOKEN), ("eve", "phx_of_eve")], "user")
    house = RestApp(build_app(cluster, tokens), cluster, tokens)
    async with a_caller(house) as caller:
        eve = Caller(caller.channel, "phx_of_eve")
        silent = [eve.silent("Submit") for _ in range(2)]
        for each in silent:
            await each.wait_for_connection()
        late = eve.silent("Submit")
        assert await late.code() == StatusCode.RESOURCE_EXHAUSTED
        assert "user eve has 2 of the 8 messages on their way" in await late.details()
        assert messages.submit_reply.unpack(await caller.ask("Submit", submission())).task_ids
        for each in silent:
            each.cancel()


async def test_long_messages_are_read_one_after_another_and_a_short_one_is_not_kept_waiting(
    monkeypatch: pytest.MonkeyPatch,
):
    house = a_rest_app()
    said = submission(env={"X": "x" * 60_000})
    read: list[int] = []
    unpack = messages.submit_request.unpack_said

    def unpack_slowly(data: bytes) -> Any:
        read.append(len(data))
        until_s = time.thread_time() + (0.1 if len(data) > 60_000 else 0.0)
        while time.thread_time() < until_s:
            pass
        return unpack(data)

    monkeypatch.setattr(messages.submit_request, "unpack_said", unpack_slowly)
    async with a_caller(house) as caller:
        long = [asyncio.ensure_future(caller.ask("Submit", said)) for _ in range(4)]
        await until(lambda: bool(read))
        short = [await caller.ask("Submit", submission()) for _ in range(2)]
        assert short and len([each for each in read if each > 60_000]) < 4  # some of them are still waiting
        await asyncio.gather(*long)


async def test_a_long_message_that_is_refused_is_forgotten_at_once(monkeypatch: pytest.MonkeyPatch):
    kept: list[weakref.ref[set[int]]] = []

    def refuse(_: bytes) -> None:
        converted = {1, 2, 3}
        kept.append(weakref.ref(converted))
        raise WrongMessage("planted")

    monkeypatch.setattr(messages.submit_request, "unpack_said", refuse)
    gc.disable()
    try:
        async with a_caller(a_rest_app()) as caller:
            code, _, _ = await caller.refused("Submit", submission(env={"X": "x" * 60_000}))
            assert code == StatusCode.INVALID_ARGUMENT
            assert [each() for each in kept] == [None]
    finally:
        gc.enable()


async def test_a_defect_of_ours_is_told_without_its_words(monkeypatch: pytest.MonkeyPatch):
    def fails(_: bytes) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(messages.submit_request, "unpack_said", fails)
    async with a_caller(a_rest_app()) as caller:
        code, sentence, _ = await caller.refused("Submit", submission())
        assert code == StatusCode.INTERNAL and "planted" not in sentence


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
