"""Answers that take their time: cancelled when the client hangs up, alive while nothing happens.

A stream holds one of a limited number of slots, and its token is looked at again at every beat, because a
right that has ended must not go on in a connection that was opened before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from phalanx.api.server.request import HttpRequest, Receive
from phalanx.api.server.route import Service
from phalanx.errors import Unauthorized, Unavailable

T = TypeVar("T")


async def while_connected(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Run `work`, and cancel it as soon as the client hangs up."""
    working = asyncio.create_task(work)
    watching = asyncio.create_task(_hang_up(receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended = working.done()
        working.cancel()
        watching.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)
    if ended:
        working.result()  # an error of the work goes on up, a hang-up is no error


async def held(
    service: Service, http_request: HttpRequest, source: AsyncIterator[T]
) -> AsyncGenerator[T | None, None]:
    """The items of `source`, with None at every beat, in one of the slots and while the token is good."""
    limits = service.limits
    with service.streams.taken(http_request):
        async with aclosing(with_beats(source, limits.settle_s, limits.beat_s)) as items:
            async for item in items:
                if item is None and not _is_still_good(service, http_request):
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


def _is_still_good(service: Service, http_request: HttpRequest) -> bool:
    """Whether the token is accepted, and still stands for the same name and role."""
    try:
        now = service.tokens.accepts_user(http_request.token)
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


async def _hang_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
