"""The REST app over fake commands, raw requests to it, and clients of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple

import msgspec

from phalanx.api.server.app import build_app
from phalanx.api.server.auth import Identity, Tokens
from phalanx.api.server.limits import ServerLimits
from phalanx.api.server.logins import cookie_name, csrf_of
from phalanx.api.server.messages import App, Message
from phalanx.api.server.page_access import PageAccess
from phalanx.client.async_client import AsyncClient
from phalanx.client.client import Client
from phalanx.client.in_process import BridgedTransport, InProcessTransport
from tests.support.fake_commands import FakeCommands

TOKEN = "phx_of_the_tests"
JSON = {"content-type": "application/json"}


class RestApp(NamedTuple):
    app: App
    cluster: FakeCommands
    tokens: Tokens


class RawResponse(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


def a_rest_app(cluster: FakeCommands | None = None, **limits: Any) -> RestApp:
    cluster = cluster or FakeCommands()
    tokens = Tokens([("ada", TOKEN)])
    app = build_app(cluster, tokens, limits=ServerLimits(**limits), page=PageAccess(cluster))
    return RestApp(app, cluster, tokens)


def as_browser(cluster: FakeCommands, who: Identity) -> dict[str, str]:
    """Headers of the page of a browser that is logged in, instead of those of a token."""
    cookie = cluster.opened(who)
    name = cookie_name(b"localhost:7433", is_secure=False)
    return {"authorization": "", "cookie": f"{name}={cookie}", "phalanx-csrf": csrf_of(cookie)}


class TaskToken:
    """Accepts any token, as that of a task of one job of Ada's."""

    def __init__(self, job: str) -> None:
        self._job = job

    def accepts_user(self, token: str) -> Identity | None:
        return Identity("ada", "task", "f" * 16, self._job)


def as_task(house: RestApp, job: str) -> App:
    """The same app, for the tasks of a job."""
    return build_app(house.cluster, TaskToken(job))


async def ask(
    app: App,
    method: str = "GET",
    path: str = "/v1/jobs",
    body: bytes = b"",
    *,
    query: bytes = b"",
    headers: dict[str, str] | None = None,
    pieces: list[bytes] | None = None,
) -> RawResponse:
    """One raw request with a good token and Host, unless `headers` say otherwise; an empty value leaves one out."""
    words = {"host": "localhost:7433", "authorization": f"Bearer {TOKEN}"} | (headers or {})
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in words.items() if value]
    return await ask_raw(app, method, path, raw, query, pieces or [body])


async def ask_raw(
    app: App, method: str, path: str, headers: list[tuple[bytes, bytes]], query: bytes, pieces: list[bytes]
) -> RawResponse:
    coming = list(pieces)
    sent: list[Message] = []

    async def receive() -> Message:
        if not coming:
            await asyncio.Event().wait()  # a client that stays and says nothing more
        return {"type": "http.request", "body": coming.pop(0), "more_body": bool(coming)}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "query_string": query, "headers": headers}
    await app(scope, receive, send)
    names = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return RawResponse(sent[0]["status"], names, b"".join(each["body"] for each in sent[1:]))


@asynccontextmanager
async def an_async_client(house: RestApp, token: str = TOKEN) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(token=token, exchange=InProcessTransport(house.app)) as client:
        yield client


@contextmanager
def a_client(house: RestApp) -> Iterator[Client]:
    """The sync client, with the app in a loop of its own thread."""
    with (
        a_loop() as loop,
        Client(token=TOKEN, exchange=BridgedTransport(InProcessTransport(house.app), loop)) as client,
    ):
        yield client


@contextmanager
def a_loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
