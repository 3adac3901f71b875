"""What a client without a token can try: connections, half of everything, and noise."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress

from tests.hostile.target import Counts, Target, asking, holding, pause, together

HALF = b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\nX-Half:"
# The beginning of a TLS handshake: a record of 512 bytes, of which a part comes.
HALF_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64)


async def halves(target: Target, until: float, counts: Counts) -> None:
    """Half a request on each of thousands of connections, renewed when they are closed."""
    await together(*(holding(target, target.port, HALF, until, counts) for _ in range(target.many)))


async def floods(target: Target, until: float, counts: Counts) -> None:
    """Connections that are made and dropped, on both ports."""
    plain = target._replace(tls=False)

    async def flooding(port: int) -> None:
        while time.monotonic() < until:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(5):
                    _, writer = await asyncio.open_connection(plain.host, port)
                counts["connected"] += 1
                writer.transport.abort()

    await together(*(flooding(port) for port in (target.port, target.link_port) for _ in range(50)))


async def noise(target: Target, until: float, counts: Counts) -> None:
    """Any bytes, on both ports."""
    chance = random.Random(2)
    plain = target._replace(tls=False)
    words = [chance.randbytes(chance.choice((1, 40, 4000, 200_000))) for _ in range(50)]
    words += [(0x7FFFF).to_bytes(4, "big") + bytes(500_000), b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 100_000]

    async def noisy(port: int, number: int) -> None:
        while time.monotonic() < until:
            number += 1
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(5):
                    reader, writer = await asyncio.open_connection(plain.host, port)
                    writer.write(words[number % len(words)])
                    await writer.drain()
                    counts["answered" if await reader.read(1000) else "closed"] += 1
                    writer.close()
            await pause(0.001)

    await together(*(noisy(port, 7 * at) for port in (target.port, target.link_port) for at in range(50)))


async def handshakes(target: Target, until: float, counts: Counts) -> None:
    """TLS handshakes that are begun and left, and whole ones where TLS is used."""
    plain = target._replace(tls=False)

    async def whole() -> None:
        while time.monotonic() < until:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(5):
                    _, writer = await asyncio.open_connection(target.host, target.port, ssl=target.context())
                counts["handshakes"] += 1
                writer.transport.abort()

    await together(
        *(
            holding(plain, port, HALF_HELLO, until, counts)
            for port in (target.port, target.link_port)
            for _ in range(target.many // 3)
        ),
        *(whole() for _ in range(20 if target.tls else 0)),
    )


async def tokens(target: Target, until: float, counts: Counts) -> None:
    """Whole requests with unknown tokens, and probes."""
    guess = target._replace(token="phx_nobody")
    requests = [
        guess.request("POST", "/v1/jobs", {"command": ["x"] * 1000}),
        target.request("GET", "/readyz"),
    ]
    await together(*(asking(target, requests, until, counts) for _ in range(200)))


ATTACKS = {"halves": halves, "floods": floods, "noise": noise, "handshakes": handshakes, "tokens": tokens}
