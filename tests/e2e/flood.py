"""A flood, as a separate process: many connections that submit as fast as they are answered, or follow a log.

    python -m tests.e2e.flood HOST PORT TOKEN CONNECTIONS SECONDS [TASK]

Its last line has the number of answers of each status, or for a log the number of bytes. HTTP is written by hand,
because a client that checks everything would be the bottleneck instead of the coordinator.
"""

from __future__ import annotations

import asyncio
import collections
import json
import sys
import time

from tests.support.waiting import pause_task


class Pump(asyncio.Protocol):
    """One connection."""

    def __init__(self, request: bytes, until: float, counts: collections.Counter[int]) -> None:
        self._request = request
        self._until = until
        self._counts = counts
        self._answer = b""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, blank, body = self._answer.partition(b"\r\n\r\n")
        if not blank or len(body) < _length(head):
            return
        self._counts[int(head[9:12])] += 1
        self._answer = b""
        if time.monotonic() < self._until and b"connection: close" not in head.lower():
            self._transport.write(self._request)
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line[15:])
    return 0


def spelled(host: str, port: int, token: str, body: dict[str, object]) -> bytes:
    text = json.dumps(body).encode()
    head = (
        f"POST /v1/jobs HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    )
    return head.encode() + text


class Follower(asyncio.Protocol):
    """One connection that reads a log as fast as it comes."""

    def __init__(self, request: bytes, counts: collections.Counter[int]) -> None:
        self._request = request
        self._counts = counts

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._counts[200] += len(data)


async def submits(host: str, port: int, token: str, connections: int, seconds: float) -> dict[int, int]:
    counts: collections.Counter[int] = collections.Counter()
    until = time.monotonic() + seconds
    request = spelled(host, port, token, {"command": ["/bin/true"], "allow_infeasible": True})
    loop = asyncio.get_running_loop()

    async def pump() -> None:
        while time.monotonic() < until:
            try:
                _, way = await loop.create_connection(lambda: Pump(request, until, counts), host, port)
            except OSError:
                await pause_task(0.05)
                continue
            await way.ended

    await asyncio.gather(*(pump() for _ in range(connections)))
    return dict(counts)


async def follows(
    host: str, port: int, token: str, connections: int, seconds: float, task: str
) -> dict[int, int]:
    counts: collections.Counter[int] = collections.Counter()
    request = (
        f"GET /v1/tasks/{task}/logs?follow=true HTTP/1.1\r\nHost: {host}:{port}\r\n"
        f"Authorization: Bearer {token}\r\n\r\n"
    ).encode()
    loop = asyncio.get_running_loop()
    ways = [
        await loop.create_connection(lambda: Follower(request, counts), host, port)
        for _ in range(connections)
    ]
    await pause_task(seconds)
    for transport, _ in ways:
        transport.close()
    return dict(counts)


if __name__ == "__main__":
    host, port, token, connections, seconds, *task = sys.argv[1:]
    where = host, int(port), token, int(connections), float(seconds)
    sys.stdout.write(json.dumps(asyncio.run(follows(*where, *task) if task else submits(*where))))
