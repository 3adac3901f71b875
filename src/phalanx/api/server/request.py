"""One HTTP request as the routes see it. The ASGI messages behind it are read here and nowhere else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from phalanx.api.server.roles import NOBODY, Identity, Permission, forbidden
from phalanx.errors import BadRequest, TooLarge, WrongType

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
CONNECTION = "phalanx.connection"  # in a scope: what wants to know whether its user is known
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class ClientDisconnected(Exception):
    """The client went away before it had said all it had to say. Nobody is left to answer."""


class HttpRequest:
    """A request: who asks, for what, with which words. Its `query` and `document` come decoded to a route."""

    __slots__ = (
        "_body",
        "document",
        "headers",
        "id",
        "identity",
        "is_inspector",
        "method",
        "path",
        "query",
        "query_string",
        "raw_path",
        "receive",
        "request_id",
        "token",
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
        self.request_id = ""  # by which the audit names it
        self.identity: Identity = NOBODY
        self.is_inspector = False  # may see what the job in the path wrote, and its environment
        self.token = ""
        self.id = ""  # the job, task or node named in the path
        self.query: Any = None
        self.document: Any = None
        self._body: bytes | None = None

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
                f"content type {declared[:80].decode('latin-1')!r} is not taken here, send application/json"
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
            b"content-type",
            b"idempotency-key",
            b"last-event-id",
        ):
            if names.count(name) > 1:
                raise BadRequest(f"the header {name.decode()} stands twice in the request")
    return headers


def _address(client: tuple[str, int] | None) -> str:
    return "" if client is None else f"{client[0]}:{client[1]}"


def _too_large(bytes_max: int) -> TooLarge:
    return TooLarge(f"the body is over the limit of {bytes_max} bytes")
