"""Appending to each store, against what its engine can write of the same bytes in the same run.

    python bench/stores.py [--rounds 7] [--batches 150]

A batch is what a coordinator really writes when 200 short tasks end at once and 200 others take their places. Rounds
are interleaved (the engine alone, the store, and again), ratios are taken within a round, and every write is on a disk
before it is answered: etcd by three members, SQLite with synchronous=FULL, Redis with appendfsync always. One write
follows the other, as a coordinator's do.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import grpc
from aetcd.rpc import rpc_pb2, rpc_pb2_grpc

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # so that this file can be run by its name

from bench.figures import Chapter, Figure  # noqa: E402
from bench.machine import filesystem  # noqa: E402
from bench.session import Session  # noqa: E402
from phalanx.core.cluster.inputs import Submit, Tell  # noqa: E402
from phalanx.core.model.orders import (  # noqa: E402
    Ended,
    Exit,
    Start,
    Started,
    Why,
)
from phalanx.store.address import StoreAccess, StoreAddress  # noqa: E402
from phalanx.store.etcd.client import EtcdClient  # noqa: E402
from phalanx.store.etcd.store import EtcdStore  # noqa: E402
from phalanx.store.protocol import Batch, Store  # noqa: E402
from phalanx.store.redis.server import client_of  # noqa: E402
from phalanx.store.redis.store import open_redis  # noqa: E402
from phalanx.store.sqlite.store import SqliteStore  # noqa: E402
from tests.support.builders import Cluster, a_job  # noqa: E402
from tests.support.servers import a_prefix, a_redis, an_etcd_cluster  # noqa: E402

COMPLETIONS = 200  # in one batch
ETCD_SHARE, SQLITE_PER_S = 0.60, 5000.0


class Rival(NamedTuple):
    """A store, and its engine writing the same bytes."""

    name: str
    store: Store
    engine: Callable[[int, bytes], Awaitable[None]]


class Seen(NamedTuple):
    """One store over all rounds: bytes a second of the engine and of the store, and completions a second."""

    name: str
    engine: list[float]
    store: list[float]
    completions: list[float]

    @property
    def shares(self) -> list[float]:
        return [ours / theirs for ours, theirs in zip(self.store, self.engine, strict=True)]


def batches(count: int, *, arrays: bool) -> list[Batch]:
    """What a coordinator writes while a node with 200 cores runs short tasks, of one array or of a job each."""
    cluster = Cluster()
    cluster.add_node("n1", cores=COMPLETIONS, memory=1 << 40)
    tasks = COMPLETIONS * (count + 4)
    jobs = [a_job(array=f"1-{tasks}", cores=1)] if arrays else [a_job(cores=1) for _ in range(tasks)]
    cluster.give(*[Submit(job) for job in jobs])
    found: list[Batch] = []
    for _ in range(count):
        # Every attempt that was ordered to start has started and ended since.
        starts = [order.key for _, order in cluster.orders if isinstance(order, Start)][:COMPLETIONS]
        cluster.orders, cluster.now = cluster.orders[COMPLETIONS:], cluster.now + 1.0
        ended = Exit(Why.NONE, 0, cluster.now - 0.1, cluster.now)
        lease = cluster.lease("n1")
        cluster.give(
            *[
                Tell("n1", "a", 1, report, lease)
                for key in starts
                for report in (Started(key, cluster.now), Ended(key, ended))
            ]
        )
        batch = cluster.turns[-1].batch()
        assert batch is not None
        assert len(starts) == COMPLETIONS
        found.append(batch)
    return found


@asynccontextmanager
async def rivals(folder: Path) -> AsyncIterator[list[Rival]]:
    """Every durable store and its engine, on separate servers."""
    tempfile.tempdir = str(folder)  # where the servers keep their data
    with an_etcd_cluster() as etcd, a_redis() as redis:
        place = StoreAddress("redis", hosts=(redis.address,), prefix=a_prefix())
        raw = client_of(place, StoreAccess())
        db = sqlite3.connect(folder / "raw.db", isolation_level=None)
        for line in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", "CREATE TABLE raw (id, body)"):
            db.execute(line)

        channel = grpc.aio.insecure_channel(etcd.hosts[0])
        kv = rpc_pb2_grpc.KVStub(channel)

        async def put(number: int, body: bytes) -> None:
            await kv.Put(rpc_pb2.PutRequest(key=b"raw/%020d" % number, value=body))

        async def insert(number: int, body: bytes) -> None:
            db.execute("INSERT INTO raw VALUES (?, ?)", (number, body))

        async def set_key(number: int, body: bytes) -> None:
            await raw.set(f"raw:{number}", body)

        found = [
            Rival("etcd", await EtcdStore.open(EtcdClient(etcd.hosts), a_prefix()), put),
            Rival("SQLite", SqliteStore(folder / "store.db"), insert),
            Rival("Redis", await open_redis(place, StoreAccess()), set_key),
        ]
        yield found
        for each in found:
            await each.store.close()
        await channel.close()
        await raw.aclose()
        db.close()


async def compare(folder: Path, work: list[Batch], rounds: int, count: int) -> list[Seen]:
    async with rivals(folder) as found:
        seen = [Seen(each.name, [], [], []) for each in found]
        epochs = [await each.store.open_term() for each in found]
        at = 0
        for turn in range(rounds + 1):
            numbered = [Batch(at + n + 1, *_rest(work[n % len(work)])) for n in range(count)]
            size = sum(len(batch.body) for batch in numbered)
            at += count
            for rival, told, epoch in zip(found, seen, epochs, strict=True):
                engine_s, store_s = await _pair(rival, epoch, numbered, engine_first=turn % 2 == 0)
                if turn == 0:
                    continue  # The first writes pay for connections and files.
                told.engine.append(size / engine_s)
                told.store.append(size / store_s)
                told.completions.append(count * COMPLETIONS / store_s)
        return seen


def _rest(batch: Batch) -> tuple[bytes, tuple[str, ...]]:
    return batch.body, batch.subjects


async def _pair(
    rival: Rival, epoch: int, numbered: list[Batch], *, engine_first: bool
) -> tuple[float, float]:
    """Seconds of the engine and of the store for the same batches."""

    async def engine(batch: Batch) -> None:
        await rival.engine(batch.revision, batch.body)

    async def store(batch: Batch) -> None:
        await rival.store.append(epoch, batch, [])

    if engine_first:
        return await _timed(numbered, engine), await _timed(numbered, store)
    store_s = await _timed(numbered, store)
    return await _timed(numbered, engine), store_s


async def _timed(numbered: list[Batch], write: Callable[[Batch], Awaitable[None]]) -> float:
    began = time.perf_counter()
    for batch in numbered:
        await write(batch)
    return time.perf_counter() - began


def measure(session: Session) -> Chapter:
    """The cell of `make bench`."""
    rounds, count = session.size(7, 1), session.size(150, 10)
    work = batches(10, arrays=True)
    seen = asyncio.run(compare(session.place("stores"), work, rounds, count))
    chapter = Chapter(f"Stores: batches of {COMPLETIONS} task completions, {rounds} rounds of {count}")
    for each in seen:
        share = Figure(f"{each.name}: bytes/s against its engine alone", "", each.shares)
        rate = Figure(f"{each.name}: durable completions", "/s", each.completions)
        share.target = ETCD_SHARE if each.name == "etcd" else None
        rate.target = SQLITE_PER_S if each.name == "SQLite" else None
        chapter.figures += [share, rate]
    return chapter


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=150)
    parser.add_argument("--folder", type=Path, default=ROOT.parent, help="a folder on a real disk")
    options = parser.parse_args()
    if filesystem(options.folder) in ("tmpfs", "ramfs", "overlay"):
        print(f"{options.folder} is not a disk: give one with --folder")
        return 2
    for kind, arrays in (("one array", True), ("a job for each task", False)):
        work = batches(10, arrays=arrays)
        size = sum(len(batch.body) for batch in work) / len(work)
        print(
            f"{kind}: {COMPLETIONS} completions, {size:,.0f} bytes, {len(work[0].subjects)} subjects a batch"
        )
        with tempfile.TemporaryDirectory(prefix="phalanx-stores-", dir=options.folder) as folder:
            for each in asyncio.run(compare(Path(folder), work, options.rounds, options.batches)):
                rates = f"{median(each.engine) / 1e6:6.1f}", f"{median(each.store) / 1e6:6.1f}"
                print(
                    f"  {each.name:8} engine {rates[0]} MB/s   store {rates[1]} MB/s"
                    f"   share {median(each.shares):4.0%}   {median(each.completions):9,.0f} completions/s"
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
