"""etcd whose members are killed, paused and started again while a coordinator writes: each batch once, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from phalanx.store.etcd.client import EtcdClient
from phalanx.store.etcd.store import EtcdStore
from phalanx.store.protocol import Batch, Candidate, Moved, StoreError
from tests.contract.backends import a_batch, revisions
from tests.support.servers import EtcdCluster, a_prefix, an_etcd_cluster, an_etcd_store

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def members() -> Iterator[EtcdCluster]:
    with an_etcd_cluster() as found:
        yield found


@pytest.fixture
def cluster(members: EtcdCluster) -> EtcdCluster:
    members.start()  # members that a failed test left dead
    return members


class Writer:
    """A coordinator as its loop is: after a write of unknown outcome it reads the log back and continues after that."""

    def __init__(self, store: EtcdStore) -> None:
        self.store = store
        self.epoch = 0
        self.revision = 0
        self.acknowledged: list[int] = []
        self.troubles = 0
        self._tried = asyncio.Event()

    async def open(self) -> None:
        self.epoch = await self.store.open_term()
        await self._reload()

    async def write_until(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            try:
                self.revision += 1
                await self.store.append(self.epoch, a_batch(self.revision, "n1"), [])
                self.acknowledged.append(self.revision)
            except StoreError:
                self.troubles += 1
                self._tried.set()
                await self._reload()
            self._tried.set()

    async def acknowledges(self, count: int) -> None:
        """Wait until so many batches are acknowledged."""
        await self.until(lambda: len(self.acknowledged) > count)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(40.0):
            while not holds():
                self._tried.clear()
                await self._tried.wait()

    async def _reload(self) -> None:
        while True:
            try:
                loaded = await self.store.load()
            except StoreError:
                continue
            self.revision = loaded.batches[-1].revision if loaded.batches else 0
            return

    async def check(self) -> None:
        """Everything acknowledged is there once, in order, with what was written in it."""
        batches = (await self.store.load()).batches
        kept = revisions(batches)
        assert kept == sorted(set(kept))
        assert set(self.acknowledged) <= set(kept)
        assert all(batch.body == b"batch %d" % batch.revision for batch in batches)
        assert revisions(await self.store.story("n1", 0, len(kept) + 1)) == kept


async def a_writer(cluster: EtcdCluster) -> Writer:
    writer = Writer(await an_etcd_store(cluster=cluster))
    await writer.open()
    return writer


async def test_members_are_killed_one_after_another_while_we_write(cluster: EtcdCluster):
    writer = await a_writer(cluster)
    over = asyncio.Event()
    writing = asyncio.create_task(writer.write_until(over.is_set))
    for member in (cluster.leader(), *cluster.members):
        before = len(writer.acknowledged)
        await asyncio.to_thread(member.kill)
        await writer.acknowledges(before + 20)
        await asyncio.to_thread(_started, member)
    over.set()
    await writing
    await writer.check()
    assert len(writer.acknowledged) > 80
    await writer.store.close()


async def test_a_majority_that_dies_stops_us_and_what_was_said_stays_true(cluster: EtcdCluster):
    writer = await a_writer(cluster)
    over = asyncio.Event()
    writing = asyncio.create_task(writer.write_until(over.is_set))
    await writer.acknowledges(20)
    for member in cluster.members:
        await asyncio.to_thread(member.kill)
    await writer.until(lambda: writer.troubles > 0)
    await asyncio.to_thread(cluster.start)
    before = len(writer.acknowledged)
    await writer.acknowledges(before + 20)
    over.set()
    await writing
    await writer.check()
    await writer.store.close()


async def test_the_leader_of_etcd_is_paused_and_we_go_on(cluster: EtcdCluster):
    writer = await a_writer(cluster)
    over = asyncio.Event()
    writing = asyncio.create_task(writer.write_until(over.is_set))
    await writer.acknowledges(20)
    paused = cluster.leader()
    paused.pause()
    try:
        before = len(writer.acknowledged)
        await writer.acknowledges(before + 50)
    finally:
        paused.resume()
    over.set()
    await writing
    await writer.check()
    await writer.store.close()


async def test_an_office_outlives_the_leader_of_etcd(cluster: EtcdCluster):
    prefix = a_prefix()
    one, two = await an_etcd_store(prefix, cluster), await an_etcd_store(prefix, cluster)
    won = await one.elect(Candidate("ada"), 6.0)
    paused = cluster.leader()
    paused.pause()
    try:
        await one.renew(won.epoch, 6.0)
        await one.append(won.epoch, a_batch(1), [])
        assert await two.leader() == won
    finally:
        paused.resume()
    await one.close()
    await two.close()


async def test_readers_at_once_are_not_disturbed_by_the_loss_of_a_member(cluster: EtcdCluster):
    """One of them leaves the member for all; the calls of the others must not look as if *they* were cancelled."""
    client = EtcdClient(cluster.hosts)
    store = await EtcdStore.open(client, a_prefix())
    epoch = await store.open_term()
    await store.append(epoch, Batch(1, b"x" * 100_000, ("n1",)), [])
    failures: list[BaseException] = []

    async def read() -> None:
        for _ in range(60):
            try:
                assert revisions(await store.since(0, 10)) == [1]
            except (StoreError, asyncio.CancelledError) as error:
                failures.append(error)

    reading = [asyncio.create_task(read()) for _ in range(8)]
    held = next(each for each in cluster.members if each.address == client._present().address)
    await asyncio.to_thread(held.kill)
    await asyncio.gather(*reading)
    await asyncio.to_thread(_started, held)
    assert not any(isinstance(error, asyncio.CancelledError) for error in failures)
    assert all(not isinstance(error, Moved) for error in failures)
    assert len(failures) < 10
    await store.close()


def _started(member) -> None:
    member.start()
    member.wait_healthy()
