"""What only etcd owes: its limits, its lost answers, and stories without a key for each of them. Three real members."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aetcd.rpc import rpc_pb2 as rpc  # type: ignore[import-untyped]

from phalanx.store.etcd import stories
from phalanx.store.etcd.client import EtcdClient
from phalanx.store.etcd.keys import EtcdKeys, after_prefix
from phalanx.store.etcd.kv import Delete, Put, RangeReply
from phalanx.store.etcd.store import EtcdStore
from phalanx.store.protocol import Batch, Candidate, History, Leader, Moved, StoreError
from tests.contract.backends import a_batch, bodies, revisions
from tests.contract.faulty_connections import LateRequests, Proxy
from tests.support.servers import a_prefix, an_etcd_store, shared_etcd

pytestmark = pytest.mark.anyio
ADA = Candidate("ada", "https://ada:7433", "ada:7434")
BOB = Candidate("bob")


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


class Etcd:
    """One prefix of the shared cluster, and what was opened on it."""

    def __init__(self) -> None:
        self.prefix = a_prefix()
        self.keys = EtcdKeys(self.prefix)
        self.client = EtcdClient(shared_etcd().hosts)
        self._stores: list[EtcdStore] = []

    async def store(self, *hosts: str) -> EtcdStore:
        """Another coordinator; `hosts` are asked before the members themselves."""
        opened = await EtcdStore.open(EtcdClient((*hosts, *shared_etcd().hosts)), self.prefix)
        self._stores.append(opened)
        return opened

    async def names(self, kind: str) -> list[str]:
        """The keys of one kind that are there."""
        begin = f"{self.prefix}/{kind}".encode()
        found = await self.client.range(begin, after_prefix(begin), keys_only=True)
        return [entry.key.decode(errors="replace") for entry in found.entries]

    async def close(self) -> None:
        await self.client.close()
        for each in self._stores:
            await each.close()


@pytest.fixture
async def etcd() -> AsyncIterator[Etcd]:
    found = Etcd()
    yield found
    await found.close()


async def test_a_batch_larger_than_a_request_is_whole_or_not_there(etcd: Etcd):
    store = await etcd.store()
    epoch = await store.open_term()
    body = random.Random(1).randbytes(3 << 20)
    await store.append(epoch, Batch(1, body, ("j1",)), [])
    assert bodies(await store.load()) == [body]
    assert len(await etcd.names("part/")) == 4
    await etcd.client.txn([], [Delete((await etcd.names("part/"))[2].encode())])
    assert (await store.load()).batches == [Batch(1, b"", is_damaged=True)]
    await store.set_aside(epoch, [1])
    assert (await store.load()).batches == []
    assert await etcd.names("quarantine/") == [f"{etcd.prefix}/quarantine/log/{1:020}"]
    await store.append(epoch, a_batch(2), [])


async def test_what_repeats_itself_takes_little_room(etcd: Etcd):
    store = await etcd.store()
    epoch = await store.open_term()
    body = b"attempt 1 of task 17 ended; " * 100_000
    await store.append(epoch, Batch(1, body), [History("j1", body)])
    await store.save_image(epoch, 1, body)
    begin = f"{etcd.prefix}/".encode()
    found = await etcd.client.range(begin, after_prefix(begin))
    assert sum(len(entry.value) for entry in found.entries) < len(body) / 20
    loaded = await store.load()
    assert loaded.image == body == await store.history("j1")


async def test_five_hundred_records_go_with_one_batch(etcd: Etcd):
    store = await etcd.store()
    epoch = await store.open_term()
    records = [History(f"j{at:03}", b"r%d" % at * 2000) for at in range(500)]
    await store.append(epoch, a_batch(1), records)
    assert await store.past(None, 1000) == records[::-1]
    assert await store.history("j250") == records[250].body


async def test_five_thousand_subjects_are_no_keys_of_their_own(etcd: Etcd):
    store = await etcd.store()
    epoch = await store.open_term()
    names = tuple(f"01kx{at:022}" for at in range(5000))
    await store.append(epoch, Batch(1, b"many", names), [])
    assert revisions(await store.story(names[4321], 0, 10)) == [1]
    assert len(await etcd.names("")) < 10


async def test_a_story_goes_over_segments_and_tail_and_is_told_alike_by_all(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(stories, "SEGMENT_BATCHES", 8)
    one = await etcd.store()
    epoch = await one.open_term()
    for revision in range(1, 31):
        await one.append(epoch, a_batch(revision, "n1", f"j{revision % 7}"), [])
    assert len({name.rpartition("/")[0][-20:] for name in await etcd.names("index/")}) == 3
    two = await etcd.store()
    epoch = await two.open_term()
    for revision in range(31, 41):  # the successor has to catch up before it can continue the index
        await two.append(epoch, a_batch(revision, "n1", f"j{revision % 7}"), [])
    for store in (one, two, await etcd.store()):
        assert revisions(await store.story("n1", 0, 100)) == list(range(1, 41))
        assert revisions(await store.story("n1", 10, 5)) == [11, 12, 13, 14, 15]
        assert revisions(await store.story("j3", 0, 100)) == [3, 10, 17, 24, 31, 38]
    assert len({name.rpartition("/")[0][-20:] for name in await etcd.names("index/")}) > 3


async def test_what_is_pruned_leaves_no_keys_behind(etcd: Etcd, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stories, "SEGMENT_BATCHES", 8)
    store = await etcd.store()
    epoch = await store.open_term()
    large = random.Random(1).randbytes(3 << 20)
    for revision in range(1, 11):
        await store.append(epoch, a_batch(revision, "n1"), [])
    await store.append(epoch, Batch(11, large, ("n1",)), [History("j1", large)])
    for revision in range(12, 21):
        await store.append(epoch, a_batch(revision, "n1"), [])
    for revision in (10, 17, 18):
        await store.save_image(epoch, revision, large)
    await store.prune(epoch, before=100, keep_jobs=0)
    for kind in ("part/", "history/", "large/", "index/"):
        assert await etcd.names(kind) == [], kind
    assert [int(name[-20:]) for name in await etcd.names("log/")] == [18, 19, 20], (
        "the older image needs them"
    )
    assert len(await etcd.names("piece/")) == 8
    assert (await store.load()).image == large
    assert revisions(await store.story("n1", 0, 10)) == [18, 19, 20]


async def test_a_lost_answer_is_resolved_by_asking_another_member(etcd: Etcd):
    async with Proxy(shared_etcd().hosts[0]).running() as proxy:
        store = await etcd.store(proxy.address)
        epoch = await store.open_term()
        await store.append(epoch, a_batch(1), [])
        proxy.swallows = True
        await store.append(epoch, a_batch(2), [History("j1", b"record")])
        assert proxy.swallowed.is_set(), "no answer was lost"
        await store.append(epoch, a_batch(3), [])
        assert bodies(await store.load()) == [b"batch 1", b"batch 2", b"batch 3"]


async def test_a_won_election_whose_answer_was_lost_is_known_as_won(etcd: Etcd):
    post = LateRequests(EtcdClient(shared_etcd().hosts))
    store = await EtcdStore.open(post, etcd.prefix)
    post.loses = etcd.keys.leader
    won = await store.elect(ADA, 30.0)
    assert post.lost == 1
    assert won == Leader(1, ADA)
    assert await (await etcd.store()).elect(BOB, 30.0) == won
    await store.append(won.epoch, a_batch(1), [])
    await store.close()


async def test_a_call_that_is_cut_off_is_asked_again_and_does_not_look_like_a_cancelled_task(etcd: Etcd):
    async with Proxy(shared_etcd().hosts[0]).running() as proxy:
        client = EtcdClient((proxy.address, *shared_etcd().hosts))
        await client.txn([], [Put(etcd.keys.head, b"here")])
        proxy.swallows = True
        asked = asyncio.create_task(client.range(etcd.keys.head))
        await proxy.swallowed.wait()
        await client._present().channel.close()
        assert (await asked).entries[0].value == b"here"
        await client.close()


async def test_who_is_impatient_does_not_ask_a_silent_member_for_ever(etcd: Etcd):
    """As a coordinator that renews its lease and waits less than our own deadline."""
    async with Proxy(shared_etcd().hosts[0]).running() as proxy:
        store = await etcd.store(proxy.address)
        won = await store.elect(ADA, 30.0)
        proxy.swallows = True
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(store.renew(won.epoch, 30.0), 1.0)
        await asyncio.wait_for(store.renew(won.epoch, 30.0), 1.0)


async def test_when_every_answer_is_lost_the_next_load_tells(etcd: Etcd):
    async with Proxy(shared_etcd().hosts[2]).running() as proxy:
        store = await EtcdStore.open(EtcdClient((proxy.address,)), etcd.prefix)
        epoch = await store.open_term()
        await store.load()
        proxy.swallows = True
        with pytest.raises(StoreError):
            await store.append(epoch, a_batch(1), [])
        proxy.swallows = False
        assert bodies(await store.load()) == [b"batch 1"]
        await store.append(epoch, a_batch(2), [])
        await store.close()


async def a_late_store(etcd: Etcd) -> tuple[EtcdStore, LateRequests, int]:
    post = LateRequests(EtcdClient(shared_etcd().hosts))
    store = await EtcdStore.open(post, etcd.prefix)
    epoch = await store.open_term()
    await store.append(epoch, a_batch(1), [])
    await store.load()
    post.holds = etcd.keys.head
    with pytest.raises(StoreError):
        await store.append(epoch, Batch(2, b"late", ("j2",)), [History("j2", b"late")])
    return store, post, epoch


async def test_a_write_that_comes_after_the_load_is_noticed_by_the_next(etcd: Etcd):
    store, post, epoch = await a_late_store(etcd)
    post.holds = b""
    assert bodies(await store.load()) == [b"batch 1"]
    assert any(await post.deliver())
    with pytest.raises(Moved):
        await store.append(epoch, Batch(2, b"other"), [])
    assert bodies(await store.load()) == [b"batch 1", b"late"]
    await store.append(epoch, a_batch(3), [])
    await store.close()


async def test_a_write_that_comes_after_the_next_one_does_nothing(etcd: Etcd):
    store, post, epoch = await a_late_store(etcd)
    post.holds = b""
    await store.load()
    await store.append(epoch, Batch(2, b"other"), [])
    assert not any(await post.deliver())
    assert bodies(await store.load()) == [b"batch 1", b"other"]
    assert await store.history("j2") is None
    await store.close()


async def test_a_late_image_cannot_count_once_its_pieces_are_cleaned_away(etcd: Etcd):
    post = LateRequests(EtcdClient(shared_etcd().hosts))
    store = await EtcdStore.open(post, etcd.prefix)
    epoch = await store.open_term()
    await store.append(epoch, a_batch(7), [])
    post.holds = etcd.keys.imaged
    with pytest.raises(StoreError):
        await store.save_image(epoch, 7, b"late")
    post.holds = b""
    await store.save_image(epoch, 5, b"good")
    assert not any(await post.deliver())
    loaded = await store.load()
    assert (loaded.image, loaded.quarantined) == (b"good", 0)
    await store.close()


async def test_an_image_whose_answer_was_lost_is_saved(etcd: Etcd):
    post = LateRequests(EtcdClient(shared_etcd().hosts))
    store = await EtcdStore.open(post, etcd.prefix)
    epoch = await store.open_term()
    post.loses = etcd.keys.imaged
    await store.save_image(epoch, 7, b"image")
    assert post.lost == 1
    assert (await store.load()).image == b"image"
    await store.close()


class Interrupted(LateRequests):
    """A Kv that lets another coordinator act just before a key is read for the first time."""

    def __init__(self, kv: EtcdClient, key: bytes, effect: Callable[[], Awaitable[None]]) -> None:
        super().__init__(kv)
        self._key, self._effect = key, effect
        self.interrupted = False

    async def range(self, key: bytes, end: bytes = b"", **how: Any) -> RangeReply:
        if key.startswith(self._key) and not self.interrupted:
            self.interrupted = True
            await self._effect()
        return await super().range(key, end, **how)


async def test_images_that_are_replaced_while_one_reads_are_not_taken_for_damaged(etcd: Etcd):
    writer = await etcd.store()
    epoch = await writer.open_term()

    async def save(revision: int) -> None:
        await writer.append(epoch, a_batch(revision), [])
        await writer.save_image(epoch, revision, b"image %d" % revision)
        await writer.prune(epoch, revision, 10)

    async def save_more() -> None:
        for revision in (2, 3, 4):
            await save(revision)

    await save(1)
    post = Interrupted(EtcdClient(shared_etcd().hosts), etcd.keys.pieces, save_more)
    reader = await EtcdStore.open(post, etcd.prefix)
    loaded = await reader.load()
    assert post.interrupted
    assert (loaded.image, loaded.quarantined) == (b"image 4", 0)
    assert await etcd.names("quarantine/") == []
    await reader.close()


async def test_compaction_takes_nothing_from_us(etcd: Etcd):
    store, reader = await etcd.store(), await etcd.store()
    epoch = await store.open_term()
    seen: list[Batch] = []
    for revision in range(1, 121):
        await store.append(epoch, a_batch(revision, "n1"), [])
        if revision % 10 == 0:
            newest = (await etcd.client.range(etcd.keys.head)).revision
            member = etcd.client._present()
            await member.kv.Compact(rpc.CompactionRequest(revision=newest, physical=True), timeout=5)
        if revision % 15 == 0:
            seen += await reader.since(seen[-1].revision if seen else 0, 100)
    assert revisions(seen) == list(range(1, 121))
    assert revisions((await reader.load()).batches) == list(range(1, 121))
    assert revisions(await reader.story("n1", 100, 5)) == [101, 102, 103, 104, 105]


async def test_a_successor_that_followed_the_log_need_not_read_it_again(etcd: Etcd):
    one, two = await etcd.store(), await etcd.store()
    first = await one.elect(ADA, 30.0)
    await two.load()
    await one.append(first.epoch, a_batch(1), [])
    assert revisions(await two.since(0, 10)) == [1]
    await one.append(first.epoch, a_batch(2), [])
    await one.resign(first.epoch)
    won = await two.elect(BOB, 30.0)
    assert revisions(await two.since(1, 10)) == [2]
    await two.append(won.epoch, a_batch(3), [])
    assert revisions((await two.load()).batches) == [1, 2, 3]


async def test_two_of_one_name_never_hold_one_epoch(etcd: Etcd):
    """A mistake in the settings; the second fences the first off."""
    one, two = await etcd.store(), await etcd.store()
    first, second = await one.elect(ADA, 30.0), await two.elect(ADA, 30.0)
    assert second.epoch > first.epoch
    with pytest.raises(StoreError):
        await one.append(first.epoch, a_batch(1), [])


async def test_a_newer_schema_is_refused_and_nothing_is_changed(etcd: Etcd):
    store = await etcd.store()
    await etcd.client.txn([], [Put(etcd.keys.schema, b"99")])
    before = (await etcd.client.range(etcd.keys.schema)).entries
    for effect in (store.elect(ADA, 30.0), store.open_term(), store.load(), etcd.store()):
        with pytest.raises(StoreError, match="use a newer version"):
            await effect
    assert await etcd.names("") == [f"{etcd.prefix}/schema"]
    assert (await etcd.client.range(etcd.keys.schema)).entries == before


async def test_members_may_be_given_by_name():
    hosts = tuple(host.replace("127.0.0.1", "localhost") for host in shared_etcd().hosts)
    store = await EtcdStore.open(EtcdClient(hosts), a_prefix())
    assert await store.open_term() == 1
    await store.close()


async def test_stores_of_two_clusters_share_one_etcd():
    one, two = await an_etcd_store(), await an_etcd_store()
    assert (await one.elect(ADA, 30.0)).candidate == ADA
    assert (await two.elect(BOB, 30.0)).candidate == BOB
    await one.close()
    await two.close()
