"""A standby passes what a page asks on to the leader, with the page's own cookie: the leader asks who it is for itself.

So a page is the same wherever it is open. The address is that of the leader as the store tells it, and over TLS the
leader has to prove it: by `coordinator.tls_ca_file`, by `client.ca_file`, or to the authorities of the system. A
request is passed on once and no further. When another leads, what waits for the former leader ends: it may be frozen.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from phalanx.api.schema.sse import spell_error
from phalanx.api.server.logins import cookie_name, renamed_cookie
from phalanx.api.server.messages import (
    Header,
    HttpRequest,
    Reply,
    Response,
    Send,
    StreamedResponse,
    SwitchedResponse,
)
from phalanx.api.server.proxies import VOUCHER
from phalanx.duplex import Duplex
from phalanx.errors import NotActive, PhalanxError, TooLarge, Unavailable
from phalanx.settings_types import is_loopback

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")
IsLeader = Callable[[], bool]
FORWARDED = b"phalanx-forwarded"
CONNECT_S, ANSWER_S = 2.0, 90.0
LOOK_EVERY_S = 0.5  # whether the one that is asked still leads
WHOLE_BYTES_MAX = 64 << 20
HEAD_BYTES_MAX = 16 * 1024
PASSED_ON = (
    b"accept",
    b"accept-encoding",
    b"content-type",
    b"idempotency-key",
    b"if-none-match",
    b"last-event-id",
    b"phalanx-csrf",
    b"phalanx-read",
    VOUCHER,
    b"sec-fetch-site",
    b"user-agent",
)
_WEB_SOCKET = (b"sec-websocket-key", b"sec-websocket-version")
_OF_CONNECTION = frozenset(
    {b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"upgrade"}
)


class LeaderForwarder:
    """Passes requests on over connections that are kept open."""

    def __init__(self, name: str, ca_file: Path | None = None) -> None:
        self._name = name
        self._ca_file = ca_file
        self._client: httpx.AsyncClient | None = None
        self._tls: ssl.SSLContext | None = None

    async def forward(
        self, http_request: HttpRequest, leader: str, body: bytes, is_leader: IsLeader
    ) -> Reply:
        """The leader's answer; Unavailable if it cannot be reached, NotActive if it is not to be asked."""
        place = urlsplit(leader)
        if FORWARDED in http_request.headers:
            raise NotActive("the leader is changing", hint="ask again", retry_after_s=1.0)
        if place.scheme != "https" and not is_loopback(place.hostname or ""):
            raise Unavailable(
                f"the leader's address {leader} is not one of https, so no cookie is sent there"
            )
        if b"upgrade" in http_request.headers:
            return await self._upgraded(http_request, leader, is_leader)
        return await self._asked(http_request, leader, body, is_leader)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def _asked(self, http_request: HttpRequest, leader: str, body: bytes, is_leader: IsLeader) -> Reply:
        import httpx

        client = self._opened()
        query = f"?{http_request.query_string.decode('latin-1')}" if http_request.query_string else ""
        url = f"{leader}{http_request.raw_path}{query}"
        headers = self._headers(http_request, leader)
        request = client.build_request(http_request.method, url, headers=headers, content=body)
        try:
            answer = await _while_it_leads(client.send(request, stream=True), leader, is_leader)
        except httpx.HTTPError as error:
            raise _unreachable(leader, error) from None
        told = _told(http_request, leader, answer.headers.raw)
        if answer.status_code == 200 and b"content-length" not in dict(answer.headers.raw):
            pieces = _pieces(answer, leader, is_leader)
            is_events = answer.headers.get("content-type", "").startswith("text/event-stream")
            return StreamedResponse(told, b"", pieces, bytes, spell_error if is_events else None)
        whole = b"".join([piece async for piece in _pieces(answer, leader, is_leader)])
        if len(whole) > WHOLE_BYTES_MAX:
            raise TooLarge("the leader's answer is too long")
        return Response(answer.status_code, told, whole)

    async def _upgraded(self, http_request: HttpRequest, leader: str, is_leader: IsLeader) -> Reply:
        """A connection that changes its protocol: from then on its bytes are passed on."""
        place = urlsplit(leader)
        secure = self._context() if place.scheme == "https" else None
        port = place.port or (443 if secure else 80)
        try:
            async with asyncio.timeout(CONNECT_S):
                _, duplex = await asyncio.get_running_loop().create_connection(
                    Duplex, place.hostname or "", port, ssl=secure
                )
        except (OSError, TimeoutError) as error:
            raise _unreachable(leader, error) from None
        lines = [
            f"GET {http_request.raw_path} HTTP/1.1".encode("latin-1"),
            b"connection: Upgrade",
            b"upgrade: websocket",
            b"origin: " + f"{place.scheme}://{place.netloc}".encode(),
            b"host: " + place.netloc.encode(),
            *(b"%b: %b" % (name, value) for name, value in self._headers(http_request, leader)),
            *(b"%b: %b" % (name, http_request.headers.get(name, b"")) for name in _WEB_SOCKET),
        ]
        duplex.put(b"\r\n".join(lines) + b"\r\n\r\n")
        try:
            status, headers = await _while_it_leads(_head_of(duplex), leader, is_leader)
        except (EOFError, TimeoutError, Unavailable):
            duplex.abort()
            raise Unavailable(f"the leader at {leader} did not answer", retry_after_s=1.0) from None
        if status != 101:
            duplex.abort()
            raise Unavailable(f"the leader refused the connection with {status}", retry_after_s=1.0)
        accept = headers.get(b"sec-websocket-accept", b"")
        return SplicedResponse(http_request, duplex, (b"sec-websocket-accept", accept), is_leader)

    def _headers(self, http_request: HttpRequest, leader: str) -> list[Header]:
        """What the leader has to know. The cookie is called there as the leader's own are."""
        place = urlsplit(leader)
        headers = [(name, http_request.headers[name]) for name in PASSED_ON if name in http_request.headers]
        headers.append((FORWARDED, self._name.encode("ascii", "replace")))
        if http_request.cookie:
            name = cookie_name(place.netloc.encode(), is_secure=place.scheme == "https")
            headers.append((b"cookie", f"{name}={http_request.cookie}".encode("latin-1")))
        return headers

    def _opened(self) -> httpx.AsyncClient:
        import httpx

        if self._client is None:
            # As many as there are places for what is passed on (`limits.waits`): a limit of its own would let one
            # user's share of those take all connections.
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=32)
            timeout = httpx.Timeout(ANSWER_S, connect=CONNECT_S)
            self._client = httpx.AsyncClient(
                verify=self._context(),
                limits=limits,
                timeout=timeout,
                trust_env=False,
                follow_redirects=False,
            )
        return self._client

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context(cafile=self._ca_file)
        return self._tls


class SplicedResponse(SwitchedResponse):
    """Two connections whose bytes go from one to the other, until either ends."""

    def __init__(
        self, http_request: HttpRequest, leader: Duplex, accept: Header, is_leader: IsLeader
    ) -> None:
        self._request = http_request
        self._leader = leader
        self._accept = accept
        self._is_leader = is_leader

    async def send(self, send: Send) -> None:
        assert self._request.connection is not None
        page = self._request.connection.switch("websocket", self._accept)
        if page is None:
            self._leader.abort()
            return
        copies = {
            asyncio.create_task(_copy(page, self._leader)),
            asyncio.create_task(_copy(self._leader, page)),
            asyncio.ensure_future(page.stopping.wait()),
            asyncio.create_task(_until_another_leads(self._is_leader)),
        }
        try:
            await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in copies:
                each.cancel()
            await asyncio.gather(*copies, return_exceptions=True)
            page.close()
            self._leader.close()


async def _copy(source: Duplex, sink: Duplex) -> None:
    while data := await source.read(64 * 1024):
        await sink.write(data)


async def _head_of(duplex: Duplex) -> tuple[int, dict[bytes, bytes]]:
    """The status and the headers of an answer."""
    head = b""
    async with asyncio.timeout(CONNECT_S + ANSWER_S):
        while not head.endswith(b"\r\n\r\n"):
            head += await duplex.read_exactly(1)
            if len(head) > HEAD_BYTES_MAX:
                raise EOFError
    first, *lines = head.split(b"\r\n")
    pairs = (line.partition(b":") for line in lines if b":" in line)
    status = first.split(b" ")[1:2]
    return int(status[0]) if status and status[0].isdigit() else 0, {
        name.strip().lower(): value.strip() for name, _, value in pairs
    }


async def _until_another_leads(is_leader: IsLeader) -> None:
    while is_leader():
        await asyncio.sleep(LOOK_EVERY_S)


async def _while_it_leads(work: Awaitable[T], leader: str, is_leader: IsLeader) -> T:
    """What the leader answers; Unavailable as soon as it is no longer the leader."""
    working = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait((working,), timeout=LOOK_EVERY_S))[0]:
            if not is_leader():
                raise Unavailable(
                    f"the coordinator at {leader} leads no longer", reason="LeaderAway", retry_after_s=1.0
                )
        return working.result()
    finally:
        if working.cancel():
            await asyncio.wait((working,))


async def _pieces(answer: httpx.Response, leader: str, is_leader: IsLeader) -> AsyncGenerator[bytes, None]:
    import httpx

    pieces = answer.aiter_raw()
    try:
        while (piece := await _while_it_leads(anext(pieces, None), leader, is_leader)) is not None:
            yield piece
    except httpx.HTTPError as error:
        raise _unreachable(leader, error) from None
    finally:
        await answer.aclose()


def _told(http_request: HttpRequest, leader: str, raw: list[tuple[bytes, bytes]]) -> tuple[Header, ...]:
    """The headers of an answer as the page is to see them: its cookie is called as ours are."""
    place = urlsplit(leader)
    theirs = cookie_name(place.netloc.encode(), is_secure=place.scheme == "https")
    ours = cookie_name(http_request.headers.get(b"host", b""), is_secure=http_request.is_secure)
    told: list[Header] = []
    for name, value in ((name.lower(), value) for name, value in raw):
        if name == b"set-cookie":
            if value.startswith(f"{theirs}=".encode()):
                told.append((name, renamed_cookie(value, theirs, ours)))
        elif name not in _OF_CONNECTION:
            told.append((name, value))
    return tuple(told)


def _unreachable(leader: str, error: Exception) -> PhalanxError:
    what = str(error) or type(error).__name__
    hint = (
        "coordinator.tls_ca_file names the authority that vouches for coordinators"
        if "CERT" in what.upper()
        else ""
    )
    return Unavailable(
        f"the leader at {leader} cannot be reached: {what}", reason="LeaderAway", hint=hint, retry_after_s=1.0
    )
