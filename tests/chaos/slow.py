"""Clients that are slow on purpose: they send half a request, or ask for much and do not read the answer.

Run as `python -I -S slow.py COUNTS TOKEN CA_FILE ADDRESS…` beside the honest work; it knows nothing of Phalanx but a
few routes, and the token of one user. CA_FILE is empty where the cluster uses plain HTTP. What it did is counted in
COUNTS. It runs until it is ended.
"""

import asyncio
import json
import os
import ssl
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, cast
from urllib.parse import urlsplit

HALVES, GREETINGS, WATCHERS, FOLLOWERS = 30, 10, 6, 6  # at each coordinator
HOLD_S = 15.0
CONNECT_S = 5.0
PAUSE_S = 0.3
CHATTY_EVERY_S = 8.0
CHATTY = "head -c 4000000 /dev/zero | tr '\\0' x; exec sleep 4"
HALF_GREETING = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(
    64
)  # of TLS: the remainder never comes
_STATUS = b"HTTP/1.1 200"

RunnerEffect = Callable[[], Awaitable[None]]


class Place(NamedTuple):
    """One coordinator."""

    host: str
    port: int
    tls: ssl.SSLContext | None


class Clients:
    """All slow clients, and what they share."""

    def __init__(self, token: str, ca_file: str, addresses: list[str]) -> None:
        context = ssl.create_default_context(cafile=ca_file) if ca_file else None
        sites = [urlsplit(address) for address in addresses]
        self.places = [Place(str(site.hostname), site.port or 0, context) for site in sites]
        self.counts = Counter({"halves": 0, "watches": 0})
        self._token = token
        self._talking = ""  # a task that writes much
        self._submitted = 0

    async def come(self, counts_file: str) -> None:
        async with asyncio.TaskGroup() as group:
            for place in self.places:
                for _ in range(HALVES):
                    group.create_task(self._again(self._half(place)))
                for _ in range(GREETINGS if place.tls else 0):
                    group.create_task(self._again(self._greeting(place)))
                for _ in range(WATCHERS):
                    group.create_task(self._again(self._unread(place, "watches")))
                for _ in range(FOLLOWERS):
                    group.create_task(self._again(self._unread(place, "followers")))
                group.create_task(self._again(self._submit(place), CHATTY_EVERY_S))
            group.create_task(self._tell(counts_file))

    async def _again(self, effect: RunnerEffect, pause_s: float = PAUSE_S) -> None:
        while True:
            with suppress(OSError, TimeoutError, EOFError, ValueError, KeyError):
                await effect()
            await _pause(pause_s)

    def _half(self, place: Place) -> RunnerEffect:
        async def effect() -> None:
            reader, writer = await _connected(place)
            writer.write(b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nX-Half:")
            self.counts["halves"] += 1
            try:
                async with asyncio.timeout(4 * HOLD_S):
                    while await reader.read(4096):
                        pass
                self.counts["halves that were cut"] += 1
            finally:
                writer.transport.abort()

        return effect

    def _greeting(self, place: Place) -> RunnerEffect:
        async def effect() -> None:
            reader, writer = await _connected(place._replace(tls=None))
            writer.write(HALF_GREETING)
            self.counts["greetings"] += 1
            try:
                async with asyncio.timeout(4 * HOLD_S):
                    await reader.read()
            finally:
                writer.transport.abort()

        return effect

    def _unread(self, place: Place, what: str) -> RunnerEffect:
        async def effect() -> None:
            path = "/v1/events?after=0"
            if what == "followers":
                if not self._talking:
                    return
                path = f"/v1/tasks/{self._talking}/logs?follow=true"
            reader, writer = await _connected(place)
            transport = cast(asyncio.Transport, writer.transport)
            writer.write(self._request(place, "GET", path))
            try:
                async with asyncio.timeout(CONNECT_S):
                    status = (await reader.readexactly(len(_STATUS)))[-3:]
                if status == b"200":
                    self.counts[what] += 1
                    transport.pause_reading()
                    await _pause(HOLD_S)
            finally:
                transport.abort()

        return effect

    def _submit(self, place: Place) -> RunnerEffect:
        async def effect() -> None:
            reader, writer = await _connected(place)
            self._submitted += 1
            name = f"chatty-{os.getpid()}-{self._submitted}"
            body = json.dumps({"shell": CHATTY, "name": name, "max_retries": 0}).encode()
            writer.write(self._request(place, "POST", "/v1/jobs", body))
            try:
                async with asyncio.timeout(CONNECT_S):
                    answer = await reader.read()
                self._talking = str(json.loads(answer.partition(b"\r\n\r\n")[2])["task_ids"][0])
                self.counts["chatty tasks"] += 1
            finally:
                writer.transport.abort()

        return effect

    def _request(self, place: Place, method: str, path: str, body: bytes = b"") -> bytes:
        host = f"Host: {place.host}:{place.port}"
        lines = (f"{method} {path} HTTP/1.1", host, f"Authorization: Bearer {self._token}")
        rest = ("Content-Type: application/json", f"Content-Length: {len(body)}", "Connection: close")
        return "\r\n".join((*lines, *rest, "", "")).encode() + body

    async def _tell(self, counts_file: str) -> None:
        while True:
            draft = Path(f"{counts_file}.new")
            draft.write_text(json.dumps(self.counts))
            draft.replace(counts_file)
            await _pause(1.0)


async def _pause(seconds: float) -> None:
    """Let time pass: slowness is what they are for."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()


async def _connected(place: Place) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    async with asyncio.timeout(CONNECT_S):
        return await asyncio.open_connection(place.host, place.port, ssl=place.tls, limit=1024)


if __name__ == "__main__":
    _, counts_file, token, ca_file, *addresses = sys.argv
    asyncio.run(Clients(token, ca_file, addresses).come(counts_file))
