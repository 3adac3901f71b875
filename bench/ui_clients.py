"""Open pages without browsers: each reads the stream of changes and asks what a real page was seen to ask.

Reads one line of JSON on stdin: the port, and for each page what it asks (`bench/ui_recording.py`) and the second of
the recording it begins with. Each further line is answered with what has been counted so far.
Like the page, a client sends the ETag of the answer that it has, and asks nothing again before it was answered.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from typing import Any

import uvloop

HOST = "127.0.0.1"
STREAM = "/v1/pages/changes"
READ_BYTES = 1 << 18


class Count:
    """What all pages together have asked and been told."""

    def __init__(self) -> None:
        self.messages = 0
        self.stream_bytes = 0
        self.answers: Counter[int] = Counter()  # by status
        self.answer_bytes = 0
        self.waited_s = 0.0
        self.longest_s = 0.0

    def told(self) -> dict[str, Any]:
        found = dict(vars(self), answers=dict(self.answers))
        self.longest_s = 0.0
        return found


class Client:
    """One open page."""

    def __init__(self, port: int, headers: dict[str, str], count: Count) -> None:
        self._port = port
        self._lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._count = count

    async def live(self, recording: dict[str, Any], begins_at_s: float) -> None:
        kinds: dict[str, list[tuple[float, str]]] = {}
        for at_s, kind, path in recording["asked"]:
            kinds.setdefault(kind, []).append((at_s, path))
        period_s = recording["seconds"]
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            for asked in kinds.values():
                group.create_task(self._repeat(asked, period_s, begins_at_s))

    async def _follow(self) -> None:
        reader, writer = await asyncio.open_connection(HOST, self._port, limit=READ_BYTES)
        writer.write(self._request(STREAM))
        last = b""
        while data := await reader.read(READ_BYTES):
            last = data
            self._count.stream_bytes += len(data)
            self._count.messages += data.count(b"event: changes")
        raise RuntimeError(f"the stream of changes has ended: {last[-300:]!r}")

    async def _repeat(self, asked: list[tuple[float, str]], period_s: float, begins_at_s: float) -> None:
        """What was recorded of one kind, at its times, from its beginning again after its end."""
        reader, writer = await asyncio.open_connection(HOST, self._port, limit=READ_BYTES)
        loop, etags = asyncio.get_running_loop(), dict[str, str]()
        base = loop.time() - begins_at_s
        at = 0
        while True:
            rounds, place = divmod(at, len(asked))
            due = base + rounds * period_s + asked[place][0]
            at += 1
            if due < loop.time() - period_s / len(asked):
                continue  # that was before the page was opened, or while it waited for an answer
            await asyncio.sleep(due - loop.time())
            await self._ask(reader, writer, asked[place][1], etags)

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, etags: dict[str, str]
    ) -> None:
        began = asyncio.get_running_loop().time()
        writer.write(self._request(path, etags.get(path, "")))
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status, headers = int(head[9:12]), _headers(head)
        size = int(headers.get("content-length", "0"))
        await reader.readexactly(size)
        took_s = asyncio.get_running_loop().time() - began
        self._count.answers[status] += 1
        self._count.answer_bytes += size
        self._count.waited_s += took_s
        self._count.longest_s = max(self._count.longest_s, took_s)
        if "etag" in headers:
            etags.clear()  # a page has one answer of a kind
            etags[path] = headers["etag"]

    def _request(self, path: str, etag: str = "") -> bytes:
        condition = f"if-none-match: {etag}\r\n" if etag else ""
        return f"GET {path} HTTP/1.1\r\nhost: {HOST}:{self._port}\r\n{self._lines}{condition}\r\n".encode()


def _headers(head: str) -> dict[str, str]:
    lines = head.split("\r\n")[1:]
    return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


async def main() -> None:
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    given = json.loads(await lines.readline())
    count = Count()
    async with asyncio.TaskGroup() as group:
        for page in given["pages"]:
            client = Client(given["port"], page["recording"]["headers"], count)
            group.create_task(client.live(page["recording"], page["begins_at_s"]))
        group.create_task(_report(lines, count))


async def _report(lines: asyncio.StreamReader, count: Count) -> None:
    while await lines.readline():
        print(json.dumps(count.told()), flush=True)
    raise SystemExit(0)


if __name__ == "__main__":
    uvloop.run(main())
