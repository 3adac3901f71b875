"""Calls over HTTP with httpx, for the async client. One pool of connections is kept for all of them.

Which of several addresses a call goes to is decided in `leader.py`, as for the client that waits.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Any

import httpx

from phalanx.api.schema.documents import read_problem
from phalanx.client.calls import Call
from phalanx.client.http import AsyncAnswer, dropped, not_http, read_whole, timed_out, unreachable
from phalanx.client.leader import PATIENCE_S, KnownLeader, LeaderSearch, safe_addresses
from phalanx.clock import SystemClock
from phalanx.errors import PhalanxError, Unavailable


class HttpxTransport:
    """Carries calls to the coordinator that leads, at one of `addresses`, such as http://127.0.0.1:7433."""

    def __init__(
        self,
        addresses: str | Sequence[str],
        tls: ssl.SSLContext | None = None,
        *,
        vouched: bool = False,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`tls` serves all https addresses; with `vouched` it believes none but our own authority."""
        self._known_leader = KnownLeader(safe_addresses(addresses), vouched=vouched)
        self._patience_s = patience_s
        self._clock = SystemClock()
        # Without TLS no certificates are loaded, which would take longer than many a call. No proxy of the
        # environment gets to see a token.
        secure = any(each.startswith("https://") for each in self._known_leader.given)
        verify = tls or (ssl.create_default_context() if secure else False)
        self._tls = tls
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=32)
        self._client = httpx.AsyncClient(verify=verify, trust_env=False, limits=limits)

    async def send(self, call: Call[Any], token: str) -> AsyncAnswer:
        """Carry a call; one whose repetition does no harm is carried again if its connection was cut."""
        search = LeaderSearch(self._known_leader, call, self._patience_s)
        while True:
            try:
                return await self._try(search, call, token)
            except PhalanxError as error:
                pause_s = search.failed(error, self._clock.monotonic())
            await asyncio.sleep(pause_s)

    def leads_at(self) -> tuple[str, ssl.SSLContext | None]:
        """Where the leader was last found, and how to speak TLS there."""
        return self._known_leader.leader, self._tls

    async def close(self) -> None:
        await self._client.aclose()

    async def _try(self, search: LeaderSearch, call: Call[Any], token: str) -> AsyncAnswer:
        answer = await self._ask(search, call, call.headers_with(token, search.headers))
        if answer.status < 400:
            search.found()
            return answer
        async with aclosing(answer):
            body = await read_whole(answer)
        problem = read_problem(answer.status, body, answer.headers.get("retry-after"))
        if search.doubts(problem):
            raise problem
        search.found()
        return AsyncWholeAnswer(answer.status, answer.headers, body)

    async def _ask(self, search: LeaderSearch, call: Call[Any], headers: Mapping[str, str]) -> HttpxAnswer:
        within_s = search.silence_s if call.streams else search.answer_s
        timeout = httpx.Timeout(within_s, connect=search.connect_s)
        request = self._client.build_request(
            call.method, search.address + call.target, content=call.body, headers=headers, timeout=timeout
        )
        with _translated(search.address, search.answer_s):
            async with asyncio.timeout(search.answer_s if call.streams else None):
                response = await self._client.send(request, stream=call.streams)
            return HttpxAnswer(response, search.address, self._known_leader, within_s)


class HttpxAnswer:
    """An answer of httpx: read to its end already, unless it is a stream."""

    def __init__(
        self, response: httpx.Response, address: str, known_leader: KnownLeader, timeout_s: float | None
    ) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._address = address
        self._known_leader = known_leader
        self._timeout_s = timeout_s

    async def pieces(self) -> AsyncIterator[bytes]:
        try:
            with _translated(self._address, self._timeout_s):
                async for piece in self._response.aiter_bytes():
                    yield piece
        except Unavailable as error:
            if error.reason == "Dropped":
                self._known_leader.lost(self._address)  # resuming it tries another address first
            raise

    async def aclose(self) -> None:
        await self._response.aclose()


class AsyncWholeAnswer:
    """An answer that has been read to its end."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self._body = body

    async def pieces(self) -> AsyncIterator[bytes]:
        yield self._body

    async def aclose(self) -> None:
        pass


@contextmanager
def _translated(address: str, timeout_s: float | None) -> Iterator[None]:
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise unreachable(address, error) from None
    except (httpx.TimeoutException, TimeoutError):
        raise timed_out(address, timeout_s) from None
    except httpx.TransportError as error:
        if "illegal status line" in str(error):
            raise not_http(address) from None
        raise dropped(address, error) from None
