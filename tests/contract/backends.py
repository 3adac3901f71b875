"""A backend of each kind of store: what several coordinators share, and what can be done to it from outside.

The real servers are those of `tests/support/servers.py`, each test under its own prefix. A lease that the store counts
by our clock ends at once; one that a server counts takes its real time.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from phalanx.store.address import StoreAccess, StoreAddress
from phalanx.store.etcd.keys import EtcdKeys
from phalanx.store.etcd.kv import Put
from phalanx.store.memory import Memory, MemoryStore
from phalanx.store.open import open_at
from phalanx.store.protocol import Batch, Loaded, Store
from phalanx.store.sqlite.store import SqliteStore
from tests.contract.lines import Way
from tests.support.servers import a_prefix, shared_etcd, shared_redis
from tests.support.waiting import pause_task

KINDS = ("memory", "sqlite", "redis", "etcd")
WAYS: tuple[Way, ...] = ("frames", "grpc")
LEASE_S = 2.0  # as short as etcd allows


class Backend:
    """One backend. Each store opened on it stands for one coordinator."""

    def __init__(self, place: StoreAddress) -> None:
        self.place = place
        self.way: Way = "pipe"  # how runners reach coordinators
        self._stores: list[Store] = []

    async def store(self) -> Store:
        opened = await self._open()
        self._stores.append(opened)
        return opened

    async def close(self) -> None:
        for each in self._stores:
            await each.close()

    async def lease_over(self, store: Store) -> None:
        """Wait until the leadership is vacant because it was not renewed."""
        end = time.monotonic() + 10 * LEASE_S
        while await store.leader() is not None:
            assert time.monotonic() < end, "the lease never ended"
            await pause_task(0.05)

    async def flip(self, source: str, key: str) -> None:
        """Change one bit of a record behind the store's back."""
        raise NotImplementedError

    async def set_schema(self, schema: int) -> None:
        raise NotImplementedError

    async def _open(self) -> Store:
        return await open_at(self.place, StoreAccess())


class MemoryBackend(Backend):
    def __init__(self) -> None:
        super().__init__(StoreAddress("memory"))
        self._memory, self._time = Memory(), 0.0

    async def _open(self) -> Store:
        return MemoryStore(self._memory, lambda: self._time)

    async def lease_over(self, store: Store) -> None:
        self._time += LEASE_S + 0.001


class SqliteBackend(Backend):
    def __init__(self, path: Path) -> None:
        super().__init__(StoreAddress("sqlite", path))
        self.path, self._time = path, 1e9

    async def _open(self) -> Store:
        return SqliteStore(self.path, now=lambda: self._time)

    async def lease_over(self, store: Store) -> None:
        self._time += LEASE_S + 0.001

    async def flip(self, source: str, key: str) -> None:
        name = "job" if source == "history" else "revision"
        with sqlite3.connect(self.path) as db:
            (body,) = db.execute(f"SELECT body FROM {source} WHERE {name} = ?", (key,)).fetchone()
            db.execute(f"UPDATE {source} SET body = ? WHERE {name} = ?", (flipped(body), key))
        db.close()

    async def set_schema(self, schema: int) -> None:
        with sqlite3.connect(self.path) as db:
            db.execute("UPDATE meta SET value = ? WHERE key = 'schema'", (schema,))
        db.close()


class RedisBackend(Backend):
    def __init__(self) -> None:
        super().__init__(StoreAddress("redis", hosts=(shared_redis().address,), prefix=a_prefix()))

    async def flip(self, source: str, key: str) -> None:
        from phalanx.store.redis.server import client_of

        name = f"{{{self.place.prefix}}}:{'images' if source == 'image' else source}"
        async with client_of(self.place, StoreAccess()) as client:
            record = await client.hget(name, key)
            assert isinstance(record, bytes)
            await client.hset(name, key, flipped(record))

    async def set_schema(self, schema: int) -> None:
        from phalanx.store.redis.server import client_of

        async with client_of(self.place, StoreAccess()) as client:
            await client.hset(f"{{{self.place.prefix}}}:meta", "schema", str(schema))


class EtcdBackend(Backend):
    def __init__(self) -> None:
        super().__init__(StoreAddress("etcd", hosts=shared_etcd().hosts, prefix=a_prefix()))

    async def flip(self, source: str, key: str) -> None:
        keys = EtcdKeys(self.place.prefix)
        name = {"log": keys.log, "image": keys.image}.get(source, lambda _: keys.history(key))
        async with self._client() as client:
            at = name(int(key) if key.isdecimal() else 0)
            (entry,) = (await client.range(at)).entries
            await client.txn([], [Put(at, flipped(entry.value))])

    async def set_schema(self, schema: int) -> None:
        async with self._client() as client:
            await client.txn([], [Put(EtcdKeys(self.place.prefix).schema, b"%d" % schema)])

    @asynccontextmanager
    async def _client(self) -> AsyncIterator:
        from phalanx.store.etcd.client import EtcdClient

        client = EtcdClient(self.place.hosts)
        try:
            yield client
        finally:
            await client.close()


def a_backend(kind: str, folder: Path) -> Backend:
    """A store of a kind; `grpc` and `frames` are the memory, with runners that dial a real port."""
    match kind:
        case "frames" | "grpc":
            found = MemoryBackend()
            found.way = kind
            return found
        case "memory":
            return MemoryBackend()
        case "sqlite":
            return SqliteBackend(folder / "store.db")
        case "redis":
            return RedisBackend()
    return EtcdBackend()


def flipped(body: bytes) -> bytes:
    return body[:-1] + bytes((body[-1] ^ 1,))


def a_batch(revision: int, *subjects: str) -> Batch:
    return Batch(revision, b"batch %d" % revision, subjects)


def bodies(loaded: Loaded) -> list[bytes]:
    return [batch.body for batch in loaded.batches]


def revisions(batches: list[Batch]) -> list[int]:
    return [batch.revision for batch in batches]
