"""The HTTP protocol of the server with limits that uvicorn does not set: for connections, heads and patience.

A stranger who shows no token must not be able to fill the memory with headers, or to hold connections open by
saying nothing. Give it to uvicorn as `http=BoundedProtocol`. How long a body may be, `api/visit.py` knows.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from phalanx.api.problems import MEDIA_TYPE, retry_after_s, spell_problem
from phalanx.errors import BadRequest, PhalanxError, TooLarge, TooMany

PHRASES = {400: b"Bad Request", 413: b"Content Too Large", 429: b"Too Many Requests"}


class BoundedProtocol(HttpToolsProtocol):
    """One connection. What is wrong before there is a request is told as problem+json as well."""

    connections_max: ClassVar[int] = 4096
    head_bytes_max: ClassVar[int] = 64 * 1024
    request_s_max: ClassVar[float] = (
        30.0  # for a request to come whole, the first counted from the connection
    )

    _head_bytes = 0
    _in_head = False
    _in_request = False
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.connections_max:
            self._refuse(TooMany(f"all {self.connections_max} connections are taken", retry_after_s=1))
        else:
            self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # Most requests come in one piece, and then there is nothing to count and nothing to wait for.
        if self._in_request and not self.transport.is_closing():
            self._count_head(len(data))
            self._start_timer()

    def on_message_begin(self) -> None:
        self._in_request = self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head, self._head_bytes = False, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_request = False
        self._stop_timer()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(BadRequest(msg, reason="InvalidHttp"))

    def _count_head(self, received: int) -> None:
        self._head_bytes += received if self._in_head else 0
        if self._head_bytes > self.head_bytes_max:
            self._refuse(TooLarge(f"the headers are over the limit of {self.head_bytes_max} bytes"))

    def _refuse(self, error: PhalanxError) -> None:
        body = spell_problem(error)
        after_s = retry_after_s(error)
        head = [
            b"HTTP/1.1 %d %b" % (error.status, PHRASES[error.status]),
            b"content-type: " + MEDIA_TYPE.encode(),
            b"content-length: %d" % len(body),
            *([] if after_s is None else [b"retry-after: %d" % after_s]),
            b"connection: close",
        ]
        self.transport.write(b"\r\n".join(head) + b"\r\n\r\n" + body)
        self.transport.close()

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.request_s_max, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
