"""Answers as values: a whole one, or one that flows. Each knows how to say itself over ASGI."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Generic, TypeVar

import msgspec

from phalanx.api.schema.problems import MEDIA_TYPE, retry_after_s, spell_problem
from phalanx.api.server.request import Send
from phalanx.errors import PhalanxError, TooLarge, Unauthorized, WrongMethod

T = TypeVar("T")
Header = tuple[bytes, bytes]

# Answers are for one user at one moment, and never a page for a browser to guess the type of.
_PLAIN: tuple[Header, ...] = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_JSON: tuple[Header, ...] = (*_PLAIN, (b"content-type", b"application/json"))
_PROBLEM: tuple[Header, ...] = (*_PLAIN, (b"content-type", MEDIA_TYPE.encode()))
_encode = msgspec.json.Encoder().encode


class Response:
    """A whole answer."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: tuple[Header, ...], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    async def send(self, send: Send) -> None:
        headers = [*self.headers, (b"content-length", b"%d" % len(self.body))]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


class StreamedResponse(Generic[T]):
    """An answer that flows: `first` as bytes, then the `rest` as `spell` writes each item.

    An error that comes on the way is told with `last_words` if the format has such; otherwise it goes up, the
    server cuts the connection, and the client can tell a cut from an end.
    """

    def __init__(
        self,
        headers: tuple[Header, ...],
        first: bytes,
        rest: AsyncGenerator[T, None],
        spell: Callable[[T], bytes],
        last_words: Callable[[PhalanxError], bytes] | None = None,
    ) -> None:
        self.headers = (*_PLAIN, *headers)
        self.first = first
        self.rest = rest
        self.spell = spell
        self.last_words = last_words

    async def send(self, send: Send) -> None:
        async with aclosing(self.rest) as rest:
            await send({"type": "http.response.start", "status": 200, "headers": list(self.headers)})
            await _send_piece(send, self.first)
            try:
                async for item in rest:
                    await _send_piece(send, self.spell(item))
            except PhalanxError as error:
                if self.last_words is None:
                    raise
                await _send_piece(send, self.last_words(error))
            await send({"type": "http.response.body", "body": b""})


def json_reply(value: Any, status: int = 200) -> Response:
    return Response(status, _JSON, _encode(value))


def encoded_reply(body: bytes) -> Response:
    """JSON that is spelled already."""
    return Response(200, _JSON, body)


def problem_reply(error: PhalanxError, path: str = "") -> Response:
    """The error with the headers that its status calls for."""
    headers = list(_PROBLEM)
    after_s = retry_after_s(error)
    if after_s is not None:
        headers.append((b"retry-after", b"%d" % after_s))
    if isinstance(error, Unauthorized):
        headers.append((b"www-authenticate", b"Bearer"))
    if isinstance(error, WrongMethod):
        headers.append((b"allow", error.extra["allow"].encode()))
    if isinstance(error, TooLarge):
        headers.append((b"connection", b"close"))  # the rest of the body is not worth reading
    return Response(error.status, tuple(headers), spell_problem(error, path))


async def _send_piece(send: Send, piece: bytes) -> None:
    if piece:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
