"""What a user with a token of role `user` can try: the most expensive requests, as many as possible."""

from __future__ import annotations

import asyncio
import json
import random
import time
from contextlib import suppress
from typing import cast

from tests.hostile.target import Counts, Target, asking, connected, pause, together

WORST = [f"(a|b)*a(a|b){{41}}{number}" for number in range(9)]
ONCE_SLOW = ["a+a+(?:a|a)(?:a|a)x"] * 20
STREAMS = 1000


async def patterns(target: Target, until: float, counts: Counts) -> None:
    """Jobs that fail at once with a message on which their patterns take longest."""
    chance = random.Random(1)
    requests = []
    for number in range(200):
        program = "".join(chance.choice("ab") for _ in range(400))
        rule = {"action": "fail", "patterns": ONCE_SLOW if number % 4 == 0 else WORST}
        spec = {"groups": [{"command": [program]}], "restart": {"rules": [rule]}, "max_retries": 0}
        requests.append(target.request("POST", "/v1/apply", {"specs": [spec]}))
    await together(*(asking(target, requests[at::16], until, counts) for at in range(16)))


async def lists(target: Target, until: float, counts: Counts) -> None:
    """Lists that find nothing, lists of everything, and questions about all nodes."""
    paths = [
        "/v1/jobs?name=zzz&status=Failed",
        "/v1/jobs?limit=1000",
        "/v1/nodes",
        "/v1/queues",
        "/v1/cluster",
    ]
    requests = [target.request("GET", path) for path in paths]
    await together(
        *(asking(target, requests[:1], until, counts) for _ in range(40)),
        *(asking(target, requests[1:], until, counts) for _ in range(10)),
    )


async def hoard(target: Target, until: float, counts: Counts) -> None:
    """Watches and waits on as many connections as there are."""
    submitted = await _submitted(target, {"command": ["/bin/true"], "gpus": 999, "allow_infeasible": True})
    watch = target.request("GET", "/v1/events")
    wait = target.request("GET", f"/v1/jobs/{submitted}/wait?timeout_s=60")
    await together(
        *(_hoarding(target, watch if number % 2 else wait, until, counts) for number in range(STREAMS))
    )


async def bodies(target: Target, until: float, counts: Counts) -> None:
    """The largest jobs that are taken, larger ones, and bodies without end."""
    groups = [{"name": f"g{number}", "command": ["/bin/true"], "gpus": 999} for number in range(900)]
    largest = target.request("POST", "/v1/apply", {"specs": [{"groups": groups}], "allow_infeasible": True})
    env = {"command": ["/bin/true"], "gpus": 999, "allow_infeasible": True, "env": {"DATA": "x" * 1_000_000}}
    await together(
        *(asking(target, [largest], until, counts) for _ in range(16)),
        *(asking(target, [target.request("POST", "/v1/jobs", env)], until, counts) for _ in range(16)),
        *(
            asking(
                target, [target.request("POST", "/v1/plan", {"specs": [{"groups": groups}]})], until, counts
            )
            for _ in range(8)
        ),
        *(_endless(target, until, counts) for _ in range(4)),
    )


async def submits(target: Target, until: float, counts: Counts) -> None:
    """A flood of small jobs that wait for ever."""
    body = {"command": ["/bin/true"], "gpus": 999, "allow_infeasible": True, "array": "1-100"}
    requests = [target.request("POST", "/v1/jobs", body)]
    await together(*(asking(target, requests, until, counts) for _ in range(256)))


async def unread(target: Target, until: float, counts: Counts) -> None:
    """Logs, lists and events that are asked for and never read."""
    task = await _submitted(target, {"shell": "head -c 30000000 /dev/zero | tr '\\0' x; exec sleep 600"})
    paths = [f"/v1/tasks/{task}/logs?follow=true", "/v1/jobs?limit=1000", "/openapi.json"]
    await together(*(_unreading(target, paths[at % 3], until, counts) for at in range(200)))


async def _submitted(target: Target, body: object) -> str:
    """The id of a job submitted by the attacker."""
    for _ in range(50):
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, KeyError, ValueError):
            reader, writer = await connected(target, target.port)
            writer.write(target.request("POST", "/v1/jobs", body, "Connection: close\r\n"))
            async with asyncio.timeout(5):
                answer = await reader.read()
            writer.close()
            return str(json.loads(answer.partition(b"\r\n\r\n")[2])["task_ids"][0])
        await pause(0.1)
    raise RuntimeError("nothing could be submitted")


async def _hoarding(target: Target, request: bytes, until: float, counts: Counts) -> None:
    while time.monotonic() < until:
        with suppress(OSError, TimeoutError):
            reader, writer = await connected(target, target.port)
            writer.write(request)
            async with asyncio.timeout(max(0.1, until - time.monotonic())):
                first = await reader.read(65_536)
                counts[first[9:12].decode(errors="replace")] += 1
                if b" 200 " in first[:20]:
                    while await reader.read(65_536):
                        pass
            writer.close()
        await pause(0.05)


async def _endless(target: Target, until: float, counts: Counts) -> None:
    head = target.request("POST", "/v1/jobs", headers="").replace(
        b"Content-Length: 0", b"Content-Length: 100000000"
    )
    while time.monotonic() < until:
        with suppress(OSError, TimeoutError):
            reader, writer = await connected(target, target.port)
            writer.write(head)
            async with asyncio.timeout(5):
                for _ in range(100):
                    writer.write(b"x" * 1_000_000)
                    await writer.drain()
                counts[(await reader.read(100))[9:12].decode(errors="replace")] += 1
            writer.close()
        await pause(0.01)


async def _unreading(target: Target, path: str, until: float, counts: Counts) -> None:
    while time.monotonic() < until:
        with suppress(OSError, TimeoutError):
            _, writer = await connected(target, target.port)
            writer.write(target.request("GET", path) * 50)
            counts["asked"] += 1
            transport = cast(asyncio.Transport, writer.transport)
            transport.pause_reading()
            await pause(min(20.0, max(0.1, until - time.monotonic())))
            transport.abort()


ATTACKS = {
    "patterns": patterns,
    "lists": lists,
    "hoard": hoard,
    "bodies": bodies,
    "submits": submits,
    "unread": unread,
}
