"""Faults between a store and its server: a proxy that loses answers, and requests that arrive late."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import Any

from phalanx.store.etcd.kv import Compare, Delete, EtcdUnavailable, Get, Kv, Outcome, Put, RangeReply


class Proxy:
    """A TCP proxy before one member. While `swallows`, requests go through and answers do not."""

    def __init__(self, address: str) -> None:
        self._host, _, self._port = address.rpartition(":")
        self._tasks: set[asyncio.Task[None]] = set()
        self.swallows = False
        self.swallowed = asyncio.Event()
        self.address = ""

    @asynccontextmanager
    async def running(self):
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._host, int(self._port))
        for source, sink, is_answer in ((reader, back, False), (there, writer, True)):
            task = asyncio.ensure_future(self._pump(source, sink, is_answer))
            self._tasks.add(task)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, is_answer: bool) -> None:
        try:
            while chunk := await source.read(65536):
                if is_answer and self.swallows:
                    self.swallowed.set()
                    continue
                sink.write(chunk)
                await sink.drain()
        except OSError:
            pass
        finally:
            sink.close()


class LateRequests:
    """A Kv with delayed requests. Transactions that put a key that `holds` names are kept, and delivered on demand;
    for those that `loses` names only the answer is lost. The sender gets a timeout.
    """

    def __init__(self, kv: Kv) -> None:
        self._kv = kv
        self._held: list[tuple[list[Compare], list[Put | Delete | Get], list[Get] | None]] = []
        self.holds = b""
        self.loses = b""
        self.lost = 0

    async def txn(
        self, compares: list[Compare], then: list[Put | Delete | Get], otherwise: list[Get] | None = None
    ) -> Outcome:
        keys = [each.key for each in then if isinstance(each, Put)]
        if self.holds in keys:
            self._held.append((compares, then, otherwise))
            raise EtcdUnavailable("no answer; it comes later")
        outcome = await self._kv.txn(compares, then, otherwise)
        if self.loses in keys:
            self.loses, self.lost = b"", self.lost + 1
            raise EtcdUnavailable("the answer was lost")
        return outcome

    async def deliver(self) -> list[bool]:
        """Deliver everything that was held, now; returns which of it took effect."""
        held, self._held, self.holds = self._held, [], b""
        return [(await self._kv.txn(*each)).succeeded for each in held]

    async def range(self, key: bytes, end: bytes = b"", **how: Any) -> RangeReply:
        return await self._kv.range(key, end, **how)

    async def grant(self, ttl_s: int) -> int:
        return await self._kv.grant(ttl_s)

    async def keep_alive(self, lease: int) -> int:
        return await self._kv.keep_alive(lease)

    async def revoke(self, lease: int) -> None:
        await self._kv.revoke(lease)

    async def close(self) -> None:
        await self._kv.close()
