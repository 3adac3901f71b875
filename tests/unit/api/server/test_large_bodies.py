"""Large bodies: a slow sender holds no place that others wait for, and only so many are in memory at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.json import encode

from phalanx.api.schema.submission import SubmitReply, SubmitRequest
from phalanx.api.schema.sweeps import RetryTasksRequest
from phalanx.api.schema.workflows import SubmittedWorkflow, WorkflowRequest
from phalanx.api.server.app import build_app
from phalanx.api.server.auth import Tokens
from phalanx.api.server.limits import ServerLimits
from phalanx.api.server.messages import App, Message
from tests.support.fake_commands import FakeCommands
from tests.support.rest_app import JSON, RawResponse, ask

pytestmark = pytest.mark.anyio

LARGE = b'{"command": ["true"], "env": {"A": "%b"}}' % (b"x" * 40_000)
STAGE = {"job": {"groups": [{"name": "main", "command": ["sleep", "100"]}]}}
USERS = [(name, f"phx_{name}") for name in ("ada", "bob", "carol")]


class Held(FakeCommands):
    """A cluster whose submits end when they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.began: asyncio.Queue[str] = asyncio.Queue()
        self.let_go = asyncio.Event()

    async def submit_workflow(
        self, request: WorkflowRequest, user: str, role: str = "user"
    ) -> SubmittedWorkflow:
        self.began.put_nowait(user)
        await self.let_go.wait()
        return await super().submit_workflow(request, user, role)

    async def retry(self, id: str, request: RetryTasksRequest, user: str, role: str = "user") -> SubmitReply:
        self.began.put_nowait(user)
        await self.let_go.wait()
        return await super().retry(id, request, user, role)

    async def submit(self, request: SubmitRequest, user: str, role: str = "user") -> SubmitReply:
        self.began.put_nowait(user)
        await self.let_go.wait()
        return await super().submit(request, user, role)


def an_app(cluster: FakeCommands, **limits: float) -> App:
    return build_app(cluster, Tokens(USERS), limits=ServerLimits(**limits))  # type: ignore[arg-type]


def headers(user: str, size: int = len(LARGE)) -> dict[str, str]:
    return JSON | {"authorization": f"Bearer phx_{user}", "content-length": str(size)}


@asynccontextmanager
async def a_slow_sender(app: App, user: str, size: int = len(LARGE)) -> AsyncIterator[asyncio.Task[None]]:
    """Its request has begun, and the remainder of its body does not come."""
    begun = asyncio.Event()

    async def receive() -> Message:
        if begun.is_set():
            await asyncio.Event().wait()
        begun.set()
        return {"type": "http.request", "body": LARGE[:10], "more_body": True}

    async def send(message: Message) -> None:
        raise AssertionError(message)

    words = {"host": "localhost", **headers(user, size)}
    raw = [(name.encode(), value.encode()) for name, value in words.items()]
    scope = {"type": "http", "method": "POST", "path": "/v1/jobs", "query_string": b"", "headers": raw}
    sending = asyncio.ensure_future(app(scope, receive, send))
    await begun.wait()
    try:
        yield sending
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def test_slow_senders_keep_nobody_from_submitting():
    app = an_app(FakeCommands(), submits=2, submit_within_s=0.05, large_within_s=0.05)
    async with a_slow_sender(app, "ada"), a_slow_sender(app, "bob"):
        assert (await ask(app, "POST", body=LARGE, headers=headers("carol"))).status == 202
    small = LARGE[:41] + b'"}}'
    async with a_slow_sender(app, "ada", 100), a_slow_sender(app, "bob", 100):
        assert (await ask(app, "POST", body=small, headers=headers("carol", len(small)))).status == 202


async def test_large_bodies_wait_longer_for_their_place_than_others():
    cluster = Held()
    app = an_app(cluster, large_submits=1, submit_within_s=0.001, large_within_s=60.0, large_rest=0.0)
    first = asyncio.create_task(ask(app, "POST", body=LARGE, headers=headers("ada")))
    assert await cluster.began.get() == "ada"
    second = asyncio.create_task(ask(app, "POST", body=LARGE, headers=headers("bob")))
    done, _ = await asyncio.wait([second], timeout=0.1)
    assert not done, second.result()
    cluster.let_go.set()
    assert [(await each).status for each in (first, second)] == [202, 202]


async def test_a_workflow_is_large_from_twenty_stages_or_so_each_of_which_costs_as_much_as_a_job():
    cluster = Held()
    app = an_app(cluster, large_rest=0.0)

    def sent(stages: int, user: str) -> asyncio.Task[RawResponse]:
        body = encode({"workflow": {"stages": [STAGE | {"name": f"s{number}"} for number in range(stages)]}})
        return asyncio.create_task(ask(app, "POST", "/v1/workflows", body, headers=headers(user, len(body))))

    asked = [sent(40, "ada") for _ in range(8)]
    first = await cluster.began.get()
    asked += [sent(40, "bob"), *(sent(2, "ada") for _ in range(3))]
    others = sorted([await cluster.began.get() for _ in range(4)])
    assert (first, others) == ("ada", ["ada", "ada", "ada", "bob"])
    assert cluster.began.empty()
    cluster.let_go.set()
    assert [(await each).status for each in asked] == [202] * 12


async def test_retries_of_one_user_wait_for_each_other():
    """Each looks at every task of the job."""
    cluster = Held()
    app = an_app(cluster, large_rest=0.0)
    jobs = {}
    for user in ("ada", "bob"):
        request = SubmitRequest(command=["true"])
        jobs[user] = (await FakeCommands.submit(cluster, request, user)).task_ids[0]

    def retried(user: str) -> asyncio.Task[RawResponse]:
        path = f"/v1/jobs/{jobs[user]}/retry"
        return asyncio.create_task(ask(app, "POST", path, b"{}", headers=headers(user, 2)))

    asked = [retried("ada") for _ in range(8)]
    first = await cluster.began.get()
    asked.append(retried("bob"))
    assert (first, await cluster.began.get()) == ("ada", "bob")
    assert cluster.began.empty()
    cluster.let_go.set()
    assert [(await each).status for each in asked] == [202] * 9


async def test_only_so_many_large_bodies_are_held_in_memory():
    app = an_app(FakeCommands(), large_bodies=2)
    async with a_slow_sender(app, "ada") as slow:
        refused = await ask(app, "POST", body=LARGE, headers=headers("ada"))
        assert (refused.status, refused.json()["reason"]) == (429, "TooManyPlaces")
        assert not slow.done()
        assert (await ask(app, "POST", body=LARGE, headers=headers("bob"))).status == 202
    assert (await ask(app, "POST", body=LARGE, headers=headers("ada"))).status == 202
