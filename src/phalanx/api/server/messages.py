"""One HTTP request as the routes see it, and the answers as values. ASGI messages are read and written here alone."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import aclosing
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from phalanx.api.schema.documents import PROBLEM_TYPE, retry_after_s, spell_problem
from phalanx.api.server.auth import NOBODY, Accepts, Identity, Permission, forbidden, identify
from phalanx.api.server.logins import AcceptsLogins, cookie_name, identify_login, read_cookie
from phalanx.duplex import Duplex
from phalanx.errors import BadRequest, PhalanxError, TooLarge, Unauthorized, WrongMethod, WrongType

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
CONNECTION = "phalanx.connection"  # in a scope: what wants to know whether its user is known
App = Callable[[Scope, Receive, Send], Awaitable[None]]

T = TypeVar("T")
Header = tuple[bytes, bytes]

# Answers are for one user at one moment, and never a page for a browser to guess the type of.
_PLAIN: tuple[Header, ...] = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_JSON: tuple[Header, ...] = (*_PLAIN, (b"content-type", b"application/json"))
_PROBLEM: tuple[Header, ...] = (*_PLAIN, (b"content-type", PROBLEM_TYPE.encode()))
_encode = msgspec.json.Encoder().encode


class SwitchableConnection(Protocol):
    """The connection of a request, where there is one."""

    def identify(self, http_request: HttpRequest) -> None: ...

    def wait_for_reader(self) -> None:
        """Do not give up on a reader that takes nothing: its task waits for it."""
        ...

    def switch(self, protocol: str, *headers: Header) -> Duplex | None:
        """Change to another protocol: answer with 101, and let the route have the connection. None if it is gone."""
        ...


class ClientDisconnected(Exception):
    """The client disconnected before its request was complete."""


class HttpRequest:
    """A request: who asks, for what, with which words. Its `query` and `document` come decoded to a route."""

    __slots__ = (
        "_body",
        "_raw",
        "connection",
        "document",
        "headers",
        "id",
        "identity",
        "is_inspector",
        "is_secure",
        "logins",
        "made",
        "method",
        "path",
        "peer",
        "query",
        "query_string",
        "raw_path",
        "receive",
        "request_id",
        "rest",
        "token",
        "what",
        "where",
    )

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        raw: bytes | None = scope.get(
            "raw_path"
        )  # a slash within an id is quoted there, so the parts can be told
        self.raw_path = self.path if raw is None else raw.decode("latin-1")
        self.query_string: bytes = scope["query_string"]
        self.headers: dict[bytes, bytes] = headers_once(scope["headers"])
        self.receive = receive
        self.where = _address(scope.get("client"))
        self.peer = self.address  # at the other end of the connection: a proxy, if one is in between
        self._raw: list[tuple[bytes, bytes]] = scope["headers"]
        self.request_id = ""  # by which the audit names it
        self.what = ""  # what the audit says of it besides its route
        self.made: list[str] = []  # ids of the jobs, workflows or tokens that it made, for the audit
        self.connection: SwitchableConnection | None = scope.get(CONNECTION)
        self.identity: Identity = NOBODY
        self.is_secure: bool = scope.get("scheme") == "https"  # on the way to the browser
        self.logins: AcceptsLogins | None = None  # if a browser may show the cookie of a login
        self.is_inspector = False  # may see what the job in the path wrote, and its environment
        self.token = ""
        self.id = ""  # the job, task or node named in the path
        self.rest = ""  # what follows the verb in the path
        self.query: Any = None
        self.document: Any = None
        self._body: bytes | None = None

    def count(self, name: bytes) -> int:
        """How often a header is given."""
        return sum(each == name for each, _ in self._raw)

    @property
    def user(self) -> str:
        return self.identity.name

    @property
    def address(self) -> str:
        """Where it comes from, without the port; empty within one process."""
        return self.where.rpartition(":")[0]

    @property
    def wants_leader(self) -> bool:
        """Whether a standby, which may lag behind, is to say so instead of answering."""
        return self.headers.get(b"phalanx-read") == b"leader"

    @property
    def takes_shared(self) -> bool:
        """Whether an answer is good enough that was made for another a moment ago."""
        return self.headers.get(b"phalanx-read") == b"shared"

    def identify(self, tokens: Accepts) -> None:
        """Note who sends this request, or raise Unauthorized. With a token, no cookie is looked at."""
        cookie = self.cookie
        if self.logins is not None and cookie:
            self.identity = identify_login(self.logins, self.method, self.headers, cookie)
            self.token = cookie
        else:
            self.identity, self.token = identify(tokens, self.headers.get(b"authorization", b""))

    @property
    def cookie(self) -> str:
        """The cookie of a login, of a request that shows no token.

        `Basic` is not ours: a proxy that asked for a password passes it on.
        """
        scheme = self.headers.get(b"authorization", b"basic").partition(b" ")[0]
        if self.logins is None or scheme.lower() != b"basic":
            return ""
        return read_cookie(
            self.headers, cookie_name(self.headers.get(b"host", b""), is_secure=self.is_secure)
        )

    def is_insider(self, tokens: Accepts) -> bool:
        """For a public route: whether the caller is authenticated. A wrong token is refused here as well."""
        if b"authorization" not in self.headers:
            return False
        self.identify(tokens)
        return self.identity.scope("read") == "all"

    def require(self, permission: Permission) -> None:
        """Refuse what the role does not allow everywhere."""
        if self.identity.scope(permission) != "all":
            raise forbidden(self.identity, permission)

    def is_large(self, bytes_max: int) -> bool:
        """Whether the body is longer than this, or does not say how long it is."""
        declared = self.headers.get(b"content-length", b"")
        is_open = b"transfer-encoding" in self.headers
        return is_open or (declared.isdigit() and int(declared[:20]) > bytes_max)

    async def body(self, bytes_max: int) -> bytes:
        """The whole body, refused as soon as it grows over its limit, whatever Content-Length claims."""
        if self._body is None:
            self._body = await self._received(bytes_max)
        return self._body

    async def _received(self, bytes_max: int) -> bytes:
        declared = self.headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared[:20]) > bytes_max:
            raise _too_large(bytes_max)
        message = await self.receive()
        pieces = [message.get("body", b"")]
        size = len(pieces[0])
        while message.get("more_body", False) and size <= bytes_max:
            message = await self.receive()
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        if size > bytes_max:
            raise _too_large(bytes_max)
        return b"".join(pieces)

    def require_json(self) -> None:
        """A body must say that it is JSON: a form of a web page can be sent by any page, JSON cannot."""
        declared = self.headers.get(b"content-type", b"")
        if declared.partition(b";")[0].strip().lower() != b"application/json":
            raise WrongType(
                f"content type {declared[:80].decode('latin-1')!r} is not accepted, send application/json"
            )


def headers_once(raw: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """The headers by name. One that decides who may enter must not come twice, with two answers."""
    headers = dict(raw)
    if len(headers) != len(raw):
        names = [name for name, _ in raw]
        for name in (
            b"host",
            b"origin",
            b"authorization",
            b"cookie",
            b"phalanx-csrf",
            b"sec-fetch-site",
            b"content-type",
            b"idempotency-key",
            b"last-event-id",
        ):
            if names.count(name) > 1:
                raise BadRequest(f"the header {name.decode()} is given twice in the request")
    return headers


def _address(client: tuple[str, int] | None) -> str:
    return "" if client is None else f"{client[0]}:{client[1]}"


def _too_large(bytes_max: int) -> TooLarge:
    return TooLarge(f"the body is over the limit of {bytes_max} bytes")


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

    An error on the way is sent with `last_words` if the format has such; otherwise it goes up, the
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


class SwitchedResponse:
    """An answer after which the connection carries another protocol; `send` returns when that is over."""

    status = 101

    async def send(self, send: Send) -> None:
        raise NotImplementedError


Reply = Response | StreamedResponse[Any] | SwitchedResponse


def json_reply(value: Any, status: int = 200) -> Response:
    return Response(status, _JSON, _encode(value))


def text_reply(body: bytes, media: str) -> Response:
    return Response(200, (*_PLAIN, (b"content-type", media.encode())), body)


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
