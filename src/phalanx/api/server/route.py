"""A row of the route table, what every route is given to work with, and streams.

A stream shows signs of life while nothing happens. It holds one of a limited number of places, and its token is looked
at again at every beat, because a right that has ended must not go on in a connection that was opened before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable
from contextlib import aclosing
from typing import Any, Literal, TypeVar

from msgspec import Struct

from phalanx.api.schema.documents import Nothing
from phalanx.api.schema.queries import NoQuery
from phalanx.api.server.auth import Accepts, Permission
from phalanx.api.server.commands import Audit, Commands
from phalanx.api.server.limits import ByteRate, ConcurrencyLimit, ServerLimits, StreamLimit, TimeSlices
from phalanx.api.server.messages import HttpRequest, Reply
from phalanx.api.server.page_access import NO_PAGE, PageAccess
from phalanx.api.server.shared_answers import SharedAnswers
from phalanx.clock import SystemClock
from phalanx.errors import PhalanxError, Unauthorized, Unavailable

FRESH_S = 1.0
T = TypeVar("T")


class Readiness:
    """Whether the whole way to the store and back works."""

    def __init__(
        self, ready: Callable[[], Awaitable[None]], within_s: float, fresh_s: float = FRESH_S
    ) -> None:
        """`ready` raises unless it does, or takes longer than `within_s`."""
        self._ready = ready
        self._within_s = within_s
        self._fresh_s = fresh_s
        self._question: asyncio.Task[bool] | None = None
        self._answered_at = 0.0

    async def require(self) -> None:
        """Ask now, and raise whatever is wrong, in full."""
        try:
            async with asyncio.timeout(self._within_s):
                await self._ready()
        except TimeoutError:
            raise Unavailable(f"no answer from the coordinator within {self._within_s:g} s") from None

    async def is_given(self) -> bool:
        """The answer of the moment. Calls made meanwhile wait for the same answer."""
        now = asyncio.get_running_loop().time()
        if self._question is None or (self._question.done() and now - self._answered_at >= self._fresh_s):
            self._question = asyncio.ensure_future(self._ask())
        return await asyncio.shield(self._question)

    async def _ask(self) -> bool:
        try:
            await self.require()
        except PhalanxError:
            return False
        else:
            return True
        finally:
            self._answered_at = asyncio.get_running_loop().time()


class Service:
    """What the routes work with: the commands behind them, and the limits in front."""

    def __init__(
        self,
        commands: Commands,
        tokens: Accepts,
        limits: ServerLimits,
        openapi: Callable[[], bytes],
        audit: Audit,
        page: PageAccess = NO_PAGE,
    ) -> None:
        self.commands = commands
        self.tokens = tokens
        self.limits = limits
        self.openapi = openapi  # made when it is first asked for, which takes longer than any request
        self.audit = audit
        self.logins, self.proxies, self.forwards = page.logins, page.proxies, page.forwards
        self.vouchers = page.vouchers
        self.clock = SystemClock()
        self.streams = StreamLimit(limits.streams, "places for watches and log readers")
        self.sessions = StreamLimit(limits.sessions, "places for sessions")
        self.session_bytes = ByteRate(limits.session_bytes_per_s)
        self.waits = StreamLimit(limits.waits, "places for waiting")
        self.reads = StreamLimit(limits.reads, "places for questions")
        self.slices = TimeSlices(SystemClock())
        self.shared = SharedAnswers(self.clock, commands.revision)
        self.readiness = Readiness(commands.ready, limits.ready_s)
        self.limit = ConcurrencyLimit(limits.submits, limits.submits_waiting, limits.submit_within_s)
        self.large_bodies = StreamLimit(limits.large_bodies, "places for large bodies")
        self.large = ConcurrencyLimit(
            limits.large_submits, limits.submits_waiting // 16, limits.large_within_s, limits.large_rest
        )

    async def id_named(self, http_request: HttpRequest, name: str, *, own: bool = False) -> str:
        """The id behind a number or name: the caller's own, or another user's if the caller may see that name.

        Lists show the names of all jobs; what Kubernetes calls them is shown to owners, operators and admins alone.
        """
        needed: Permission = "inspect" if "/" in name else "follow"
        of_all = not own and http_request.identity.scope(needed) == "all"
        return await self.commands.named(name, http_request.user, of_all=of_all, kind=kind_of(http_request))


def kind_of(http_request: HttpRequest) -> Literal["job", "workflow"]:
    """What a path is about; a name in it is meant so."""
    return "workflow" if http_request.path.startswith("/v1/workflows") else "job"


Handler = Callable[[Service, HttpRequest], Awaitable[Reply]]
Sees = Callable[[HttpRequest], Hashable]


def all_alike(_http_request: HttpRequest) -> Hashable:
    """Everybody who may ask is told the same."""
    return None


class Route(Struct, frozen=True, kw_only=True):
    """One row: what is asked, who may ask, who answers; the OpenAPI document is made from it as well."""

    method: str
    path: str
    permission: Permission
    handler: Handler
    summary: str
    answer: Any  # the type of the answer, or None for a stream of bytes
    status: int = 200
    query: type[Struct] = NoQuery
    body: type[Struct] = Nothing
    body_bytes: int = 0  # how long a body may be, if longer than others
    large_bytes: int = 0  # from which length a body is a large one, if that is less than of others
    header: str = ""  # a request header that this route reads
    media: str = "application/json"
    lasting: bool = False  # may take long, so it is cancelled when the client hangs up
    is_about_a_job: bool = False  # the id in the path is that of a job or task, which has an owner
    is_costly: bool = False  # only so many of them are carried out at once
    is_traffic: bool = False  # data of programs at work, of which only refusals are audited
    is_heavy: bool = False  # costly however little is asked: it looks at everything that waits
    # What an answer depends on besides path and query: pages for which this is equal may share one. Only of a GET that
    # is answered with a `Response`.
    sees: Sees | None = None


async def held(
    service: Service, http_request: HttpRequest, source: AsyncIterator[T]
) -> AsyncGenerator[T | None, None]:
    """The items of `source`, with None at every beat, in one of the slots and while the token is good."""
    limits = service.limits
    with service.streams.taken(http_request):
        async with aclosing(with_beats(source, limits.settle_s, limits.beat_s)) as items:
            async for item in items:
                if item is None and not is_still_good(service, http_request):
                    raise Unauthorized("the token of this stream is no longer accepted")
                yield item


async def with_beats(
    source: AsyncIterator[T], first_s: float, every_s: float
) -> AsyncGenerator[T | None, None]:
    """The items of `source`, and None after `first_s` and then every `every_s` seconds, busy or not."""
    loop = asyncio.get_running_loop()
    due = loop.time() + first_s
    coming: asyncio.Task[T] = asyncio.create_task(_next(source))
    try:
        while True:
            await asyncio.wait((coming,), timeout=max(0.0, due - loop.time()))
            if loop.time() >= due:
                due = loop.time() + every_s
                yield None
            if coming.done():
                try:
                    item = coming.result()
                except StopAsyncIteration:
                    return
                coming = asyncio.create_task(_next(source))
                yield item
    finally:
        await _close(coming, source)


def is_still_good(service: Service, http_request: HttpRequest) -> bool:
    """Whether the token is accepted, and still stands for the same name and role."""
    try:
        is_login = bool(http_request.identity.login) and service.logins is not None
        accepts = service.logins.accepts_login if is_login and service.logins else service.tokens.accepts_user
        now = accepts(http_request.token)
    except Unavailable:  # nobody knows here any more
        return False
    return now is not None and (now.name, now.role) == (
        http_request.identity.name,
        http_request.identity.role,
    )


async def _next(source: AsyncIterator[T]) -> T:
    return await anext(source)


async def _close(coming: asyncio.Task[T], source: AsyncIterator[T]) -> None:
    coming.cancel()
    await asyncio.gather(coming, return_exceptions=True)
    close = getattr(source, "aclose", None)
    if close is not None:
        await close()
