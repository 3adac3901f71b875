"""What is attacked, and raw connections to it. HTTP is written by hand: a real client would be slow, and polite."""

from __future__ import annotations

import asyncio
import collections
import json
import ssl
import time
from collections.abc import Awaitable
from contextlib import suppress
from functools import cache
from typing import NamedTuple

Counts = collections.Counter[str]


class Target(NamedTuple):
    """The two ports of a coordinator, and a token where the attacker has one."""

    port: int
    link_port: int
    token: str = ""
    tls: bool = False
    host: str = "127.0.0.1"
    many: int = 3000  # connections that a stranger holds

    def context(self) -> ssl.SSLContext | None:
        return _anybody() if self.tls else None

    def request(self, method: str, path: str, body: object = None, headers: str = "") -> bytes:
        text = b"" if body is None else json.dumps(body).encode()
        token = f"Authorization: Bearer {self.token}\r\n" if self.token else ""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n{token}{headers}"
            f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
        )
        return head.encode() + text


@cache
def _anybody() -> ssl.SSLContext:
    """TLS without verification. Made once: it costs more than many handshakes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def pause(seconds: float) -> None:
    """Let other coroutines run."""
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, over.set)
    await over.wait()


async def connected(target: Target, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    async with asyncio.timeout(5):
        return await asyncio.open_connection(target.host, port, ssl=target.context())


async def asking(target: Target, requests: list[bytes], until: float, counts: Counts) -> None:
    """One connection that asks again as soon as it was answered."""
    number = 0
    while time.monotonic() < until:
        try:
            reader, writer = await connected(target, target.port)
        except (OSError, TimeoutError):
            counts["no connection"] += 1
            await pause(0.05)
            continue
        with suppress(
            OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError
        ):
            while time.monotonic() < until:
                writer.write(requests[number % len(requests)])
                number += 1
                async with asyncio.timeout(max(0.1, until - time.monotonic())):
                    head = await reader.readuntil(b"\r\n\r\n")
                    await reader.readexactly(_length(head))
                counts[head[9:12].decode()] += 1
        writer.close()


async def holding(target: Target, port: int, words: bytes, until: float, counts: Counts) -> None:
    """One connection that sends some bytes and then nothing, and comes back when it is closed."""
    while time.monotonic() < until:
        try:
            reader, writer = await connected(target, port)
        except (OSError, TimeoutError):
            counts["no connection"] += 1
            await pause(0.1)
            continue
        counts["held"] += 1
        try:
            writer.write(words)
            async with asyncio.timeout(max(0.1, until - time.monotonic())):
                while await reader.read(65_536):
                    pass
        except (OSError, TimeoutError):
            counts["cut"] += 1
        finally:
            writer.transport.abort()
        await pause(0.01)


async def together(*attacks: Awaitable[None]) -> None:
    await asyncio.gather(*attacks)


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line[15:])
    return 0
