"""Calls over HTTP with httpx, for the async client. One pool of connections is kept for all of them."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from phalanx.api.calls import Call
from phalanx.api.exchange import AsyncAnswer, dropped, timed_out, unreachable
from phalanx.errors import BadRequest, Unavailable

CONNECT_S = 5.0


class HttpxExchange:
    """Carries calls to the coordinator at `address`, such as http://127.0.0.1:7433."""

    def __init__(self, address: str) -> None:
        self._address = address
        if not address.startswith(("http://", "https://")):
            raise BadRequest(f"address {address!r} is not one: write http://HOST:PORT")
        # Without TLS no certificates are loaded, which would take longer than many a call. No proxy of the
        # environment gets to see a token.
        verify = ssl.create_default_context() if address.startswith("https://") else False
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=32)
        self._client = httpx.AsyncClient(base_url=address, verify=verify, trust_env=False, limits=limits)

    async def send(self, call: Call[Any], token: str) -> AsyncAnswer:
        """Carry a call; one whose repetition does no harm is carried again if its connection was cut."""
        try:
            return await self._ask(call, token)
        except Unavailable as error:
            if error.reason != "Dropped" or not call.repeatable:
                raise
        return await self._ask(call, token)

    async def close(self) -> None:
        await self._client.aclose()

    async def _ask(self, call: Call[Any], token: str) -> AsyncAnswer:
        timeout = httpx.Timeout(call.timeout_s, connect=CONNECT_S)
        request = self._client.build_request(
            call.method, call.target, content=call.body, headers=call.headers_with(token), timeout=timeout
        )
        with _translated(self._address, call):
            response = await self._client.send(request, stream=call.streams)
            return HttpxAnswer(response, self._address, call)


class HttpxAnswer:
    """An answer of httpx: read to its end already, unless it is a stream."""

    def __init__(self, response: httpx.Response, address: str, call: Call[Any]) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._address = address
        self._call = call

    async def pieces(self) -> AsyncIterator[bytes]:
        with _translated(self._address, self._call):
            async for piece in self._response.aiter_bytes():
                yield piece

    async def aclose(self) -> None:
        await self._response.aclose()


@contextmanager
def _translated(address: str, call: Call[Any]) -> Iterator[None]:
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise unreachable(address, error) from None
    except httpx.TimeoutException:
        raise timed_out(address, call) from None
    except httpx.TransportError as error:
        raise dropped(address, str(error) or type(error).__name__) from None
